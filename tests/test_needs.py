"""Where a program is missing its tests are left out, and one line at the end says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import NO_GROUP, missing, summary

ROOT = Path(__file__).parents[1]


def test_one_line_names_what_is_missing_how_many_tests_that_concerns_and_what_to_paste() -> None:
    assert summary(["Skipped: NEEDS chromium", "NEEDS node npm", "NEEDS node", "only root may mount a small disk"]) == (
        "LEFT OUT, tests that need a program: chromium (1), node (2), npm (1); "
        "to run them: sudo apt-get install -y chromium nodejs npm"
    )
    assert summary(["no keys here"]) == ""
    assert summary(["NEEDS claude"]).endswith("claude (1); to run them: make agents")
    assert summary([f"Skipped: {NO_GROUP}"] * 2).startswith(
        "LEFT OUT, tests of limits that the kernel holds (2); to run"
    )


def test_a_test_whose_program_is_not_here_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert missing("node", "npm") == "NEEDS node npm"
    marked = "tests/adapters/sandbox/test_sandbox_toolchain.py::test_node_tests_run_inside"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", marked]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout
    assert "LEFT OUT, tests that need a program: node (1)" in ran.stdout
