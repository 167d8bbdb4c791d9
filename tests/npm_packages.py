"""Packages of npm, as setup would install them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.needs import require


def installed(directory: Path, *packages: str) -> None:
    """Outside the sandbox; the running test is left out where no registry can be reached."""
    require("npm")
    directory.mkdir(exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", *packages]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {packages}: {done.stderr[-200:]}")
