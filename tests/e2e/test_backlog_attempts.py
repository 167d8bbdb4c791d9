"""Items of a backlog that are built several times: the best attempt lands, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.e2e.test_attempts import LARGE, RED, SUB, TESTS, attempt, tools_run
from tests.e2e.test_backlogs import CONFIG, ended
from tests.engine import Engine, git, heads, make_target, until

PAUSE = "touch in-the-middle && sleep 5 && rm in-the-middle"
HELLO = "echo hello > hello.txt"
STORY = "".join(
    (
        attempt('["This is attempt 1 of", "Add sub"]', PAUSE, SUB, RED),
        attempt('["This is attempt 2 of", "Add sub"]', PAUSE, SUB, TESTS, LARGE),
        attempt('["This is attempt 3 of", "Add sub"]', PAUSE, SUB, TESTS),
        attempt('["This is attempt 2 of", "Say hello"]', HELLO, say="Say hello"),
        attempt('["Say hello"]', HELLO, RED, say="Say hello"),
    )
)


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_the_best_attempt_at_an_item_lands_and_a_worker_killed_in_the_middle_changes_nothing(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    items = [
        {"id": "sub", "request": "Add sub", "attempts": 3},
        {"id": "hello", "request": "Say hello", "after_red": True, "depends_on": ["sub"]},
    ]
    asked = {"repository": str(origin), "items": items, "config": CONFIG, "attempts": 2, "parallel": 1}
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        handle = await engine.client.start_workflow("Backlog", asked, id="night", task_queue=TASK_QUEUE)
        await until(lambda: tools_run(engine, 3), timeout=90)
        engine.kill_workers()
        engine.worker()
        progress = await ended(handle, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "landed"], progress
        assert heads(origin).keys() == {"main", "perdure/night"}
        told = "--format=%(trailers:key=Perdure-Item,valueonly,separator=%x2C)"
        assert git(origin, "log", "--reverse", told, "main..perdure/night").split() == ["sub", "hello"]
        code = git(origin, "show", "perdure/night:calc.py")
        assert "def sub" in code
        assert "# four" not in code
        assert "a + b" in code
        sub = await engine.perdure.delivery("night/sub").result()
        assert [(one.number, one.tests) for one in sub.attempts] == [(1, "red"), (2, "green"), (3, "green")]
        assert [one.delivery for one in sub.attempts if one.chosen] == ["night/sub/attempt-3"]
        assert sub.receipt.worker_deaths >= 1
        assert sub.receipt.replies_paid_twice == 0
        hello = await engine.perdure.delivery("night/hello").result()
        assert [(one.delivery, one.tests, one.chosen) for one in hello.attempts] == [
            ("night/hello", "red", False),
            ("night/hello/attempt-2", "green", True),
        ]
        ran = await asyncio.to_thread(
            Cli(engine.home.root, engine.root, engine.env), "backlog", "report", "night", "--json"
        )
        receipt = json.loads(ran.out)["receipt"]
        assert (receipt["landed"], receipt["lost"], receipt["twice"], receipt["ownerless"]) == (2, [], [], []), ran.out


ASKS = (
    """
[[line]]
step = "implement"
turn = 1
contains = ["This is attempt 2 of"]
use = [{ tool = "ask", input = { text = "Which greeting?", kind = "text", why = "There are several." } }]
[[line]]
step = "implement"
turn = 2
contains = ["This is attempt 2 of"]
use = [{ tool = "bash", input = { command = "echo hello > hello.txt" } }]
"""
    + attempt('["This is attempt 2 of"]', HELLO, say="Say hello")
    + attempt('["This is attempt 1 of"]', HELLO, RED, say="Say hello")
)


@pytest.mark.timeout(200)
async def test_what_an_attempt_at_an_item_asks_is_shown_at_the_backlog(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    asked = {"repository": str(origin), "items": [{"id": "hello", "request": "Say hello", "attempts": 2}]}
    async with Engine.open(tmp_path, ASKS, ports=ports) as engine:
        engine.worker()
        request = {**asked, "config": CONFIG}
        handle = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)

        async def shown() -> bool:
            [item] = (await handle.query("progress"))["items"]
            return "night/hello/attempt-2 waits: question: Which greeting?" in item.get("because", "")

        await until(shown, timeout=90)
        cli = Cli(engine.home.root, engine.root, engine.env)
        ran = await asyncio.to_thread(cli, "answer", "night/hello/attempt-2", "hello")
        assert ran.code == 0, ran
        progress = await ended(handle, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed"], progress
