"""The small environment that commands see, in every grade."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.sandbox.base import Command
from perdure.adapters.sandbox.toolchain import Binds

HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 the sandbox's own
RUN = "/run"
CACHE = f"{HOME}/.cache"

OFFLINE = {
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
    "UV_NO_SYNC": "1",  # `uv run` would write into the read-only .venv
    "npm_config_offline": "true",
    "CARGO_NET_OFFLINE": "true",
    "GOPROXY": "off",
}
"""Without a network these tools would wait for timeouts before they say what is missing."""

CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")
PREFIXES = ("PIP_", "UV_", "npm_config_", "NPM_CONFIG_")
NOT_FOR_SETUP = frozenset({"UV_CACHE_DIR", "PIP_CACHE_DIR", "npm_config_cache", "NPM_CONFIG_CACHE", "PIP_TARGET"})
"""Name places that do not exist inside."""


def inside(command: Command, binds: Binds, *, home: str = HOME, tmp: str = TMP, run: str = RUN) -> dict[str, str]:
    """What a command sees: nothing of ours, the toolchains' variables, then what the command was given."""
    offline = {} if command.network else OFFLINE
    return {
        **binds.env,
        "PATH": search_path(command.worktree, binds),
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


def search_path(worktree: Path, binds: Binds) -> str:
    """PATH inside: the worktree's own tools before the owner's."""
    own = [worktree / ".venv/bin", worktree / "node_modules/.bin"]
    return ":".join([*(str(path) for path in own if path.is_dir()), *binds.path] or ["/usr/bin", "/bin"])


def setup_variables(owner: Mapping[str, str]) -> dict[str, str]:
    """The owner's index, proxy and certificate settings: only for setup, which runs before any model call."""
    return {
        name: value
        for name, value in owner.items()
        if (name in CERTIFICATES or name.startswith(PREFIXES) or name.lower().endswith("_proxy"))
        and name not in NOT_FOR_SETUP
    }
