"""Turns of the agents of the Agent Client Protocol that are installed: in one process, and begun again each turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.agents.presets import read_preset
from perdure.adapters.git.checkpoint import read_turn
from perdure.models.delivery.turn import TurnResult
from tests import needs
from tests.adapters.worker.turn.turn_fixtures import vault, working

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PLAY = """
[[line]]
step = "implement"
lacks = ["def sub"]
use = [{ tool = "bash", input = { command = "echo 'def sub(a, b): return a - b' >> calc.py" } }]
[[line]]
step = "implement"
contains = ["def sub"]
lacks = ["notes.txt"]
use = [{ tool = "write", input = { path = "notes.txt", content = "sub\\n" } }]
[[line]]
step = "implement"
contains = ["notes.txt"]
say = "Add sub"
"""


@pytest.mark.parametrize("agent", [pytest.param(name, marks=pytest.mark.needs(name)) for name in needs.SPOKEN])
@pytest.mark.parametrize("fresh", [False, True], ids=["one process", "begun again each turn"])
async def test_each_turn_is_a_checkpoint_and_every_reply_is_paid_once(agent: str, fresh: bool, tmp_path: Path) -> None:
    config = f'version = 1\n[setup]\ncommands = []\n[steps.implement]\nagent = "{agent}"\n'
    async with working(tmp_path, PLAY, config=config) as bench:
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
        assert (report["repeated"], report["refused"]) == (0, 0)
        assert len([call for call in bench.rehearsal.calls if call.step == "implement"]) == 3
        if read_preset(agent).preset.abilities.resume:
            assert len({read_turn(store, one.checkpoint)["agent"]["session"] for one in results}) == 1
