"""Rules for a host's directories that may be shown to untrusted commands, without the walking."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection, Iterator
from pathlib import Path

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Directories that are shown whole. Nothing private lies there: every user of a host may read it."""

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
"""Directories of credentials and of other programs' state: nothing below them is shown without a toolchain marker."""

BINARIES = frozenset({"bin", "sbin", "shims"})

MARKER_LEVELS = 4
"""Levels above a PATH entry at which its toolchain's root may be (pyenv's plugins: four)."""


def is_in_system(path: str) -> bool:
    """Return whether a path is one of the directories in SYSTEM or lies below one."""
    return any(path == root or path.startswith(root + "/") for root in SYSTEM)


def is_within(path: str, root: str) -> bool:
    """Return whether a path is `root` or lies below it."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def is_shown(path: str, prefixes: Collection[str]) -> bool:
    """Return whether a path is shown, as written and as resolved: both have to lie in the system's directories or below
    one of `prefixes`. A link in the middle of a path makes it a path of its own."""
    return all(
        is_in_system(name) or any(is_within(name, prefix) for prefix in prefixes)
        for name in (path, os.path.realpath(path))
    )


def has_toolchain_marker(directory: str) -> bool:
    """Return whether a directory is the root of an installed toolchain, by a file that only such a root contains."""
    if any(os.path.exists(os.path.join(directory, marker)) for marker in MARKERS):
        return True
    return any(Path(directory).glob("lib/python3.*/os.py"))


class PathRefusals:
    """Decides which directories may not be shown to commands, and says why."""

    def __init__(self, home: Path, worktree: Path, perdure_home: Path) -> None:
        """Keep the users' home directories, the worktree and PERDURE_HOME, each as written and as resolved."""
        homes = {str(home), os.path.realpath(home), *_user_homes()}
        self._homes = {path for path in homes if path not in ("/", "/nonexistent") and not is_in_system(path)}
        self._worktree = {str(worktree), os.path.realpath(worktree)}
        self._perdure = {str(perdure_home), os.path.realpath(perdure_home)}

    def reason(self, directory: str) -> str:
        """Return the reason why a directory may not be shown, as written or as resolved; '' when it may."""
        return self._reason_for_name(directory) or self._reason_for_name(os.path.realpath(directory))

    def _reason_for_name(self, directory: str) -> str:
        """Return the reason why a directory may not be shown under this name, as a predicate such as "is a home
        directory or holds one"; '' when it may."""
        if directory in TOO_BROAD or len(Path(directory).parts) < 2:
            return "holds more than a toolchain"
        if any(is_within(path, directory) for path in self._homes):
            return "is a home directory or holds one"
        if any(directory in (f"{path}/.local", f"{path}/.local/share", f"{path}/.local/state") for path in self._homes):
            return "holds the state of other programs"
        if any(is_within(path, directory) for path in self._worktree):
            return "holds the worktree"
        if any(is_within(path, directory) or is_within(directory, path) for path in self._perdure):
            return "is Perdure's own"
        if PRIVATE & set(Path(directory).parts) and not has_toolchain_marker(directory):
            return "is a place for credentials and carries no toolchain"
        return ""

    def is_in_home(self, path: str) -> bool:
        """Return whether a path lies in a user's home directory."""
        return any(is_within(path, home) for home in self._homes)


def _user_homes() -> Iterator[str]:
    """Yield the home directories of all accounts."""
    for user in pwd.getpwall():
        yield user.pw_dir.rstrip("/") or "/"
