"""The shape and checks of a host's own settings: the user's `config.toml`, and `PERDURE_*` variables.
perdure/adapters/repository/config.py reads them."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from perdure.models.budget.treasury import Budgets
from perdure.models.config.repository import Limits, SandboxGrade, Settings, Size, StepsSettings
from perdure.models.duration import Duration, parse_duration
from perdure.models.limits import DEFAULTS, SANDBOX_DISK, SANDBOX_PROCESSES
from perdure.text import shorten


class CommandLimits(Settings):
    """The most that one command of a model or a test may use of the host; see docs/workspaces.md.

    memory     of all its processes together, such as "4g"; None: 8 GB, or three quarters of a smaller host's
    processes  with their threads
    disk       what commands may write into one worktree
    cpu        of all processors together, such as "2h"; None: what the command's time-out allows
    at_once    setups and test commands that run on this host at the same time; None: by its processors and memory
    """

    memory: Size | None = None
    processes: int = Field(default=SANDBOX_PROCESSES, ge=50, le=1_000_000)
    disk: Size = SANDBOX_DISK
    cpu: Duration | None = None
    at_once: int | None = Field(default=None, ge=1, le=1000)

    def cpu_s(self) -> float | None:
        """Return the limit of processor time in seconds; None when none is set, and the command's time-out decides."""
        return None if self.cpu is None else parse_duration(self.cpu)


class ModelSettings(Settings):
    """`at_once`: requests to one model server that may be under way at a time, with one key, of all deliveries of this
    host; all others wait in the worker. None: any number."""

    at_once: int | None = Field(default=None, ge=1, le=1000)


class PortRanges(Settings):
    """Inclusive ranges of ports from which a host leases a pair, backend and frontend, to each delivery."""

    backend: tuple[int, int] = (9100, 9114)
    frontend: tuple[int, int] = (9200, 9214)

    @field_validator("backend", "frontend")
    @classmethod
    def _check_range(cls, ports: tuple[int, int]) -> tuple[int, int]:
        """Return the first and the last port themselves. Raises ValueError when they are no range within 1024 to
        65535."""
        first, last = ports
        if not 1024 <= first <= last <= 65535:
            raise ValueError(
                f"{first}-{last} is not a range of ports: write the first and the last, from 1024 to 65535"
            )
        return ports

    @model_validator(mode="after")
    def _check_overlap(self) -> PortRanges:
        """Return the ranges themselves. Raises ValueError when they overlap."""
        if self.backend[0] <= self.frontend[1] and self.frontend[0] <= self.backend[1]:
            raise ValueError("backend and frontend ranges overlap")
        return self


NoticeEvent = Literal["waiting", "question", "budget", "reminder", "ended"]
"""Events that people can be notified of: a gate, a question, a limit reached, any of these again later, the end."""


class NotifySettings(Settings):
    """One subscription to notices: who is notified of what. `url`: one address or several; each may hold a secret, and
    only its host is shown."""

    url: tuple[SecretStr, ...] = ()
    events: tuple[NoticeEvent, ...] = ("waiting", "question", "budget", "reminder", "ended")

    @field_validator("url", mode="before")
    @classmethod
    def _require_list(cls, value: object) -> object:
        """Return the addresses as a tuple, a single one too. Raises ValueError for anything but texts."""
        urls = [value] if isinstance(value, str) else value
        if not isinstance(urls, list | tuple) or not all(isinstance(url, str | SecretStr) for url in urls):
            raise ValueError("write one address in quotes, or several in brackets")
        return tuple(urls)


class PageSettings(Settings):
    """`address`: where people reach the page, such as a proxy's `https://perdure.example.org`.

    Empty: where the page of this host's home says it is.
    """

    address: str = ""

    @field_validator("address")
    @classmethod
    def _check_address(cls, address: str) -> str:
        """Return the address without a slash at its end; an empty one is allowed. Raises ValueError when it is more
        than scheme, host and port."""
        if address and not re.fullmatch(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\])(:\d{1,5})?/?", address, re.ASCII):
            raise ValueError(
                f'"{shorten(address, 80)}" is no address of a page: write https://HOST, and nothing behind it'
            )
        return address.rstrip("/")


class EnvironmentSettings(Settings):
    """The most that is kept, on disk, of what setup made, for later deliveries; 0: nothing is kept; None: 10 GB, on a
    small disk KEPT_DISK_SHARE of it."""

    gigabytes: float | None = Field(default=None, ge=0, le=100_000, allow_inf_nan=False)


class HomeSettings(Settings):
    """The most that the home takes on its disk before what ended goes, the oldest first; None: HOME_DISK_SHARE of the
    disk."""

    gigabytes: float | None = Field(default=None, ge=0, le=100_000, allow_inf_nan=False)


class HostGitSettings(Settings):
    """`filters`: names of filters in .gitattributes that run on this host, with the programs of its owner's git."""

    filters: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")], ...] = ()


class HostConfig(Settings):
    """Settings of the host's owner alone: `config.toml` of the user, or `PERDURE_*` variables."""

    sandbox: SandboxGrade = SandboxGrade.FULL
    ports: PortRanges = PortRanges.model_construct()
    commands: CommandLimits = CommandLimits.model_construct()
    model: ModelSettings = ModelSettings.model_construct()
    limits: Limits = Limits(budget_usd=DEFAULTS.host_budget_usd, time=DEFAULTS.host_time)
    steps: StepsSettings = StepsSettings.model_construct()
    slots: int = Field(default=DEFAULTS.slots, ge=1, le=200)
    treasury: Budgets = ()
    notify: NotifySettings = NotifySettings.model_construct()
    environments: EnvironmentSettings = EnvironmentSettings.model_construct()
    page: PageSettings = PageSettings.model_construct()
    home: HomeSettings = HomeSettings.model_construct()
    git: HostGitSettings = HostGitSettings.model_construct()
    local_repositories: tuple[str, ...] = ()
    setup_hosts: tuple[str, ...] = ()
