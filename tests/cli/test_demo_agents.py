"""Agents with a command line deliver the demo's request, every step of it, though their worker is killed twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.waiting import patient

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param("claude-code", marks=pytest.mark.needs("claude")),
        pytest.param("codex", marks=pytest.mark.needs("codex")),
        *(pytest.param(name, marks=pytest.mark.needs(name)) for name in needs.SPOKEN),
    ],
)
def test_one_pull_request_comes_out_of_two_deaths_and_no_reply_is_paid_twice(agent: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "perdure.cli", "demo", "--agent", agent, "--fast", "--yes", "--json", "--keep"]
    done = subprocess.run(
        [*words, str(tmp_path / "demo")], capture_output=True, text=True, timeout=patient(480), check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    receipt = result["receipt"]
    assert result["status"] == "delivered"
    assert (receipt["worker_deaths"], receipt["replies_paid_twice"]) == (2, 0)
