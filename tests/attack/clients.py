"""Attacks by a client with a connection to Temporal alone: it starts, sends and calls, and nothing is published."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.attack.stranger_client import QUIET, Stranger, made_up, stranger
from tests.attack.table import Case, Ground, Seen, held
from tests.engine import HAPPY, Engine, git, heads, make_target, pulls, until

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


async def _delivers(he: Stranger, seen: dict[str, Any]) -> str:
    raw = {"repository": seen["origin"], "request": "Add sub", "phases": ["build", "ship"], "config": QUIET}
    he.engine.worker()
    try:
        result = await he.starts("Delivery", raw, "honest")
        return f"{result['status']}: {result['branch']}"
    finally:
        he.engine.end_workers()


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
}


async def _try_all(root: Path) -> dict[str, Seen]:
    """One engine for all of them, and what each of them was told."""
    origin, seen, told = make_target(root / "calc.git"), dict[str, Any](), dict[str, Seen]()
    async with Engine.open(root, HAPPY, ports=29000, own_server=True) as engine, stranger(engine) as he:
        engine.worker()
        await (await engine.submit(origin, id="built", phases=["build"], config=QUIET)).delivery.result()
        asked = {"phases": ["build", "ship"], "gates": ["pull_request"], "config": QUIET}
        waiting = (await engine.submit(origin, id="waits", **asked)).delivery

        async def waits() -> bool:
            return (await waiting.describe()).pending_decision is not None

        await until(waits, 100)
        run = (await engine.handle("built").describe()).run_id
        seen = {**await he.reads("waits"), "run": run, "origin": str(origin), "base": git(origin, "rev-parse", "main")}
        for name, attack in _TRIES.items():
            if name.endswith("our queue"):
                engine.end_workers()
            before = heads(origin), pulls(origin)
            try:
                words = await attack(he, seen)
            except AssertionError as error:
                words = str(error)
            told[name] = held((heads(origin), pulls(origin)) == before, words)
        words = await _delivers(he, seen)
        told["starts a delivery of an allowed repository"] = held(
            "delivered" in words and "perdure/honest" in heads(origin), words
        )
    return told


def _all_tried(at: Ground) -> dict[str, Seen]:
    return asyncio.run(_try_all(Path(tempfile.mkdtemp(dir=at.root))))


def _row(name: str) -> Callable[[Ground], Seen]:
    return lambda at: at.once(_all_tried)[name]


CASES = (
    *(Case(GROUP, name, "refused, nothing published", _row(name)) for name in _TRIES),
    Case(
        GROUP,
        "starts a delivery of an allowed repository",
        "delivered: that works",
        _row("starts a delivery of an allowed repository"),
    ),
)
