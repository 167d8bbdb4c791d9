"""One phase alone, through the command line: each on a branch that a person made and pushed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.cli.conftest import Cli, Ran
from tests.lab import FIXES, git, heads, pulls


@pytest.fixture
def topic(origin: Path) -> str:
    """Ada's branch: add is broken on it, and there is a sub without a docstring."""
    work = origin.with_name(f"{origin.name}-work")
    git(work, "switch", "-qc", "topic")
    (work / "calc.py").write_text("def add(a, b):\n    return a - b\n\n\ndef sub(a, b):\n    return a - b\n")
    git(work, "commit", "-qam", "Subtract numbers")
    git(work, "push", "-q", str(origin), "topic")
    return heads(origin)["topic"]


@pytest.fixture
async def perdure(cli: Cli) -> AsyncIterator[Cli]:
    """With a rehearsal as the model; whatever the commands have started is ended by `perdure down`."""
    async with Rehearsal(Screenplay.parse(FIXES)) as rehearsal:
        cli.env.update(
            ANTHROPIC_BASE_URL=rehearsal.url,
            ANTHROPIC_API_KEY="rehearsal",
            PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # this environment's pytest in sight
            PERDURE_SQLITE_SYNCHRONOUS="1",
            PERDURE_PORTS_BACKEND="23300-23314",
            PERDURE_PORTS_FRONTEND="23400-23414",
        )
        try:
            yield cli
        finally:
            ended = await asyncio.to_thread(cli, "down")
            assert ended.code == 0, ended.err


async def ran(cli: Cli, *args: str, code: int = 0) -> Ran:
    """A command that ends with `code`. In a thread, for the rehearsal answers from this one."""
    done: Ran = await asyncio.to_thread(cli, "run", *args)
    assert done.code == code, (args, done)
    return done


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_each_phase_works_alone_on_somebodys_branch(
    perdure: Cli, origin: Path, topic: str, tmp_path: Path
) -> None:
    by_test = tmp_path / "pytest.toml"
    command = f"{sys.executable} -m pytest -q"
    by_test.write_text(f"version = 1\n[setup]\ncommands = []\n[[test]]\nname = 'unit'\ncommand = '{command}'\n")
    red = await ran(perdure, "test", "--branch", "topic", "--config", str(by_test), code=1)
    assert f"(topic at {topic[:7]}, against main at " in red.out
    assert f"tests of {topic[:7]}, compared with main\n✗ unit: failed, exit code 1, 1 failed\n" in red.out
    assert "\n  ✗ tests/test_calc.py::AddTest::test_adds\n" in red.out
    assert "AssertionError: -1 != 5" in red.out
    assert "-m pytest tests/test_calc.py::AddTest::test_adds\n" in red.out, "to repeat it"
    assert "\nNot delivered  tests are red: 1 of 1 fails: test_adds\n" in red.out

    planned = await ran(perdure, "plan", "--request", "Add sub")
    assert planned.out.startswith("# Add sub\n\n## Problem\n"), "nothing but the plan"
    assert "✓ plan " in planned.err
    plan = tmp_path / "plan.md"
    plan.write_text(planned.out)

    review = ("review", "--branch", "topic", "--plan", str(plan))
    reviewed = await ran(perdure, *review, code=1)
    assert "\nreview: 1 blocker, 1 tech debt, 0 skippable\n" in reviewed.out
    assert "\n✗ blocker: sub has no docstring  calc.py:5\n" in reviewed.out
    assert reviewed.out.index("✗ blocker") < reviewed.out.index("! tech debt")
    assert heads(origin)["topic"] == topic, "nothing was asked to be changed"

    mended = json.loads((await ran(perdure, *review, "--fix", "--json")).out)
    assert (mended["status"], mended["message"]) == ("completed", "2 commits pushed to topic")
    steps = [step["step"] for step in mended["steps"]]
    assert steps.index("fix_review") < len(steps) - 1 - steps[::-1].index("run_tests"), "each fix is tested again"
    assert mended["found"]["report"]["commit"] == mended["head_sha"] == heads(origin)["topic"]
    assert [issue["severity"] for issue in mended["found"]["review"]["issues"]] == ["tech_debt"]
    assert git(origin, "rev-list", "--count", f"{topic}..topic") == "2"
    assert pulls(origin) == []

    shipped = await ran(perdure, "ship", "--branch", "topic", "--request", "Subtract numbers")
    assert f"\nDraft  {origin}#pull/1" in shipped.out
    assert [(pull["head"], pull["title"]) for pull in pulls(origin)] == [("topic", "chore: subtract numbers")]

    untested = tmp_path / "untested.toml"
    untested.write_text("version = 1\ntest = []\n[setup]\ncommands = []\n")
    nothing = await ran(perdure, "test", "--branch", "topic", "--config", str(untested), code=1)
    assert nothing.err.startswith("error: nothing was tested: no test command is known\n")
