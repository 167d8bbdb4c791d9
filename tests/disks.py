"""Small disks, for tests of what happens when one is full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, options: str = "size=64m") -> Iterator[Path]:
    """Mount one at a directory, which is made; the test is left out where only root may. `options`: of tmpfs."""
    place.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("ONLY ROOT MAY MOUNT A SMALL DISK")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
