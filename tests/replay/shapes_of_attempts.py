"""The shapes of a delivery whose plan is built several times, and of one of these builds."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.test_attempts import NO_FIXES, RED, REVIEW, SUB, TESTS, attempt, story
from tests.engine import Engine, finished, make_target
from tests.replay.shapes_of_people import PORTS, Keep


async def attempts(root: Path, keep: Keep) -> None:
    """Both at once, of which one is red; and the other only after the delivery's own was."""
    origin = make_target(root / "calc.git")
    own = attempt('["Add sub, later"]', SUB, RED)
    does = story((SUB, RED), (SUB, TESTS)).replace(REVIEW, "") + own + REVIEW
    asked = {"attempts": 2, "config": NO_FIXES}
    async with Engine.open(root, does, ports=PORTS, own_server=True) as engine:
        engine.worker()
        result = await finished(await engine.submit(origin, **asked), engine, 200)
        assert [one.number for one in result.attempts if one.chosen] == [2]
        await keep(engine.handle(), "attempts")
        await keep(engine.handle("calc-sub/attempt-1"), "attempt-red")
        await keep(engine.handle("calc-sub/attempt-2"), "attempt")
        later = await engine.submit(origin, "Add sub, later", id="later", after_red=True, **asked)
        result = await finished(later, engine, 200)
        assert [one.delivery for one in result.attempts] == ["later", "later/attempt-2"], result
        await keep(engine.handle("later"), "attempts-after-red")
