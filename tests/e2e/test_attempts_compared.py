"""Attempts at one plan beside each other; what goes back is their delivery, what stands alone is a fork."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_attempts import LARGE, NO_FIXES, SUB, TESTS, story

from perdure.client.delivery.rewinding import fork, rewind
from perdure.models.delivery.comparison import Comparison
from perdure.models.errors import BadInput
from tests.commands import perdure
from tests.engine import Engine, finished, make_target, pulls, until


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_two_attempts_are_compared_and_their_delivery_is_what_goes_back(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, story((SUB, TESTS, LARGE), (SUB, TESTS)), ports=ports) as engine:
        engine.worker()
        submitted = await engine.submit(origin, attempts=2, config=NO_FIXES)
        first = await finished(submitted, engine, 200)
        assert first.status == "delivered", first.message
        ids = [one.delivery for one in first.attempts]
        beside = Comparison.model_validate_json(await perdure(engine, "compare", *ids, "--json"))
        assert beside.related == "attempts of calc-sub"
        assert {one.path: one.same for one in beside.files} == {"calc.py": False, "tests/test_sub.py": True}
        assert beside.left_delivery.added == beside.right_delivery.added + 4

        one = engine.perdure.delivery(ids[0])
        with pytest.raises(BadInput, match="an attempt is begun and chosen by its delivery"):
            await rewind(one, "implement:1")
        alone = await fork(one, "implement:2", id="alone")
        assert (await asyncio.wait_for(alone.delivery.result(), 120)).status == "completed"

        back = await rewind(submitted.delivery, "plan:1", say="once more")
        await until(lambda: _other(engine, back.run_id), 30)
        again = await asyncio.wait_for(submitted.delivery.result(), 200)
        assert (again.status, again.run_id) == ("delivered", back.run_id), again.message
        assert [pull["head"] for pull in pulls(origin)] == ["perdure/calc-sub"]


async def _other(engine: Engine, run: str) -> bool:
    return (await engine.perdure.delivery("calc-sub").describe()).run_id == run
