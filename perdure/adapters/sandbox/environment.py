"""The small environment that commands see in every grade, and the toolchains behind the owner's PATH, found so that
commands see them and nothing else; with the paths at which they see worktree and results, the owner's settings for
setup alone, and the hint where a command of the host is missing inside. Used by the other modules here and by setup,
sessions and tests.

Toolchains are computed once, after setup and before the first turn, and stored: computed again for each command, an
agent could widen them by what it writes into the worktree.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from perdure.adapters.sandbox import host_files
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.system.home import Home
from perdure.models.base import HistoryModel
from perdure.models.config.repository import SandboxGrade

PASSED_ON = ("PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "JAVA_HOME", "GOROOT", "TZ")
"""Variables by which a shim finds its toolchain."""


MANAGED = ("versions", "toolchains", "installs")
"""Directories in which version managers keep what the programs in the directory beside them lead to."""


class DroppedPath(HistoryModel):
    """A PATH entry (or what one of its links leads to) that commands will not see, and why."""

    entry: str
    reason: str


class Binds(HistoryModel):
    """The parts of the host that a sandbox shows.

    prefixes  directories and single files, shown read-only at their own path
    path      PATH entries, in the owner's order
    dropped   what commands will not see although PATH leads there
    env       the owner's variables that the toolchains need
    cache     where setup keeps the packages it downloads, below `cache/` of PERDURE_HOME; "": it keeps none
    """

    prefixes: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    dropped: tuple[DroppedPath, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cache: str = ""


def compute_binds(
    worktree: Path, path: str, home: Path, env: Mapping[str, str] | None = None, perdure_home: Path | None = None
) -> Binds:
    """Compute what of the host commands need to see for the owner's `path` (a PATH string) and the worktree's virtual
    environments, and return it; execute nothing.

    home          the owner's home directory: never shown, nor an ancestor of it
    env           the owner's environment; None: this process's
    perdure_home  never shown, nor anything in it; None: this process's

    Blocks for some 100 ms, a few where nothing has changed since the last call: call it in a thread.
    """
    env = os.environ if env is None else env
    refusals = host_files.PathRefusals(home, worktree, perdure_home or Home.find().root)
    walk = _PathWalk(refusals, str(worktree), repr(toolchain_state(path, home, env)))
    path_entries = [entry for entry in dict.fromkeys(path.split(":")) if walk.add_path_entry(entry)]
    variables = {name: env[name] for name in PASSED_ON if name in env}
    if "RUSTUP_HOME" not in variables and (home / ".rustup" / "toolchains").is_dir():
        variables["RUSTUP_HOME"] = str(home / ".rustup")  # inside, HOME is another directory
    for name in ("RUSTUP_HOME", "JAVA_HOME", "GOROOT"):
        toolchain = os.path.normpath(variables.get(name, ""))
        if os.path.isabs(toolchain) and host_files.has_toolchain_marker(toolchain):
            walk.add_path(toolchain)
    for venv in _find_virtual_environments(worktree):
        walk.add_virtual_environment(venv)
    return Binds(
        prefixes=tuple(walk.outermost_paths()),
        path=tuple(path_entries),
        dropped=tuple(DroppedPath(entry=entry, reason=reason) for entry, reason in walk.dropped.items()),
        env=variables,
    )


def toolchain_state(path: str, home: Path, env: Mapping[str, str]) -> list[object]:
    """Return values, for a digest, that change when a program on the owner's `path` is installed, replaced or removed,
    or a version manager's is.

    They are times of directories: a program is never written in place. Takes a millisecond where binds take a hundred.
    """
    state: list[object] = [{name: env[name] for name in PASSED_ON if name in env}]
    manager_directories = [home / ".rustup/toolchains", home / ".local/share/uv/python"]
    for entry in dict.fromkeys(path.split(":")):
        state.append([entry, _modified_ns(entry)])
        manager_directories += [Path(entry).parent / name for name in MANAGED]
    for root in dict.fromkeys(manager_directories):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            children = sorted(root.iterdir())
            state.append(
                [str(root), _modified_ns(str(root)), [[str(child), _modified_ns(str(child))] for child in children]]
            )
    settings = (home / ".rustup/settings.toml", Path(env.get("PYENV_ROOT", home / ".pyenv")) / "version")
    return [*state, [_modified_ns(str(file)) for file in settings]]


def _modified_ns(path: str) -> int:
    """Return the time of a path's last change in nanoseconds; 0 when it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class _PathWalk:
    """A walk over PATH entries and virtual environments that collects the paths to show.

    dropped  paths that may not be shown, each with the reason
    """

    def __init__(self, refusals: host_files.PathRefusals, worktree: str, state: str) -> None:
        self._refusals = refusals
        self._worktree = worktree
        self._state = state
        self._shown: dict[str, None] = {}
        self.dropped: dict[str, str] = {}

    def add_path_entry(self, entry: str) -> bool:
        """Show a PATH entry's directory, and what its programs lead to; return whether commands can use the entry.

        Of the system's directories nothing is added, of a toolchain its whole prefix, else the directory itself. One
        that may not be shown is recorded in `dropped`. False for what is no directory or lies in the worktree, too.
        """
        if not os.path.isabs(entry) or not os.path.isdir(entry) or host_files.is_within(entry, self._worktree):
            return False
        directory = os.path.normpath(entry)
        if not (host_files.is_in_system(directory) or self._add_toolchain(directory) or self.add_path(directory)):
            self.dropped[entry] = self._refusals.reason(directory)
            return False
        self._follow_entries(directory)
        return True

    def add_virtual_environment(self, venv: Path) -> None:
        """Show the toolchain of a virtual environment, to which its python links and pyvenv.cfg lead. The agent can
        write both, so only what carries a toolchain's marker counts."""
        for line in _read_lines(venv / "pyvenv.cfg"):
            key, _, value = line.partition("=")
            if key.strip() == "home" and os.path.isabs(value.strip()):
                self._add_toolchain(os.path.normpath(value.strip()))
        for link in sorted(venv.glob("bin/python*")):
            for hop in _link_chain(str(link)):
                self._add_toolchain(os.path.dirname(hop))

    def outermost_paths(self) -> Iterator[str]:
        """Yield what is shown, without what another entry already shows; parents before children."""
        for path in sorted(self._shown):
            if not any(path != other and host_files.is_within(path, other) for other in self._shown):
                yield path

    def add_path(self, path: str) -> bool:
        """Show a directory or file as written and as resolved, because scripts and links use both names; return False,
        and show nothing, when it may not be shown, or this user cannot reach it."""
        if self._refusals.reason(path) or not os.path.exists(path):
            return False
        for name in (path, os.path.realpath(path)):
            if not host_files.is_in_system(name) and not host_files.is_within(name, self._worktree):
                self._shown[name] = None
        return True

    def _follow_entries(self, directory: str) -> None:
        """Show what the entries of a PATH directory lead to: each link of a chain, and the interpreters that absolute
        shebangs name."""
        for name in _outward_targets(directory, self._state):
            if not host_files.is_shown(name, self._shown):
                self._add_target(name)

    def _add_target(self, path: str) -> None:
        """Show what a link or shebang leads to: its toolchain's prefix, else its directory, else the file alone.
        Nothing in the worktree is added. What may not be shown is recorded in `dropped`."""
        directory = os.path.dirname(path)
        if host_files.is_within(path, self._worktree) or self._add_toolchain(directory):
            return
        # A directory that is not called bin may hold anything; in a home only this one file of it is shown.
        may_show_directory = os.path.basename(directory) in host_files.BINARIES or not self._refusals.is_in_home(path)
        if may_show_directory and self.add_path(directory):
            return
        reason = self._refusals.reason(directory)
        if "credentials" in reason or not os.path.isfile(path) or not self.add_path(path):
            self.dropped.setdefault(path, reason or ("is not a file" if os.path.exists(path) else _UNREACHABLE))

    def _add_toolchain(self, directory: str) -> bool:
        """Show the toolchain to which a directory of programs belongs, found by its marker up to MARKER_LEVELS above;
        return False when there is none. True, with nothing added, for a directory of the system."""
        if host_files.is_in_system(directory):
            return True
        if os.path.basename(directory) not in host_files.BINARIES:
            return False
        prefix = directory
        for _ in range(host_files.MARKER_LEVELS):
            prefix = os.path.dirname(prefix)
            if host_files.has_toolchain_marker(prefix) and not self._refusals.reason(prefix):
                return self.add_path(prefix)
        return False


_UNREACHABLE = "is not there, or not for this user"


@functools.lru_cache(maxsize=256)
def _outward_targets(directory: str, state: str) -> tuple[str, ...]:
    """Return the paths to which a directory's links and shebangs lead, outside the system and /etc; empty where it
    cannot be read. `state`: the toolchain_state that the cached answer is for."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return ()
    # Of the system's thousands of scripts none was seen to need an interpreter from elsewhere.
    shebangs = not host_files.is_in_system(directory) or directory.startswith("/usr/local")
    targets = dict[str, None]()
    for entry in entries:
        if entry.is_symlink():
            targets |= dict.fromkeys(_link_chain(entry.path))
        if shebangs and (interpreter := _read_interpreter(entry.path)):
            targets |= dict.fromkeys(
                [*([] if os.path.islink(interpreter) else [interpreter]), *_link_chain(interpreter)]
            )
    return tuple(
        target for target in targets if not host_files.is_in_system(target) and not host_files.is_within(target, "/etc")
    )


def _link_chain(path: str) -> Iterator[str]:
    """Yield every name a path has on its way through links, at most 40 of them, the resolved one last."""
    for _ in range(40):
        try:
            target = os.readlink(path)
        except OSError:
            break
        as_written = os.path.normpath(os.path.join(os.path.dirname(path), target))
        as_resolved = os.path.join(os.path.realpath(os.path.dirname(path)), target)
        path = as_written if os.path.lexists(as_written) else os.path.normpath(as_resolved)
        yield path
    yield os.path.realpath(path)


def _read_interpreter(path: str) -> str:
    """Read a script's first line and return the absolute path of its interpreter. Return '' when it names none, one by
    no absolute path or one of the system, and for what is no regular file or cannot be read; raises nothing."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    parts = first[2:].split() if first.startswith(b"#!") else []
    name = os.fsdecode(parts[0]) if parts else ""
    return name if os.path.isabs(name) and not host_files.is_in_system(name) else ""


def _find_virtual_environments(worktree: Path) -> list[Path]:
    """Find directories with a pyvenv.cfg, at most two levels down, where setup puts them; links are left out."""
    configs = [*worktree.glob("*/pyvenv.cfg"), *worktree.glob("*/*/pyvenv.cfg")]
    return sorted(cfg.parent for cfg in configs if not cfg.parent.is_symlink())


def _read_lines(path: Path) -> list[str]:
    """Read the first 50 lines of a file; none when it cannot be read."""
    try:
        return path.read_text(errors="replace").splitlines()[:50]
    except OSError:
        return []


HOME = "/home/agent"
TMP = "/tmp"  # noqa: S108 the sandbox's own
RUN = "/run"
UNPACKED = "/unpacked"
"""The directory, in memory, for SandboxCommand.unpacked; it exists only where a command has something unpacked."""
CHECKOUTS = Path("/checkout")
"""The directory below which the worktree lies, under its repository's name: no host is known to have one of this
name."""
OTHER_CHECKOUT = Path("/elsewhere/copy")
"""The path at which tests see the worktree where it is to be another than CHECKOUTS."""
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
    """Return a command's environment variables: none of the worker's own; the toolchains', the sandbox's small set,
    settings that keep tools offline where the command has no network, and last, so that they win, those that the
    command was given. `home`, `tmp` and `runtime_dir` are paths as the command sees them."""
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
    """Return a command's PATH: tools installed in the directory it starts in, then those at the worktree's top, as far
    as their directories exist, then the owner's entries; /usr/bin and /bin where there is nothing of these."""
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


COMMAND_NOT_FOUND = 127

_NOT_FOUND_PATTERNS = (
    re.compile(r"(?:^|[:\s])([^\s:'\"‘’]+): (?:command )?not found\s*$", re.M),  # bash, sh
    re.compile(r"^(?:/usr/bin/)?env: [‘'\"]?([^’'\":\s]+)[’'\"]?: No such file or directory", re.M),
    re.compile(r"([^\s:'\"‘’]+): cannot execute: required file not found", re.M),
    re.compile(r"^[^\n]*: ([^\s:]+): No such file or directory\s*$", re.M),
)


def explain_hidden_command(
    output_tail: str, exit_code: int | None, binds: Binds, path: str | None = None
) -> str | None:
    """Return one sentence when a command was not found (exit code 127) that the host has but the sandbox does not show,
    with the reason; None in every other case.

    output_tail  the end of the output, in which the command is named
    path         the owner's PATH; None: this process's
    """
    if exit_code != COMMAND_NOT_FOUND:
        return None
    names = [match for pattern in _NOT_FOUND_PATTERNS for match in pattern.findall(output_tail)]
    for name in reversed(names):
        host_path = shutil.which(name, path=path)
        if host_path and not host_files.is_shown(host_path, binds.prefixes):
            command = os.path.basename(name)
            return (
                f"`{command}` is on the host at {host_path} but not visible in the sandbox: "
                f"{_hidden_reason(host_path, binds)}"
            )
    return None


def _hidden_reason(host_path: str, binds: Binds) -> str:
    """Return the reason why a program of the host is not visible in the sandbox: the PATH entry above it that was
    refused and why, or that it was not on PATH when the toolchains were recorded."""
    for dropped in binds.dropped:
        for name in (host_path, os.path.realpath(host_path)):
            if host_files.is_within(name, os.path.normpath(dropped.entry)):
                return f"{dropped.entry} {dropped.reason}"
    return f"{os.path.dirname(host_path)} was not on PATH, or not there, when the toolchains were recorded after setup"
