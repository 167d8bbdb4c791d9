"""A model that refuses is followed by a second one, in a conversation of its own; a killed worker changes nothing."""

from __future__ import annotations

from pathlib import Path

from perdure.models.crash import CrashPoint
from tests.engine import BUILT, Engine, finished, git, make_target

FIRST, SECOND = "claude-sonnet-5-5", "claude-opus-5-5"

PLAY = f"""
title = "refused halfway"
[[line]]
step = "implement"
turn = 1
model = "{FIRST}"
think = "It is a small thing."
use = [{{ tool = "bash", input = {{ command = "printf '\\n\\ndef sub(a, b):\\n    return a - b\\n' >> calc.py" }} }}]
[[line]]
step = "implement"
model = "{FIRST}"
fault = "refusal"
times = 9
[[line]]
step = "implement"
model = "{SECOND}"
contains = ["The model that worked on this up to here could not go on", "+def sub(a, b):"]
say = "Add sub"
"""


async def test_it_goes_on_where_the_first_one_stood_and_the_refusal_is_paid_once(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    config = BUILT["config"] + f'[delivery]\nfallback = "{SECOND}"\n'
    env = {"PERDURE_CRASH_AT": CrashPoint.DURING_COMPACTION}
    async with Engine.open(tmp_path, PLAY, ports=ports, env=env) as engine:
        engine.kept()
        submitted = await engine.submit(origin, **{**BUILT, "config": config})
        result = await finished(submitted, engine)
        assert result.status == "delivered", result.message
        assert (result.receipt.worker_deaths, result.receipt.replies_paid_twice) == (1, 0)
        assert engine.rehearsal is not None
        asked = [(call.body["model"], call.outcome) for call in engine.rehearsal.calls]
        assert asked == [(FIRST, "reply"), (FIRST, "refusal"), (SECOND, "reply")]
        assert len(engine.rehearsal.calls[-1].body["messages"]) == 1, "what the first one has thought stays with it"
        [built] = [step for step in result.steps if step.step == "implement"]
        assert (built.summary, built.turns) == (f"with {SECOND} · Add sub", 3)
        state = await engine.perdure.delivery("calc-sub").read_page("turns")
        assert f"goes on with {SECOND}: the model refused (general_harms)" in state.text
    assert git(origin, "show", f"{result.branch}:calc.py").endswith("def sub(a, b):\n    return a - b")
