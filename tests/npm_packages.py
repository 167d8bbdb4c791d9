"""Packages of npm, as setup would install them."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.guide import ROOT, snippet
from tests.needs import require


def installed(directory: Path, *packages: str) -> None:
    """Outside the sandbox; the running test is left out where no registry can be reached."""
    require("npm")
    directory.mkdir(exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", *packages]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {packages}: {done.stderr[-200:]}")


def example(shared: pytest.TempPathFactory, home: Path) -> Path:
    """`home` with examples/typescript in it and its packages, which docs/submitting.md's command has fetched once for
    all processes of a run; the running test is left out where they cannot be fetched."""
    require("node", "npm")
    base = shared.getbasetemp()
    place = (base if base.name.startswith("pytest-") else base.parent) / "typescript"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            shutil.copytree(ROOT / "examples/typescript", place, ignore=_MADE, dirs_exist_ok=True)
            words = [*snippet("typescript").partition(" && ")[0].split(), "--no-audit", "--no-fund"]
            try:
                done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=_NPM_S, check=False)
            except subprocess.TimeoutExpired as error:
                pytest.skip(f"the TypeScript example was NOT run: its packages cannot be fetched here: {error}")
            assert not {"EUSAGE", "EINTEGRITY"} & {*done.stderr.split()}, f"the lock does not fit: {done.stderr}"
            if done.returncode:
                said = done.stderr[-300:]
                pytest.skip(f"the TypeScript example was NOT run: its packages cannot be fetched here: {said}")
            (place / "whole").touch()
    shutil.copytree(ROOT / "examples/typescript", home, ignore=_MADE)
    (home / "node_modules").symlink_to(place / "node_modules")
    return home


_MADE = shutil.ignore_patterns("node_modules", "dist")
_NPM_S = 90
