"""A long conversation is made shorter twice, dies on the way, and ends well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.adapters.worker.turn.builtin_agent import SUMMED_UP
from perdure.models.crash import CrashPoint
from perdure.rehearsal.record import REHEARSAL_BODIES_KEPT
from tests.engine import BUILT, Engine, finished, git, make_target

WINDOW = 45_000
"""Tokens: at 1,350 a turn fifty turns, at 305 two hundred, fill it two times."""


def _screenplay(turns: int, numbers: int) -> str:
    """Each turn says where it is in a file and in its result: the model goes on from what it is shown last."""
    lines = ['title = "long"']
    for n in range(turns, 0, -1):
        asks = f"last = '(?m)^\\+?at {n}$'\n"
        if n == turns:
            lines.append(f"[[line]]\nstep = 'implement'\n{asks}say = 'Count to {n}'\n")
            continue
        lines.append(f"[[line]]\nstep = 'implement'\n{asks}{_use(n + 1, numbers)}")
    lines.append(f"[[line]]\nstep = 'implement'\n{_use(1, numbers)}")
    lines.append("[[line]]\nstep = 'classify'\nanswer = { kind = 'feature', reason = 'new' }\n")
    return "\n".join(lines)


def _use(n: int, numbers: int) -> str:
    command = f"echo at {n} | tee at.txt; seq 1 {numbers} | tr -d '\\n'"
    return f"use = [{{ tool = 'bash', input = {{ command = {json.dumps(command)} }} }}]\n"


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("turns", "numbers"), [(50, 1600), pytest.param(200, 350, marks=pytest.mark.slow)])
async def test_it_is_made_shorter_twice_and_survives_a_death_on_the_way(
    turns: int, numbers: int, tmp_path: Path, ports: int
) -> None:
    env = {"PERDURE_MODEL_WINDOW": str(WINDOW), "PERDURE_CRASH_AT": CrashPoint.DURING_COMPACTION}
    config = BUILT["config"] + f"[limits]\nturns_per_step = {turns + 20}\ntime = '5h'\n"
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, _screenplay(turns, numbers), ports=ports, env=env) as engine:
        engine.kept()
        submitted = await engine.submit(origin, **{**BUILT, "config": config})
        result = await finished(submitted, engine, timeout=800)
        assert result.status == "delivered", result.message
        assert result.receipt.worker_deaths == 1
        assert result.receipt.replies_paid_twice == 0
        assert engine.rehearsal is not None
        asked = sum("compaction" in call.body for call in engine.rehearsal.calls)
        assert asked == 2 or turns > REHEARSAL_BODIES_KEPT, "once each, though the worker died with one of them"
        assert len(engine.rehearsal.calls) <= turns + 5, "a reply was asked for twice"
        [vault] = engine.home.root.glob("vaults/*.git")
        made = git(vault, "log", "--all", "--format=%s%n%b").count(SUMMED_UP)
        assert made == 2
