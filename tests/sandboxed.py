"""Small repositories on disk, and the sandbox their commands run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import SandboxUnavailable
from tests.command_fixtures import Bench
from tests.homes import fresh_home
from tests.project_files import Files


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Make a directory with these files in it: relative path → text. A text that begins with `#!` can be run."""

    def make(contents: Mapping[str, str]) -> Path:
        root = tmp_path / "repository"
        root.mkdir(exist_ok=True)
        for name, text in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755 if text.startswith("#!") else 0o644)
        return root

    return make


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """The real sandbox, with this Python and its pytest in sight; without isolation where this host has none."""
    (tmp_path / "repository").mkdir(exist_ok=True)
    home = fresh_home(tmp_path / "home")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    binds = compute_binds(tmp_path / "repository", path, Path.home(), perdure_home=home.root)
    try:
        return sandbox_for(SandboxGrade.FULL, home, binds)
    except SandboxUnavailable:
        return sandbox_for(SandboxGrade.OFF, home, binds)


@pytest.fixture
def bench(sandbox: Sandbox, tmp_path: Path) -> Bench:
    return Bench(sandbox, tmp_path / "logs")
