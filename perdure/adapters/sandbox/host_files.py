"""The files of this host that untrusted commands may see: rules for its directories, without the walking, and a private
/etc, an allow-listed copy made once per host. Used by the other modules here and by the browser's.

The host's own /etc would show /etc/shadow to a root worker's commands (host root is mapped to their user), and index
credentials in pip.conf, npmrc and environment to everyone's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shutil
import time
from collections.abc import Collection, Container, Iterator
from pathlib import Path

from perdure.adapters.system.directories import discard

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
    """Return whether a directory is the root of an installed toolchain, by a file that only such a root contains; False
    where this user may not look."""
    if any(os.path.exists(os.path.join(directory, marker)) for marker in MARKERS):
        return True
    with contextlib.suppress(PermissionError):
        return any(Path(directory).glob("lib/python3.*/os.py"))
    return False


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
        directory or holds one"; '' when it may. Refused are also broad directories, the worktree, PERDURE_HOME, and
        places of credentials without a toolchain."""
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


ALLOWED = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "localtime", "timezone"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "pki/java"),
    *("fonts", "chromium.d", "maven", "php", "mime.types", "locale.alias", "bash.bashrc", "inputrc", "terminfo"),
    *("services", "protocols", "os-release"),
)
"""Entries of /etc that real toolchains were seen to need (Debian), and their names elsewhere; java-* is added."""

MANUAL_PAGE_SUFFIX = ".gz"
"""The suffix of manual pages, to which most of /etc/alternatives links; these links are left out."""

OWN_FILES = {
    "passwd": "agent:x:65534:65534::/home/agent:/bin/bash\n",
    "group": "agent:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n",
    "resolv.conf": "",
    "pip.conf": "",
    "hostname": "sandbox\n",
}
"""Files that we write ourselves, by name: an unnamed user breaks getpass and node; empty ones are mount points for
setup."""

KEEP_S = 7 * 24 * 3600.0
"""Seconds for which an outdated copy is kept: a running sandbox may still have it mounted, and none runs for a week."""


def prepare_private_etc(root: Path, host: Path = Path("/etc")) -> Path:
    """Return the directory below `root` that holds a private /etc: the allowed entries of the host's, as they are now,
    and our own files; make it if need be (some 10 ms, 1 MB), and remove old ones then.

    Safe when several processes do it at once. Raises OSError when the copy cannot be made. Blocks.
    """
    target = root / _host_digest(host)
    if target.is_dir():
        return target
    root.mkdir(parents=True, exist_ok=True)
    unfinished = root / f".{target.name}.{os.getpid()}.{time.monotonic_ns()}"
    unfinished.mkdir()
    try:
        names = list(_allowed_names(host))
        allowed = {str(host / name) for name in names}
        for name in names:
            (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
            _copy_readable(str(host / name), str(unfinished / name), allowed)
        for name, text in OWN_FILES.items():
            (unfinished / name).write_text(text)
        os.rename(unfinished, target)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if not target.is_dir():  # else another process made it first
            raise
    remove_outdated(root, target)
    return target


def _allowed_names(host: Path) -> Iterator[str]:
    """Yield the names in /etc that are copied: the allowed ones, and every java-*."""
    yield from ALLOWED
    yield from sorted(path.name for path in host.glob("java-*"))


def _host_digest(host: Path) -> str:
    """Return a digest of the allowed entries' names, times and sizes, and of our own files. It changes when an entry is
    replaced, or something in an allowed directory; computed for every command."""
    digest = hashlib.sha256(repr(sorted(OWN_FILES.items())).encode())
    for name in _allowed_names(host):
        try:
            status = (host / name).stat()
        except OSError:
            continue
        digest.update(f"{name}\0{status.st_mtime_ns}\0{status.st_size}\n".encode())
    return digest.hexdigest()[:16]


def _copy_readable(source: str, target: str, allowed: Container[str]) -> None:
    """Copy a file or a directory with all below it to `target`. What this process's user may not read, and what is not
    there, is left out without an error.

    A link into /usr or to an allowed path stays a link, or is left out when it leads to a manual page; in place of any
    other link, what it leads to is copied. Raises OSError for any other failure.
    """
    try:
        link = os.readlink(source) if os.path.islink(source) else ""
        link_target = os.path.normpath(os.path.join(os.path.dirname(source), link))
        if link and (link_target.startswith("/usr/") or _is_within(link_target, allowed)):
            if not link_target.endswith(MANUAL_PAGE_SUFFIX):
                os.symlink(link, target)
        elif os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                _copy_readable(f"{source}/{name}", f"{target}/{name}", allowed)
        elif os.path.isfile(source):
            shutil.copyfile(source, target)
    except (PermissionError, FileNotFoundError):
        return  # what the owner cannot read, the sandbox need not see


def _is_within(path: str, allowed: Container[str]) -> bool:
    """Return whether a path is one of the allowed ones or lies below one."""
    parts = path.split("/")
    return any("/".join(parts[:length]) in allowed for length in range(2, len(parts) + 1))


def remove_outdated(root: Path, keep: Path) -> None:
    """Remove entries of `root` older than KEEP_S, but never `keep`: killed workers and earlier versions have left
    them."""
    for entry in root.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if entry != keep and time.time() - entry.stat().st_mtime > KEEP_S:
                discard(entry)
