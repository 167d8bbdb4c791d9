"""Attacks by a client with a connection to Temporal alone: it starts, sends and calls, and nothing is published."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from perdure.client.budgets import add_to_budget, put_rules, read_budget_table
from perdure.client.delivery.handle import Delivery
from perdure.models.budget.treasury import TREASURY, BudgetRule
from perdure.models.limits import TASK_QUEUE
from tests.attack.stranger_client import QUIET, Stranger, made_up, stranger
from tests.attack.table import Case, Ground, Seen, held
from tests.engine import HAPPY, Engine, git, heads, make_target, pulls, until
from tests.receiver import Receiver

GROUP = "client of Temporal"

Try = Callable[[Stranger, dict[str, Any]], Awaitable[str]]


def _resumes(**resume: Any) -> Try:
    """A delivery that is said to go on: tested, reviewed, on a branch of the stranger's."""

    async def start(he: Stranger, seen: dict[str, Any]) -> str:
        fork = {"delivery": "waits", "at": "implement:1", "queue": seen["prepare"]["queue"]}
        fork["checkpoint"] = seen["prepare"]["checkpoint"]
        forked = {"forked": fork} if not resume else {}
        resumed = {"run_id": seen["run"] if resume else "", "state": made_up(seen), **resume}
        raw = {"repository": seen["origin"], "request": "Add sub", "config": QUIET, "resume": resumed, **forked}
        return await he.refused("Delivery", raw, "built" if resume else "his-fork")

    return start


def _calls(name: str, how: str, **work: Any) -> Try:
    """An activity that publishes: from a workflow of his own, from none, or from one on our queue."""

    async def call(he: Stranger, seen: dict[str, Any]) -> str:
        head, base, tree = seen["commit"]["commit"], seen["base"], seen["commit"]["tree"]
        given = {"delivery": "waits", "policy": seen["prepare"]["policy"], "workflow_id": "waits", "title": "Any"}
        given |= {"head": head, "commit": head, "onto": base, "base": "main", "branch": seen["prepare"]["branch"]}
        given |= {"place": {"backlog": "night", "item": "one", "branch": "release"}, "body": "", "base_sha": base}
        given |= {"backlog": "night", "repository": seen["origin"], "backlog_request": {"repository": seen["origin"]}}
        given |= {"tests": {"status": "green", "passed": 4321, "tree": tree}} | work
        return str(await getattr(he, how)(name, given, seen["prepare"]["queue"]))

    return call


async def _works_first(he: Stranger, seen: dict[str, Any]) -> str:
    """A made-up state that is said to be known: his own worker has carried out an activity of that delivery."""
    resumed = {"run_id": seen["run"], "state": made_up(seen)}
    raw = {"repository": seen["origin"], "request": "Add sub", "config": QUIET, "resume": resumed}
    backlog = {"backlog": "night", "repository": seen["origin"], "backlog_request": {"repository": seen["origin"]}}
    return await he.calls_as_ours("make_branch", {**backlog, "branch": "release"}, seen["prepare"]["queue"], raw, own=1)


async def _tells(he: Stranger, seen: dict[str, Any]) -> str:
    """A notice of his own words to the addresses of the host."""
    notice = {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "built", "delivery_id": "built"}
    notice |= {"run_id": "r", "repository": "/r", "request": "x", "summary": "his words"}
    he.engine.worker()
    return await he.refused("Notification", notice, "built.notice")


async def _shares(he: Stranger, seen: dict[str, Any]) -> str:
    """Budgets of his own, as what the Treasury is said to know."""
    table = {"rules": {"label:his": {"usd_per_day": 1e6}}}
    handle = await he.client.start_workflow("Treasury", table, id=TREASURY, task_queue=TASK_QUEUE)
    known = await read_budget_table(he.engine.client)
    await handle.terminate()
    assert not known.rules, f"its table is his: {known.rules}"
    return "it knows no budgets"


async def _spends(he: Stranger, seen: dict[str, Any]) -> str:
    """What a delivery is said to have paid of a shared budget: by his client, and by a workflow of his own."""
    await put_rules(he.engine.client, [BudgetRule(label="team-a", usd_per_day=5.0)])
    he.engine.worker()
    request = {"delivery": "waits", "seq": 1, "rules": {"label:team-a": 5.0}, "settled": 1e6}
    await he.client.get_workflow_handle(TREASURY).signal("reserve", request)
    call = {"signals": TREASURY, "name": "reserve", "content": request}
    await he.starts("Delivery", call, f"his-{uuid.uuid4()}", he.queue)
    known = await read_budget_table(he.engine.client)
    await he.client.get_workflow_handle(TREASURY).terminate()
    assert not known.leases, f"the delivery is said to have paid: {known.leases}"
    assert known.rules["label:team-a"].spent == 0
    return "nothing is spent"


async def _begins_again(he: Stranger, seen: dict[str, Any]) -> str:
    """His words under the id of a delivery that has ended, for its owner to go on with."""
    raw = {"repository": seen["origin"], "request": "His words", "resume": {"run_id": "", "state": made_up(seen)}}
    told = await he.refused("Delivery", raw, "stopped")
    await he.engine.perdure.delivery("stopped").retry()
    request = (await he.engine.perdure.delivery("stopped").request())["request"]
    await he.engine.handle("stopped").terminate()
    assert request == "Add sub", f"it goes on with {request!r}"
    return told


async def _delivers(he: Stranger, seen: dict[str, Any]) -> str:
    raw = {"repository": seen["origin"], "request": "Add sub", "phases": ["build", "ship"], "config": QUIET}
    result = await he.starts("Delivery", raw, "honest")
    assert result["status"] == "delivered", result
    return f"{result['status']}: {result['branch']}"


_TRIES: dict[str, Try] = {
    "a made-up state that is said to be continued": _resumes(continued=True),
    "a made-up state of an ended run": _resumes(rewound=""),
    "a made-up state before a turn": _resumes(rewound="implement:1"),
    "a made-up state of another delivery": _resumes(),
    "pushes a branch from a workflow of his own": _calls("push_branch", "calls", branch="hijacked"),
    "opens a pull request from a workflow of his own": _calls("open_pull_request", "calls"),
    "moves a branch from a workflow of his own": _calls("land", "calls"),
    "moves a backlog's branch from a workflow of his own": _calls("move_branch", "calls", branch="release"),
    "pushes a branch without a workflow": _calls("push_branch", "calls_alone"),
    "pushes another branch, on our queue": _calls("push_branch", "calls_as_ours", branch="hijacked"),
    "pushes a commit with made-up tests, on our queue": _calls("push_branch", "calls_as_ours"),
    "opens a pull request with made-up tests, on our queue": _calls("open_pull_request", "calls_as_ours"),
    "lands on a branch of his choice, on our queue": _calls("land", "calls_as_ours"),
    "takes work of his own from our queue": _works_first,
    "sends a notice of his own": _tells,
    "begins the Treasury with budgets of his own": _shares,
    "spends a shared budget in the name of a delivery": _spends,
    "begins another run of an ended delivery, which is retried": _begins_again,
}


async def _is_told(he: Stranger, seen: dict[str, Any]) -> str:
    """The delivery that is delivered tells of its end itself."""
    await until(lambda: any(told.json["delivery_id"] == "honest" for told in seen["receiver"].told), 60)
    return "told of its end"


async def _divides(he: Stranger, seen: dict[str, Any]) -> str:
    """The budgets of a worker's configuration."""
    await put_rules(he.engine.client, [BudgetRule(label="team-a", usd_per_day=5.0)])

    async def has_rules() -> bool:
        return (await read_budget_table(he.engine.client)).rules.keys() == {"label:team-a"}

    await until(has_rules, 60)
    return "divides label:team-a"


async def _adds(he: Stranger, seen: dict[str, Any]) -> str:
    """More of a shared budget for today, as a person decides."""
    await add_to_budget(he.engine.client, "label:team-a", 5)

    async def has_more() -> bool:
        return (await read_budget_table(he.engine.client)).rules["label:team-a"].limit == 10

    await until(has_more, 60)
    return "10 dollars today"


async def _goes_on(he: Stranger, seen: dict[str, Any]) -> str:
    """The delivery that a stranger began again under its id."""
    delivery = he.engine.perdure.delivery("stopped")
    await delivery.retry()

    async def waits() -> bool:
        return (await delivery.describe()).pending_decision is not None

    await until(waits, 100)
    await he.engine.handle("stopped").execute_update("approve", {})
    return f"{(await delivery.result()).status} after a retry"


_BENIGN: dict[str, Try] = {
    "starts a delivery of an allowed repository": _delivers,
    "is told of the end of a delivery": _is_told,
    "has budgets divided that a configuration names": _divides,
    "adds to a shared budget": _adds,
    "goes on with a delivery and approves it": _goes_on,
}


async def _try_all(root: Path) -> dict[str, Seen]:
    """One engine for all of them, and what each of them was told."""
    origin, seen, told = make_target(root / "calc.git"), dict[str, Any](), dict[str, Seen]()
    async with (
        Receiver.open() as receiver,
        Engine.open(root, HAPPY, ports=29000, own_server=True, env={"PERDURE_WEBHOOK_URL": receiver.url}) as engine,
        stranger(engine) as he,
    ):
        engine.worker()
        await (await engine.submit(origin, id="built", phases=["build"], config=QUIET)).delivery.result()
        asked = {"phases": ["build", "ship"], "gates": ["pull_request"], "config": QUIET}
        for id in ("stopped", "waits"):
            waiting = (await engine.submit(origin, id=id, **asked)).delivery

            async def waits(delivery: Delivery = waiting) -> bool:
                return (await delivery.describe()).pending_decision is not None

            await until(waits, 100)
        await engine.handle("stopped").cancel()
        await engine.perdure.delivery("stopped").result()
        run = (await engine.handle("built").describe()).run_id
        seen = {**await he.reads("waits"), "run": run, "origin": str(origin), "base": git(origin, "rev-parse", "main")}
        seen["receiver"] = receiver
        for name, attack in _TRIES.items():
            if name.endswith("our queue"):
                engine.end_workers()
            before, is_refused, count = (heads(origin), pulls(origin)), True, len(receiver.told)
            try:
                words = await attack(he, seen)
            except AssertionError as error:
                is_refused, words = False, str(error)
            his_words = [one for one in receiver.told[count:] if b"his words" in one.body]
            is_held = is_refused and (heads(origin), pulls(origin)) == before and not his_words
            told[name] = held(is_held, words)
        engine.end_workers()
        engine.worker()
        for name, use in _BENIGN.items():
            words = await use(he, seen)
            told[name] = held(words, words)
        published = {"perdure/honest", "perdure/stopped"} <= heads(origin).keys()
        told["goes on with a delivery and approves it"] = held(published, words)
    return told


def _all_tried(at: Ground) -> dict[str, Seen]:
    return asyncio.run(_try_all(Path(tempfile.mkdtemp(dir=at.root))))


def _row(name: str) -> Callable[[Ground], Seen]:
    return lambda at: at.once(_all_tried)[name]


CASES = (
    *(Case(GROUP, name, "refused, nothing published", _row(name)) for name in _TRIES),
    *(Case(GROUP, name, "that works", _row(name), benign=True) for name in _BENIGN),
)
