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
"""Files that real toolchains were seen to need (Debian), and their names elsewhere; java-* is added."""

UNREAD = ".gz"
"""Most alternatives are links to manual pages."""

OWN = {
    "passwd": "agent:x:65534:65534::/home/agent:/bin/bash\n",
    "group": "agent:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost\n",
    "resolv.conf": "",
    "pip.conf": "",
    "hostname": "sandbox\n",
}
"""Written by us: an unnamed user breaks getpass and node; empty ones are mount points for setup."""

KEPT_S = 7 * 24 * 3600.0
"""An outdated copy may still be mounted by a running sandbox; none runs for a week."""


def private_etc(root: Path, host: Path = Path("/etc")) -> Path:
    """The copy below `root` that fits the host's present /etc; made if need be (some 10 ms, 1 MB). Blocks."""
    wanted = root / _fingerprint(host)
    if wanted.is_dir():
        return wanted
    root.mkdir(parents=True, exist_ok=True)
    fresh = root / f".{wanted.name}.{os.getpid()}.{time.monotonic_ns()}"
    fresh.mkdir()
    try:
        names = list(_names(host))
        shown = {str(host / name) for name in names}
        for name in names:
            (fresh / name).parent.mkdir(parents=True, exist_ok=True)
            _copy(str(host / name), str(fresh / name), shown)
        for name, text in OWN.items():
            (fresh / name).write_text(text)
        os.rename(fresh, wanted)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        if not wanted.is_dir():  # else another process made it first
            raise
    sweep(root, wanted)
    return wanted


def _names(host: Path) -> Iterator[str]:
    yield from ALLOWED
    yield from sorted(path.name for path in host.glob("java-*"))


def _fingerprint(host: Path) -> str:
    """Changes when an allowed entry is replaced, or something in an allowed directory; taken for every command."""
    digest = hashlib.sha256(repr(sorted(OWN.items())).encode())
    for name in _names(host):
        try:
            seen = (host / name).stat()
        except OSError:
            continue
        digest.update(f"{name}\0{seen.st_mtime_ns}\0{seen.st_size}\n".encode())
    return digest.hexdigest()[:16]


def _copy(source: str, target: str, shown: Container[str]) -> None:
    """Copy what can be read; a link stays one where the sandbox can follow it, else its content is copied."""
    try:
        link = os.readlink(source) if os.path.islink(source) else ""
        leads = os.path.normpath(os.path.join(os.path.dirname(source), link))
        if link and (leads.startswith("/usr/") or _within(leads, shown)):
            if not leads.endswith(UNREAD):
                os.symlink(link, target)
        elif os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
            for name in os.listdir(source):
                _copy(f"{source}/{name}", f"{target}/{name}", shown)
        elif os.path.isfile(source):
            shutil.copyfile(source, target)
    except (PermissionError, FileNotFoundError):
        return  # what the owner cannot read, the sandbox need not see


def _within(path: str, shown: Container[str]) -> bool:
    parts = path.split("/")
    return any("/".join(parts[:length]) in shown for length in range(2, len(parts) + 1))


def sweep(root: Path, keep: Path) -> None:
    """Remove what killed workers and older versions left below `root`, except `keep`."""
    for old in root.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if old != keep and time.time() - old.stat().st_mtime > KEPT_S:
                discard(old)
