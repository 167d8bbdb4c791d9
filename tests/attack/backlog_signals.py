"""Attacks by a client with a connection to Temporal on what a backlog believes of its items, and the honest signals: of
its own deliveries, and of people."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from temporalio.client import WorkflowHandle

from perdure.client.history.runs import read_runs
from perdure.models.limits import TASK_QUEUE
from tests.attack.clients import GROUP
from tests.attack.stranger_client import QUIET, SIGNALS, forged, stranger
from tests.attack.table import Case, Ground, Seen, held, works
from tests.engine import HAPPY, Engine, make_target, until

_SENT = tuple(name for name in SIGNALS if name != "item_foreseen")
"""What a delivery that is alone sends."""

ATTACKS = {name: f"sends a backlog {name} in a delivery's name" for name in SIGNALS}
FROM_WORKFLOW = "sends a backlog item_ended from a workflow of his own"
HONEST = {name: f"a delivery sends its backlog {name}" for name in _SENT}
HOLDS, DECIDES = "holds a backlog and lets it go on", "approves the plan of a backlog's delivery"


async def _items(night: WorkflowHandle[object, object]) -> tuple[object, object]:
    """What a backlog believes of its items and of the turn to land."""
    state = await night.query("state")
    return state["items"], state.get("landing")


async def _try_all(root: Path) -> dict[str, Seen]:
    """One backlog for all of them: its delivery waits for a person meanwhile, and lands then."""
    origin, seen = make_target(root / "calc.git"), dict[str, Seen]()
    async with Engine.open(root, HAPPY, ports=29000, own_server=True) as engine, stranger(engine) as he:
        engine.worker()
        raw = {"repository": str(origin), "gates": ["plan"], "items": [{"id": "one", "request": "Add sub"}]}
        raw |= {"config": QUIET + '[delivery]\nphases = ["plan", "build"]\n'}
        night = await he.client.start_workflow("Backlog", raw, id="night", task_queue=TASK_QUEUE)

        async def asks() -> bool:
            return bool((await night.query("state"))["items"]["one"].get("waiting", {}).get("gate") == "plan")

        async def notes() -> list[str]:
            return list((await night.query("progress")).get("notes", ()))

        async def is_over() -> bool:
            return bool((await night.query("progress"))["status"] == "ended")

        await until(asks, 100)
        run_id = (await engine.handle("night/one").describe()).run_id
        for name in SIGNALS:
            before = await _items(night)
            await night.signal(name, forged(name, "night/one", run_id))
            seen[ATTACKS[name]] = held(await _items(night) == before, "; ".join((await notes())[-1:]))
        before, content = await _items(night), forged("item_ended", "night/one", run_id)
        await he.starts("Delivery", {"signals": "night", "name": "item_ended", "content": content}, "his", he.queue)
        seen[FROM_WORKFLOW] = held(await _items(night) == before, "; ".join((await notes())[-1:]))
        await night.signal("hold", {"note": "look"})
        is_held = (await night.query("progress"))["held"] == "held: look"
        await night.signal("resume", {})
        seen[HOLDS] = works(is_held and not (await night.query("progress")).get("held"), "held, goes on")
        ignored = await notes()
        await engine.handle("night/one").execute_update("approve", {})
        await until(is_over, 200)
        (item,) = (await night.query("progress"))["items"]
        seen[DECIDES] = works(item["phase"] == "landed", item["phase"])
        sent = {one.name for run in await read_runs(he.client, "night") for one in run.signals if one.sender}
        for name, use in HONEST.items():
            seen[use] = works(name in sent and await notes() == ignored, "sent, and recorded")
    return seen


def _all_tried(at: Ground) -> dict[str, Seen]:
    return asyncio.run(_try_all(Path(tempfile.mkdtemp(dir=at.root))))


def _row(name: str) -> Callable[[Ground], Seen]:
    return lambda at: at.once(_all_tried)[name]


_FORGED, _HONEST = (*ATTACKS.values(), FROM_WORKFLOW), (*HONEST.values(), HOLDS, DECIDES)
CASES = (
    *(Case(GROUP, name, "the backlog believes nothing", _row(name)) for name in _FORGED),
    *(Case(f"honest {GROUP}", name, "that works", _row(name), benign=True) for name in _HONEST),
)
