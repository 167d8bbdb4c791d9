"""Packages of npm, as setup would install them."""

from __future__ import annotations

import subprocess

import pytest
from experiment_bench import Trials

from tests.needs import require


def installed(trials: Trials, *packages: str) -> None:
    """Outside the sandbox; the running test is left out where no registry can be reached."""
    require("npm")
    trials.worktree.mkdir(exist_ok=True)
    words = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--no-package-lock", *packages]
    done = subprocess.run(words, cwd=trials.worktree, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"npm cannot install {packages}: {done.stderr[-200:]}")
