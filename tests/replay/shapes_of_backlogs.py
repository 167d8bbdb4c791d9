"""Shapes of backlogs, their deliveries, and the stacks that they leave."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.models.delivery.result import DeliveryResult
from perdure.models.ids import stack_workflow_id
from perdure.models.limits import TASK_QUEUE
from tests.e2e.test_attempts import RED, SUB, TESTS, attempt
from tests.e2e.test_backlogs import CONFIG, ITEMS, STORY, night
from tests.engine import Engine, git, heads, make_target, until
from tests.replay.shapes_of_people import PORTS, Keep


async def backlog(root: Path, keep: Keep) -> None:
    """With a conflict that is mended, a failure, and what it blocks."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, STORY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await night(engine, origin)
        await handle.result()
        await keep(handle, "backlog")
        for item in ("sub", "mul"):
            delivered = await engine.handle(f"night/{item}").result()
            mended = any(step.step == "fix_landing" for step in DeliveryResult.model_validate(delivered).steps)
            await keep(engine.handle(f"night/{item}"), "landed-after-a-conflict" if mended else "landed")


async def moved_base(root: Path, keep: Keep) -> None:
    """One that follows its base, and a stack of which the lowest was merged."""
    origin = make_target(root / "calc.git")
    chain = [{name: value for name, value in item.items() if name != "check"} for item in (ITEMS[0], ITEMS[4])]
    asked: dict[str, Any] = {"repository": str(origin), "items": chain, "config": CONFIG}
    async with Engine.open(root, STORY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await engine.client.start_workflow("Backlog", asked, id="night", task_queue=TASK_QUEUE)
        await until(lambda: "perdure/night" in heads(origin))
        hers = git(origin, "commit-tree", "-p", "main", "-m", "hers", "main^{tree}")
        git(origin, "update-ref", "refs/heads/main", hers)
        await handle.result()
        await keep(handle, "followed")
        handle = await engine.client.start_workflow(
            "Backlog", {**asked, "land": "stack"}, id="stack", task_queue=TASK_QUEUE
        )
        await until(lambda: "perdure/stack-sub-" in " ".join(heads(origin)))
        first = next(sha for name, sha in heads(origin).items() if name.startswith("perdure/stack-sub-"))
        git(origin, "update-ref", "refs/heads/main", first)
        await handle.result()
        await keep(handle, "stacked")
        await keep(engine.handle("stack/hello"), "delivered-in-a-stack")


DECOMPOSED = """
[[line]]
step = "decompose"
answer = { items = [
  { id = "sub", request = "Add subtract", depends_on = [], touches = [], check = [], role = "", priority = 0 },
  { id = "mul", request = "Add multiply", depends_on = ["sub"], touches = [], check = [], role = "", priority = 0 },
] }
"""


async def decomposed(root: Path, keep: Keep) -> None:
    """A large request: rejected once and approved, both at the backlog."""
    origin = make_target(root / "calc.git")
    async with Engine.open(root, DECOMPOSED + STORY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await night(engine, origin, items=[{"id": "big", "request": "Calculate", "decompose": "ask"}])

        async def waits(behind: str = "") -> str:
            items = (await handle.query("progress")).get("items")
            of = str(items[0].get("of", "")) if items else ""
            return "" if of == behind else of

        of = await until(waits)
        await handle.execute_update("reject", {"item": "big", "of": of, "note": "as few as make sense"})
        await until(lambda: waits(of))
        await keep(engine.handle("night/big"), "waiting-at-items")
        await keep(handle, "backlog-waiting-at-items")
        await handle.execute_update("approve", {"item": "big"})
        await handle.result()
        await keep(handle, "backlog-decomposed")
        await keep(engine.handle("night/big"), "decomposed")


CROWDED = (
    """
[[line]]
step = "classify"
answer = { kind = "feature", reason = "new" }
[[line]]
step = "plan"
answer = { title = "Do it", problem = "It is not done.", solution = "Do it.", relevant_files = ["hello.txt"], tasks = [
  { title = "Do it", details = "All of it.", files = ["hello.txt"], depends_on = [] },
], validation = ["it is done"] }
[[line]]
step = "fix_landing"
turn = 1
contains = ["Tidy up"]
use = [{ tool = "bash", input = { command = "test -e tried && echo hello > hello.txt || echo once > tried" } }]
"""
    + STORY
)


async def crowded(root: Path, keep: Keep) -> None:
    """One delivery of the repository at a time; plans that name files; a landing that is mended twice, then in its
    turn."""
    origin = make_target(root / "calc.git")
    items = [{"id": "hello", "request": "Say hello", "check": ["test -f hello.txt"]}]
    items += [{"id": "tidy", "request": "Tidy up", "depends_on": ["hello"]}]
    phases = '["build", "test", "ship"]'
    config = CONFIG.replace("[limits]", "[limits]\ndeliveries = 1").replace(phases, phases.replace("[", '["plan", '))
    async with Engine.open(root, CROWDED, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await night(engine, origin, items=items, config=config)
        await handle.result()
        await keep(handle, "backlog-crowded")
        delivered = DeliveryResult.model_validate(await engine.handle("night/tidy").result())
        mends = [step for step in delivered.steps if step.step == "fix_landing"]
        assert len(mends) == 2, delivered
        await keep(engine.handle("night/tidy"), "landed-in-its-turn")


TRIED = attempt('["This is attempt 1 of", "Add sub"]', SUB, RED) + attempt(
    '["This is attempt 2 of", "Add sub"]', SUB, TESTS
)


async def tried_items(root: Path, keep: Keep) -> None:
    """An item that is built twice, of which the second lands."""
    origin = make_target(root / "calc.git")
    items = [{"id": "sub", "request": "Add sub", "attempts": 2}]
    async with Engine.open(root, TRIED, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await night(engine, origin, items=items, config=CONFIG)
        await handle.result()
        landed = DeliveryResult.model_validate(await engine.handle("night/sub").result())
        assert [one.number for one in landed.attempts if one.chosen] == [2], landed
        await keep(handle, "backlog-with-attempts")
        await keep(engine.handle("night/sub"), "item-with-attempts")


async def left(root: Path, keep: Keep) -> None:
    """A stack that nobody has merged when its backlog ends: it is followed."""
    origin = make_target(root / "calc.git")
    chain = [{name: value for name, value in item.items() if name != "check"} for item in (ITEMS[0], ITEMS[4])]
    asked: dict[str, Any] = {"repository": str(origin), "items": chain, "config": CONFIG, "land": "stack"}
    async with Engine.open(root, STORY, ports=PORTS, own_server=True) as engine:
        engine.worker()
        handle = await engine.client.start_workflow("Backlog", asked, id="left", task_queue=TASK_QUEUE)
        await handle.result()
        await keep(handle, "backlog-that-left-a-stack")
        followed = engine.handle(stack_workflow_id("left", (await handle.describe()).run_id or ""))

        async def sleeps() -> bool:
            return "timerStartedEventAttributes" in (await followed.fetch_history()).to_json()

        await until(sleeps)
        await keep(followed, "stack-followed")
