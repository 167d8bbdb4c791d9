"""Rules for a host's directories that may be shown to untrusted commands, without the walking."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Iterator
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Shown whole. Nothing private lives there: every user of a host may read it."""

MARKERS = (
    "pyvenv.cfg",
    "lib/node_modules/npm",
    "include/node/node.h",
    "pkg/tool",
    "lib/rustlib",
    "lib/modules",
    "lib/ruby",
    "conda-meta",
    "libexec/pyenv",
    "toolchains",
)
"""Files that only the root of an installed toolchain contains; Python's is a pattern: lib/python3.*/os.py."""

TOO_BROAD = frozenset(
    {
        *("/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/nix", "/opt", "/private", "/proc", "/root"),
        *("/run", "/srv", "/sys", "/tmp", "/Users", "/Volumes", "/var", "/var/cache", "/var/home", "/var/lib"),  # noqa: S108
        *("/var/local", "/var/log", "/var/run", "/var/tmp"),  # noqa: S108
    }
)

PRIVATE = frozenset({".ssh", ".aws", ".azure", ".config", ".docker", ".kube", ".gnupg", ".cache", ".claude", ".gcloud"})
"""Directories of credentials and of other programs' state: nothing below them without a toolchain marker."""

BINARIES = frozenset({"bin", "sbin", "shims"})

REACH = 4
"""Levels above a PATH entry at which its toolchain's root may be (pyenv's plugins: four)."""


def in_system(path: str) -> bool:
    return any(path == root or path.startswith(root + "/") for root in SYSTEM)


def within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def shown(path: str, prefixes: Collection[str]) -> bool:
    """Shown under both of its names: a link in the middle of a path is a name of its own."""
    return all(
        in_system(name) or any(within(name, prefix) for prefix in prefixes) for name in (path, os.path.realpath(path))
    )


def has_marker(directory: str) -> bool:
    if any(os.path.exists(os.path.join(directory, marker)) for marker in MARKERS):
        return True
    return any(Path(directory).glob("lib/python3.*/os.py"))


class Refusals:
    """Says why a directory may not be shown, or ''. Asked for a path as written and again as resolved."""

    def __init__(self, home: Path, worktree: Path, perdure_home: Path) -> None:
        homes = {str(home), os.path.realpath(home), *_homes()}
        self._homes = {one for one in homes if one not in ("/", "/nonexistent") and not in_system(one)}
        self._worktree = {str(worktree), os.path.realpath(worktree)}
        self._perdure = {str(perdure_home), os.path.realpath(perdure_home)}

    def why(self, directory: str) -> str:
        return self._why(directory) or self._why(os.path.realpath(directory))

    def _why(self, directory: str) -> str:
        if directory in TOO_BROAD or len(Path(directory).parts) < 2:
            return "holds more than a toolchain"
        if any(within(one, directory) for one in self._homes):
            return "is a home directory or holds one"
        if any(directory in (f"{one}/.local", f"{one}/.local/share", f"{one}/.local/state") for one in self._homes):
            return "holds the state of other programs"
        if any(within(one, directory) for one in self._worktree):
            return "holds the worktree"
        if any(within(one, directory) or within(directory, one) for one in self._perdure):
            return "is Perdure's own"
        if PRIVATE & set(Path(directory).parts) and not has_marker(directory):
            return "is a place for credentials and carries no toolchain"
        return ""

    def in_home(self, path: str) -> bool:
        return any(within(path, one) for one in self._homes)


def _homes() -> Iterator[str]:
    for user in pwd.getpwall():
        yield user.pw_dir.rstrip("/") or "/"
