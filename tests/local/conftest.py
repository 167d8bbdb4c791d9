"""A home of its own for every test, and the end of every process that was started for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from perdure.adapters.system.home import Home

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    root = tmp_path / "home"
    monkeypatch.setenv("PERDURE_HOME", str(root))
    monkeypatch.setenv("PERDURE_SQLITE_SYNCHRONOUS", "1")
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", os.devnull)  # not the profile of whoever runs the tests
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # a detached supervisor does not start in the repository
    yield Home(root)
    started = [process for process in psutil.process_iter() if _belongs_to(process, root)]
    for process in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(started, timeout=10)


def _belongs_to(process: psutil.Process, root: Path) -> bool:
    """Started for this home: it has the home in its arguments or its environment."""
    try:
        if process.pid == os.getpid():
            return False
        return process.environ().get("PERDURE_HOME") == str(root) or any(
            str(root) in a for a in (process.cwd(), *process.cmdline())
        )
    except psutil.Error:
        return False
