"""The small environment that commands see, in every grade."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.toolchain import Binds
from perdure.models.config import SandboxGrade

HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 the sandbox's own
RUN = "/run"
UNPACKED = "/unpacked"
"""The directory, in memory, for SandboxCommand.unpacked; it exists only where a command has something unpacked."""
CHECKOUTS = Path("/checkout")
"""The directory below which the worktree lies, under its repository's name: no host is known to have one of this
name."""
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
"""Settings for tools that without a network would wait for timeouts before they say what is missing."""

NO_RESULT_CACHES = {"GRADLE_OPTS": "-Dorg.gradle.caching=false", "GOCACHE": f"{TMP}/go-build"}
"""Settings for commands that are shown packages of setup, among which are cached results of tests that ran there: tests
run again."""

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")
PREFIXES = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_")
NOT_FOR_SETUP = frozenset({"UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache", "NPM_CONFIG_CACHE", "PIP_TARGET"})
"""The owner's variables that name places which do not exist inside."""


def worktree_path_inside(grade: SandboxGrade, repository: str) -> Path | None:
    """Return the path at which commands see a repository's worktrees, the same for each of its deliveries; None: where
    they are on the host, in every grade but `full`.

    A virtual environment that one delivery's setup made then is right for another, and prompts, logs and the output of
    tests do not differ by the delivery's name. `repository` is a name of letters, digits, dashes, dots, underscores.
    """
    return CHECKOUTS / repository if grade is SandboxGrade.FULL else None


def results_path_inside(grade: SandboxGrade) -> Path | None:
    """Return the path at which commands see their results directory; None: where it is on the host, in every grade but
    `full`."""
    return RESULTS if grade is SandboxGrade.FULL else None


def command_variables(
    command: SandboxCommand, binds: Binds, *, home: str = HOME, tmp: str = TMP, runtime_dir: str = RUN
) -> dict[str, str]:
    """Return a command's environment variables: none of the worker's own, then the toolchains', the sandbox's small
    set, and last what the command was given. `home`, `tmp` and `runtime_dir` are paths as the command sees them."""
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
        "XDG_RUNTIME_DIR": runtime_dir,
        "CARGO_HOME": f"{home}/.cargo",
        "GOPATH": f"{home}/go",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        **offline,
        **command.env,
    }


def search_path(command: SandboxCommand, binds: Binds) -> str:
    """Return a command's PATH: tools installed in the directory it starts in, then those at the worktree's top, then
    the owner's entries."""
    tops = dict.fromkeys((command.directory, ""))
    names = [f"{top}/{name}".lstrip("/") for top in tops for name in (".venv/bin", "node_modules/.bin")]
    existing = [name for name in names if (command.worktree / name).is_dir()]
    return ":".join([*(str(command.shown_at / name) for name in existing), *binds.path] or ["/usr/bin", "/bin"])


def setup_variables(owner: Mapping[str, str]) -> dict[str, str]:
    """Return from the owner's environment the settings of package indexes, proxies and certificates. They are only for
    setup, which runs before any model call."""
    return {
        name: value
        for name, value in owner.items()
        if (name in CERTIFICATES or name.startswith(PREFIXES) or name.lower().endswith("_proxy"))
        and name not in NOT_FOR_SETUP
    }
