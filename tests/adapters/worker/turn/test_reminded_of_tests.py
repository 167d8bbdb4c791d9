"""A step that ends with edits no test has seen gets one more turn for a word about it, where there is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from turn_fixtures import working

from perdure.models.delivery.turn import Ending

EDITS = """
[[line]]
step = "implement"
turn = 1
use = [{ tool = "write", input = { path = "new.py", content = "x = 1" } }]
[[line]]
step = "implement"
turn = 2
say = "Add x"
"""


@pytest.mark.parametrize(("most", "turns"), [(60, 3), (2, 2)])
async def test_it_is_told_once_and_never_in_its_last_turn(tmp_path: Path, most: int, turns: int) -> None:
    config = f"version = 1\n[limits]\nturns_per_step = {most}\n"
    async with working(tmp_path, EDITS, config=config) as bench:
        checkpoint, outcomes = bench.prepared.checkpoint, []
        for turn in range(1, turns + 1):
            result = await bench.take(bench.work(turn, checkpoint))
            checkpoint = result.checkpoint
            outcomes.append(result.outcome)
        assert outcomes[:-1] == [None] * (turns - 1)
        last = outcomes[-1]
        assert last is not None
        assert (last.ending, last.summary) == (Ending.DONE, "Add x")
        said = [str(call.body["messages"][-1]) for call in bench.rehearsal.calls]
        assert sum("Not tested since your last edit" in words for words in said) == turns - 2
