"""Turns of Gemini CLI by the Agent Client Protocol: in one process, and begun again at each checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.checkpoint import read_turn
from perdure.models.turn import TurnResult
from tests.adapters.worker.turn.turn_fixtures import vault, working

pytestmark = [pytest.mark.long, pytest.mark.needs("gemini")]

PLAY = """
[[line]]
step = "implement"
lacks = ["def sub"]
use = [{ tool = "run_shell_command", input = { command = "echo 'def sub(a, b): return a - b' >> calc.py" } }]
[[line]]
step = "implement"
contains = ["def sub"]
lacks = ["notes.txt"]
use = [{ tool = "write_file", input = { file_path = "notes.txt", content = "sub\\n" } }]
[[line]]
step = "implement"
contains = ["notes.txt"]
say = "Add sub"
"""
CONFIG = 'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "gemini"\n'


@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "begun again each turn"])
async def test_each_turn_is_a_checkpoint_and_every_reply_is_paid_once(fresh: bool, tmp_path: Path) -> None:
    async with working(tmp_path, PLAY, config=CONFIG) as bench:
        results: list[TurnResult] = []
        checkpoint = bench.prepared.checkpoint
        while not results or results[-1].outcome is None:
            host = bench.again() if fresh else bench.host
            results.append(await bench.take(bench.work(len(results) + 1, checkpoint), host=host))
            checkpoint = results[-1].checkpoint
            assert len(results) < 8
        assert results[-1].outcome is not None
        assert results[-1].outcome.summary == "Add sub"
        store = vault(bench)
        files = [store.git.text("ls-tree", "-r", "--name-only", one.checkpoint) for one in results]
        assert ["notes.txt" in one for one in files] == [False, True, True]
        report = bench.rehearsal.report()
        assert (report["replies"], report["repeated"], report["refused"]) == (3, 0, 0)
        assert int(read_turn(store, results[0].checkpoint)["agent"]["allowed"]) == 1
