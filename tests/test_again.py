"""What fails is run once more, and never when it is about secrets or money."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
from pathlib import Path

def fails_once(name):
    runs = Path(name)
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    assert len(runs.read_text()) > 1

def test_a_port_is_free():
    fails_once("port")

def test_no_token_is_in_the_log():
    fails_once("log")
"""


@pytest.mark.parametrize(("chosen", "code"), [("port", 0), ("token", 1), ("port or token", 1)])
def test_a_failed_test_about_secrets_is_not_run_again_and_another_is(tmp_path: Path, chosen: str, code: int) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    first = [sys.executable, "-m", "pytest", "-q", "-k", chosen, "test_it.py"]
    assert subprocess.run(first, cwd=tmp_path, env=env, capture_output=True, timeout=60).returncode == 1
    again = [sys.executable, "-m", "tests.again"]
    ran = subprocess.run(again, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert ran.returncode == code, ran.stdout
    if "token" in chosen:
        assert (tmp_path / "log").read_text() == "x", ran.stdout
        assert "not run again: test_it.py::test_no_token_is_in_the_log" in ran.stdout
    if "port" in chosen:
        assert (tmp_path / "port").read_text() == "xx"
