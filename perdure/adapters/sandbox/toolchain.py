"""Finds the toolchains behind the owner's PATH, so that commands in the sandbox see them and nothing else.

Computed once, after setup and before the first turn, and stored: computed again for each command, an agent could
widen it by what it writes into the worktree.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import Field

from perdure.adapters.sandbox import rules
from perdure.adapters.system.home import Home
from perdure.models.base import HistoryModel

PASSED_ON = ("PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "JAVA_HOME", "GOROOT", "TZ")
"""Variables by which a shim finds its toolchain."""


MANAGED = ("versions", "toolchains", "installs")
"""Directories in which version managers keep what the programs in the directory beside them lead to."""


class Dropped(HistoryModel):
    """A PATH entry (or what one of its links leads to) that commands will not see, and why."""

    entry: str
    reason: str


class Binds(HistoryModel):
    """The parts of the host that a sandbox shows.

    prefixes  directories and single files, shown read-only at their own path
    path      PATH entries, in the owner's order
    env       the owner's variables that the toolchains need
    cache     where setup keeps the packages it downloads, below `cache/` of PERDURE_HOME; "": it keeps none
    """

    prefixes: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cache: str = ""


def compute_binds(
    worktree: Path, path: str, home: Path, env: Mapping[str, str] | None = None, perdure_home: Path | None = None
) -> Binds:
    """Look at the owner's `path` (a PATH string) and at the worktree's virtual environments; execute nothing.

    home          the owner's home directory: never shown, nor an ancestor of it
    env           the owner's environment; None: this process's
    perdure_home  never shown, nor anything in it; None: this process's

    Blocks for some 100 ms, a few where nothing has changed since the last call: call it in a thread.
    """
    env = os.environ if env is None else env
    refusals = rules.Refusals(home, worktree, perdure_home or Home.find().root)
    walk = _Walk(refusals, str(worktree), repr(fingerprint(path, home, env)))
    kept = [entry for entry in dict.fromkeys(path.split(":")) if walk.path_entry(entry)]
    passed = {name: env[name] for name in PASSED_ON if name in env}
    if "RUSTUP_HOME" not in passed and (home / ".rustup" / "toolchains").is_dir():
        passed["RUSTUP_HOME"] = str(home / ".rustup")  # inside, HOME is another directory
    for name in ("RUSTUP_HOME", "JAVA_HOME", "GOROOT"):
        shown = os.path.normpath(passed.get(name, ""))
        if os.path.isabs(shown) and rules.has_marker(shown):
            walk.show(shown)
    for venv in _virtual_environments(worktree):
        walk.virtual_environment(venv)
    return Binds(
        prefixes=tuple(walk.outermost()),
        path=tuple(kept),
        dropped=tuple(Dropped(entry=entry, reason=reason) for entry, reason in walk.dropped.items()),
        env=passed,
    )


def fingerprint(path: str, home: Path, env: Mapping[str, str]) -> list[object]:
    """Changes when a program on the owner's `path` is installed, replaced or removed, or a version manager's is.

    By the times of directories: a program is never written in place. Takes a millisecond where binds take a hundred.
    """
    seen: list[object] = [{name: env[name] for name in PASSED_ON if name in env}]
    managed = [home / ".rustup/toolchains", home / ".local/share/uv/python"]
    for entry in dict.fromkeys(path.split(":")):
        seen.append([entry, _changed(entry)])
        managed += [Path(entry).parent / name for name in MANAGED]
    for root in dict.fromkeys(managed):
        if root.is_dir():
            seen.append(
                [str(root), _changed(str(root)), [[str(one), _changed(str(one))] for one in sorted(root.iterdir())]]
            )
    settings = (home / ".rustup/settings.toml", Path(env.get("PYENV_ROOT", home / ".pyenv")) / "version")
    return [*seen, [_changed(str(file)) for file in settings]]


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


class _Walk:
    def __init__(self, refusals: rules.Refusals, worktree: str, asked: str) -> None:
        self._refusals = refusals
        self._worktree = worktree
        self._asked = asked
        self._shown: dict[str, None] = {}
        self.dropped: dict[str, str] = {}

    def path_entry(self, entry: str) -> bool:
        """Rule 2: keep what the system has, show a toolchain's whole prefix, else the directory itself."""
        if not os.path.isabs(entry) or not os.path.isdir(entry) or rules.within(entry, self._worktree):
            return False
        directory = os.path.normpath(entry)
        if not (rules.in_system(directory) or self._show_marked(directory) or self.show(directory)):
            self.dropped[entry] = self._refusals.why(directory)
            return False
        self._follow_entries(directory)
        return True

    def virtual_environment(self, venv: Path) -> None:
        """Rule 4: links and pyvenv.cfg are the agent's to write, so only what carries a marker counts."""
        for line in _lines(venv / "pyvenv.cfg"):
            key, _, value = line.partition("=")
            if key.strip() == "home" and os.path.isabs(value.strip()):
                self._show_marked(os.path.normpath(value.strip()))
        for link in sorted(venv.glob("bin/python*")):
            for hop in _chain(str(link)):
                self._show_marked(os.path.dirname(hop))

    def outermost(self) -> Iterator[str]:
        """Yield what is shown, without what another entry already shows; parents before children."""
        for path in sorted(self._shown):
            if not any(path != other and rules.within(path, other) for other in self._shown):
                yield path

    def show(self, path: str) -> bool:
        """Show a directory as written and as resolved: scripts and links use both names."""
        if self._refusals.why(path):
            return False
        for name in (path, os.path.realpath(path)):
            if not rules.in_system(name) and not rules.within(name, self._worktree):
                self._shown[name] = None
        return True

    def _follow_entries(self, directory: str) -> None:
        """Rule 3: what the entries of a PATH directory lead to, each link of the chain, and absolute shebangs."""
        for name in _leading_out(directory, self._asked):
            if not rules.shown(name, self._shown):
                self._show_file(name)

    def _show_file(self, path: str) -> None:
        directory = os.path.dirname(path)
        if rules.within(path, self._worktree) or self._show_marked(directory):
            return
        # A directory that is not called bin may hold anything; in a home it stays unseen, but for this one file.
        whole = os.path.basename(directory) in rules.BINARIES or not self._refusals.in_home(path)
        if whole and self.show(directory):
            return
        reason = self._refusals.why(directory)
        if "credentials" in reason or not os.path.isfile(path) or not self.show(path):
            self.dropped.setdefault(path, reason or "is not a file")

    def _show_marked(self, directory: str) -> bool:
        if rules.in_system(directory):
            return True
        if os.path.basename(directory) not in rules.BINARIES:
            return False
        prefix = directory
        for _ in range(rules.REACH):
            prefix = os.path.dirname(prefix)
            if rules.has_marker(prefix) and not self._refusals.why(prefix):
                return self.show(prefix)
        return False


@functools.lru_cache(maxsize=256)
def _leading_out(directory: str, asked: str) -> tuple[str, ...]:
    """Return where a directory's entries lead, outside the system and /etc. `asked`: the fingerprint it answers to."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return ()
    # Of the system's thousands of scripts none was seen to need an interpreter from elsewhere.
    shebangs = not rules.in_system(directory) or directory.startswith("/usr/local")
    found = dict[str, None]()
    for entry in entries:
        if entry.is_symlink():
            found |= dict.fromkeys(_chain(entry.path))
        if shebangs and (interpreter := _interpreter(entry.path)):
            found |= dict.fromkeys([*([] if os.path.islink(interpreter) else [interpreter]), *_chain(interpreter)])
    return tuple(name for name in found if not rules.in_system(name) and not rules.within(name, "/etc"))


def _chain(path: str) -> Iterator[str]:
    """Every name a path has on its way through links, the resolved one last."""
    for _ in range(40):
        try:
            target = os.readlink(path)
        except OSError:
            break
        lexical = os.path.normpath(os.path.join(os.path.dirname(path), target))
        real = os.path.join(os.path.realpath(os.path.dirname(path)), target)
        path = lexical if os.path.lexists(lexical) else os.path.normpath(real)
        yield path
    yield os.path.realpath(path)


def _interpreter(path: str) -> str:
    """The absolute interpreter a script's first line names, outside the system; ''."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith(b"#!") else []
    name = os.fsdecode(words[0]) if words else ""
    return name if os.path.isabs(name) and not rules.in_system(name) else ""


def _virtual_environments(worktree: Path) -> list[Path]:
    """Directories with a pyvenv.cfg, at most two levels down: where setup puts them."""
    found = [*worktree.glob("*/pyvenv.cfg"), *worktree.glob("*/*/pyvenv.cfg")]
    return sorted(cfg.parent for cfg in found if not cfg.parent.is_symlink())


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()[:50]
    except OSError:
        return []
