"""A name that no agent has: refused while the delivery is prepared, with the nearest one, before anything is paid."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from perdure.models.errors import InvalidRequest
from tests.engine import BUILT, HAPPY, Engine, finished, make_target
from tests.waiting import patient

NEAREST = "no agent is called 'clade-code' on this host (did you mean claude-code?)"


async def refused(engine: Engine, origin: Path, id: str, **asked: Any) -> str:
    with pytest.raises(InvalidRequest) as error:
        await finished(await engine.submit(origin, id=id, **{**BUILT, **asked}), engine)
    assert engine.model_calls() == 0
    return str(error.value)


@pytest.mark.timeout(120)
async def test_an_agent_that_nobody_has_is_refused_with_the_nearest_name_and_costs_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    written = BUILT["config"] + '[steps.implement]\nagent = "clade-code"\n'
    async with Engine.open(tmp_path / "engine", HAPPY, ports=ports) as engine:
        engine.worker()
        said = await refused(engine, origin, "written", config=written)
        assert NEAREST in said
        assert "[steps.implement] agent" in said, "the place to correct"
        assert NEAREST in await refused(engine, origin, "asked", agent="clade-code")
        assert not (engine.home.workspace("written") / "spend.jsonl").exists()
        items = [{"id": "one", "request": "Add sub"}]
        raw = {"repository": str(origin), "agent": "clade-code", "items": items, "config": BUILT["config"]}
        submitted = await engine.perdure.submit_backlog(raw, id="night")
        async with asyncio.timeout(patient(60)):
            [item] = (await submitted.backlog.result()).items
        assert item.because.startswith(NEAREST)
        assert engine.model_calls() == 0
