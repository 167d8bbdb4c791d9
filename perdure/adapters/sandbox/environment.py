"""The small environment that commands see, in every grade."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.sandbox.base import Command
from perdure.adapters.sandbox.toolchain import Binds
from perdure.models.config import SandboxGrade

HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 the sandbox's own
RUN = "/run"
UNPACKED = "/unpacked"
"""In memory, for Command.unpacked; there is none where nothing is."""
CHECKOUTS = Path("/checkout")
"""Below it lies the worktree, under its repository's name: a directory that no host is known to have."""
RESULTS = Path("/results")
"""The directory in which test runners leave their reports."""

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "UV_NO_SYNC": "1",  # `uv run` would write into the read-only .venv
    "npm_config_offline": "true",
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
}
"""Without a network these tools would wait for timeouts before they say what is missing."""

ANEW = {"GRADLE_OPTS": "-Dorg.gradle.caching=false", "GOCACHE": f"{TMP}/go-build"}
"""For commands that are shown packages of setup, among which are results of tests that ran there: tests run anew."""

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")
PREFIXES = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_")
NOT_FOR_SETUP = frozenset({"UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache", "NPM_CONFIG_CACHE", "PIP_TARGET"})
"""Name places that do not exist inside."""


def place(grade: SandboxGrade, repository: str) -> Path | None:
    """Return where a repository's worktrees are seen, the same for each of its deliveries; None: where they are.

    A virtual environment that one delivery's setup made then is right for another, and prompts, logs and the output of
    tests do not differ by the delivery's name. `repository` is a name of letters, digits, dashes, dots, underscores.
    """
    return CHECKOUTS / repository if grade is SandboxGrade.FULL else None


def results_place(grade: SandboxGrade) -> Path | None:
    """The same for Command.results."""
    return RESULTS if grade is SandboxGrade.FULL else None


def inside(command: Command, binds: Binds, *, home: str = HOME, tmp: str = TMP, run: str = RUN) -> dict[str, str]:
    """Return a command's variables: nothing of ours, the toolchains', then what the command was given."""
    offline = {} if command.network else OFFLINE
    return {
        **binds.env,
        "PATH": search_path(command, binds),
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "CI": "1",
        "TMPDIR": tmp,
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "XDG_RUNTIME_DIR": run,
        "CARGO_HOME": f"{home}/.cargo",
        "GOPATH": f"{home}/go",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **offline,
        **command.env,
    }


def search_path(command: Command, binds: Binds) -> str:
    """PATH inside: the tools of the directory it starts in, then the worktree's, before the owner's."""
    tops = dict.fromkeys((command.directory, ""))
    names = [f"{top}/{name}".lstrip("/") for top in tops for name in (".venv/bin", "node_modules/.bin")]
    own = [name for name in names if (command.worktree / name).is_dir()]
    return ":".join([*(str(command.seen / name) for name in own), *binds.path] or ["/usr/bin", "/bin"])


def setup_variables(owner: Mapping[str, str]) -> dict[str, str]:
    """The owner's index, proxy and certificate settings: only for setup, which runs before any model call."""
    return {
        name: value
        for name, value in owner.items()
        if (name in CERTIFICATES or name.startswith(PREFIXES) or name.lower().endswith("_proxy"))
        and name not in NOT_FOR_SETUP
    }
