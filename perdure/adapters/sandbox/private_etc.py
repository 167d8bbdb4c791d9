"""A private /etc for sandboxes: an allow-listed copy, made once per host.

The host's own would show /etc/shadow to a root worker's commands (host root is mapped to their user), and index
credentials in pip.conf, npmrc and environment to everyone's.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Container, Iterator
from pathlib import Path

from perdure.adapters.system.removal import discard

ALLOWED = (
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "nsswitch.conf", "localtime", "timezone"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "ca-certificates", "ca-certificates.conf", "crypto-policies"),
    *("pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "pki/ca-trust/extracted", "pki/java"),
    *("fonts", "chromium.d", "maven", "mime.types", "locale.alias", "bash.bashrc", "inputrc", "terminfo"),
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
    """Return the directory below `root` that holds a copy of the host's present /etc; make it if need be (some 10 ms, 1
    MB), and remove old ones then.

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
    """Copy a file or a directory with all below it to `target`, as far as it can be read. A link stays a link where the
    sandbox can follow it (into /usr or to an allowed path), and is left out when it leads to a manual page; else its
    content is copied. What the owner cannot read is left out."""
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
