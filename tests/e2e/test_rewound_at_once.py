"""Two people who rewind the same delivery in the same instant: one rewind stands, whole, and the other one says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.adapters.worker.journal import SpendLog
from perdure.client import Delivery
from perdure.client.delivery.rewinding import rewind
from perdure.client.delivery.turns import turns
from perdure.models.errors import PerdureError
from tests.e2e.test_rewind_killed import ID, REQUEST, STORY, TURNS, waiting
from tests.engine import Engine, make_target

MOMENTS = ({"ada": 2, "grace": 3}, {"ada": 3, "grace": 2}, {"ada": 2, "grace": 2}) * 2
"""The turn that each of them goes back to."""


async def checkpoints(delivery: Delivery) -> list[str]:
    return [one.checkpoint for one in await turns(delivery) if one.step == "implement"]


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_of_two_rewinds_in_the_same_instant_one_stands_whole_and_who_sent_the_other_is_told(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        delivery = (await engine.submit(origin, "Add notes", **REQUEST)).delivery
        run = await waiting(engine)
        assert engine.rehearsal is not None
        for number, moment in enumerate(MOMENTS):
            before, calls = await checkpoints(delivery), engine.model_calls()
            sent = [rewind(delivery, f"implement:{n}", say=f"{who} in {number}") for who, n in moment.items()]
            ends = dict(zip(moment, await asyncio.gather(*sent, return_exceptions=True), strict=True))
            for end in ends.values():
                if isinstance(end, BaseException):
                    assert isinstance(end, PerdureError), end
                    assert "in another run meanwhile" in end.what or "same moment, and stands" in end.what
            run = await waiting(engine, run)
            newest = json.dumps(engine.rehearsal.calls[-1].body)
            (heard,) = [who for who in moment if f"{who} in {number}" in newest]
            assert not isinstance(ends[heard], BaseException), "who is heard was told that another one stands"
            after, back = await checkpoints(delivery), moment[heard] - 1
            assert (len(after), after[:back]) == (TURNS, before[:back])
            assert after[back] != before[back], "not the turn of who is heard"
            assert engine.model_calls() - calls <= 2 * TURNS
        twice, _ = SpendLog(engine.home.workspace(ID)).count_repeats()
        assert twice == 0  # the run that does not stand is ended, also while it waits for a reply
        await delivery.cancel()
