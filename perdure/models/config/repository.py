"""The shape and checks of `perdure.toml`, the settings of a repository, with sizes as people write them.
perdure/adapters/repository/config.py reads and merges it."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from perdure.models.base import NON_BLANK, UserInputModel, require_not_blank
from perdure.models.duration import Duration
from perdure.models.limits import (
    ATTEMPTS_MOST,
    DEFAULTS,
    SETTING_CHARS,
    SIDE_PATTERN_CHARS,
    SIDE_PATTERNS,
    TEST_NAME_CHARS,
)
from perdure.models.phases import ALL_PHASES, Phase
from perdure.text import shorten

CONFIG_FILE = "perdure.toml"
"""Its name in a repository."""


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `"500m"` or `"4g"`: mebibytes or gibibytes, with or without a `b` at the end.

    Raises ValueError, with a message that says what was expected, for anything else and for zero.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([mg])b?", text.lower()) if len(text) < 16 else None
    if match is None or not float(match[1]):
        raise ValueError("this is no size: write for example 500m or 4g")
    return int(float(match[1]) * 1024 ** (2 if match[2] == "m" else 3))


def _check_size(text: str) -> str:
    """Return the text itself. Raises ValueError where it is no size."""
    parse_size(text)
    return text


Size = Annotated[str, AfterValidator(_check_size)]


class Settings(UserInputModel):
    """Base of the tables in a settings file: no text in them is longer than SETTING_CHARS."""

    model_config = ConfigDict(str_max_length=SETTING_CHARS)


class SandboxGrade(StrEnum):
    """`full` is bubblewrap; `reduced` is Landlock and seccomp, weaker; `off` is nothing. Only `full` is a default."""

    FULL = "full"
    REDUCED = "reduced"
    OFF = "off"


class DeliverySettings(Settings):
    """Settings of the delivery as a whole.

    fallback     the second model of steps that name none
    questions    people are asked, by agents and about failing tests where nothing else can tell whether they are new;
                 without, agents decide and write down what they assumed, and such tests make the pull request a draft
    specialists  see docs/specialists.md
    attempts     at one plan; after_red: the others begin only when the first one is no good: docs/attempts.md
    """

    phases: tuple[Phase, ...] = ALL_PHASES
    document: bool = False
    questions: bool = True
    specialists: bool = False
    attempts: int = Field(default=1, ge=1, le=ATTEMPTS_MOST)
    after_red: bool = False
    fallback: str | None = Field(default=None, min_length=1)
    on_failure: Literal["none", "draft"] = "none"
    notes: tuple[str, ...] = ("AGENTS.md", "CLAUDE.md")


class SetupSettings(Settings):
    """`commands` None means: detect them. An empty list means: nothing to set up."""

    commands: tuple[str, ...] | None = None
    hosts: tuple[str, ...] = ()
    copy_files: tuple[str, ...] = Field(default=(), alias="copy")
    timeout: Duration = "10m"


class TestCommand(Settings):
    """A command that runs tests.

    name       made of the directory and the command, where it is not given
    directory  where the command runs, relative to the repository's top; empty: at the top
    writes     paths of the test side, relative to the top, that it may write to
    trace      whether its processes may trace each other, as debuggers and LeakSanitizer do
    """

    __test__ = False  # not a test class, whatever its name says to pytest

    name: str = Field(default="", min_length=1)
    command: str = Field(pattern=NON_BLANK)
    directory: str = ""
    report: Literal["junit", "exit"] | None = None
    timeout: Duration = "10m"
    required: bool = True
    writes: tuple[str, ...] = ()
    trace: bool = False

    _require_command = field_validator("command", mode="before")(require_not_blank)

    @field_validator("directory")
    @classmethod
    def _check_directory(cls, directory: str) -> str:
        """Return the directory without empty and `.` parts. Raises ValueError when it is absolute, leaves the
        repository or is not printable."""
        parts = [part for part in directory.split("/") if part not in ("", ".")]
        if directory.startswith("/") or ".." in parts or not directory.isprintable():
            raise ValueError("write a directory of the repository, relative to its top")
        return "/".join(parts)

    @model_validator(mode="before")
    @classmethod
    def _fill_name(cls, fields: object) -> object:
        """Return the raw fields; when they have a command and no name, with a name made of directory and command, cut
        to TEST_NAME_CHARS."""
        if not isinstance(fields, dict) or "name" in fields or not isinstance(fields.get("command"), str):
            return fields
        if not fields["command"].strip():  # Of a blank command: the validator of `command` reports it.
            return fields
        directory = str(fields.get("directory") or "")
        name = " ".join(f"{directory}: {fields['command']}".removeprefix(": ").split())
        return {**fields, "name": shorten(name, TEST_NAME_CHARS)}


class TestsSettings(Settings):
    """Settings of the verdict on a change's tests (docs/testing.md).

    side                        patterns of more paths that are tests, or steer them, relative to the repository's top
    new_tests_must_fail_before  severity of the finding that no new test of a bug fix or a feature fails without it
    """

    __test__ = False

    side: tuple[str, ...] = Field(default=(), max_length=SIDE_PATTERNS)
    new_tests_must_fail_before: Literal["blocker", "tech_debt", "off"] = "tech_debt"

    @field_validator("side")
    @classmethod
    def _check_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        """Return the patterns themselves. Raises ValueError for one that names no path of the repository or is too
        long."""
        for pattern in patterns:
            body, shown = pattern.removeprefix("!"), shorten(pattern, 80)
            if not body.strip("/ ") or body.startswith("#") or ".." in body.split("/") or not pattern.isprintable():
                raise ValueError(f'"{shown}" names no path of the repository: write a pattern as in .gitignore')
            if len(pattern) > SIDE_PATTERN_CHARS:
                raise ValueError(f'"{shown}" has more than {SIDE_PATTERN_CHARS} characters')
        return patterns


class Limits(Settings):
    """Limits of a delivery; `deliveries` and `open_pull_requests`: of all in the repository. None: no limit.

    tokens  sent and received, cached ones too
    """

    test_fixes: int = Field(default=DEFAULTS.test_fixes, ge=0, le=10)
    review_fixes: int = Field(default=DEFAULTS.review_fixes, ge=0, le=10)
    turns_per_step: int = Field(default=DEFAULTS.turns_per_step, ge=1, le=500)
    time: Duration = DEFAULTS.time
    budget_usd: float = Field(default=DEFAULTS.budget_usd, gt=0, allow_inf_nan=False)
    tokens: int | None = Field(default=None, ge=1)
    deliveries: int | None = Field(default=None, ge=1, le=1000)
    open_pull_requests: int | None = Field(default=None, ge=1, le=1000)

    @field_validator("*", mode="before")
    @classmethod
    def _require_numbers(cls, value: object) -> object:
        """Return the value itself. Raises ValueError for a bool, which pydantic would accept as a number."""
        if isinstance(value, bool):  # else it would be 1
            raise ValueError("write a number, not true or false")
        return value


class Gates(Settings):
    """The gates at which the delivery waits for a person. `expire`: how long a gate waits before the delivery ends
    undelivered; None: for ever."""

    before: tuple[Literal["plan", "pull_request"], ...] = ()
    expire: Duration | None = None


Effort = Literal["low", "medium", "high", "xhigh", "max"]

BUILT_IN = "built-in"
"""The agent that every host has; every other agent's name is that of a preset (perdure.models.config.preset)."""


class StepSettings(Settings):
    """The agent that carries out an agentic step, its model, and how hard that thinks.

    A preset's agent has a default model of its own, and `max_tokens` as far as its preset has a place for them.
    `fallback`, for the built-in agent: the model that goes on where the first one refuses or is overloaded for long.
    """

    agent: str = Field(default=BUILT_IN, min_length=1)
    model: str = Field(default="claude-sonnet-5-5", min_length=1)
    fallback: str | None = Field(default=None, min_length=1)
    effort: Effort | None = None
    max_tokens: int = Field(default=DEFAULTS.max_tokens, ge=256, le=128_000)


class StepsSettings(Settings):
    """Agent and model by step. classify is a small question; plan, decompose and review repay the best model."""

    classify: StepSettings = StepSettings(model="claude-haiku-5-5", max_tokens=2048)
    plan: StepSettings = StepSettings(model="claude-opus-5-5", effort="high")
    decompose: StepSettings = StepSettings(model="claude-opus-5-5", effort="high")
    implement: StepSettings = StepSettings.model_construct()
    document: StepSettings = StepSettings.model_construct()
    fix_tests: StepSettings = StepSettings.model_construct()
    review: StepSettings = StepSettings(model="claude-opus-5-5", effort="high")
    fix_review: StepSettings = StepSettings.model_construct()
    fix_landing: StepSettings = StepSettings.model_construct()


class AppSettings(Settings):
    start: str = ""
    ready: str = ""
    pages: tuple[str, ...] = ()


class PortSettings(Settings):
    need: bool = True


class GitSettings(Settings):
    branch: str = "perdure/{id}"
    sign_off: bool = False


class ProtectSettings(Settings):
    paths: tuple[str, ...] = (".github/**", "perdure.toml")


class ShipSettings(Settings):
    draft: bool = False
    allow_untested: bool = False
    reviewers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("perdure",)
    close_issue: bool = True


class ArtifactSettings(Settings):
    """`branch`: where plan, test report and review are published for the pull request to link to; empty: nowhere."""

    branch: str = "perdure-artifacts"


class RepositoryConfig(Settings):
    """`perdure.toml` of the target repository. It cannot set sandbox, ports' ranges, Temporal or keys."""

    version: Literal[1]
    delivery: DeliverySettings = DeliverySettings.model_construct()
    setup: SetupSettings = SetupSettings.model_construct()
    test: tuple[TestCommand, ...] | None = None
    tests: TestsSettings = TestsSettings.model_construct()
    limits: Limits = Limits.model_construct()
    gates: Gates = Gates.model_construct()
    steps: StepsSettings = StepsSettings.model_construct()
    app: AppSettings = AppSettings.model_construct()
    ports: PortSettings = PortSettings.model_construct()
    git: GitSettings = GitSettings.model_construct()
    protect: ProtectSettings = ProtectSettings.model_construct()
    ship: ShipSettings = ShipSettings.model_construct()
    artifacts: ArtifactSettings = ArtifactSettings.model_construct()
