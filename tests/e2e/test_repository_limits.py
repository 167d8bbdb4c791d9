"""Limits over all deliveries and backlogs of a repository, with a real worker: waited for visibly, then gone on."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from perdure.models.delivery.steps import AGENTIC
from perdure.models.limits import TASK_QUEUE
from tests.e2e.test_backlogs import CONFIG, ITEMS, STORY, ended
from tests.engine import Engine, finished, git, make_target
from tests.waiting import patient

LIMITS = CONFIG.replace("[limits]", "[limits]\nopen_pull_requests = 1\ndeliveries = 1").replace('"test", ', "")


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_one_pull_request_and_one_delivery_at_a_time_for_all_that_a_repository_is_asked_for(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        first = await finished(await engine.submit(origin, "Say hello", id="first", config=LIMITS), engine)
        assert first.pull_request is not None
        request = {"repository": str(origin), "items": [ITEMS[0], ITEMS[1]], "config": LIMITS}
        night = await engine.client.start_workflow("Backlog", request, id="night", task_queue=TASK_QUEUE)
        shown = await seen(night, lambda progress: progress.get("waiting", "").startswith("1 pull"), engine)
        assert shown["waiting"] == "1 pull request is open (limit 1)"
        assert {item["phase"] for item in shown["items"]} == {"ready"}
        git(origin, "update-ref", "refs/heads/main", git(origin, "rev-parse", "refs/pull/1/head"))  # merged
        progress = await ended(night, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "landed"]
        ones, others = sorted([await worked(engine, f"night/{item['id']}") for item in (ITEMS[0], ITEMS[1])])
        assert ones[1] <= others[0], "the second one's first turn was asked for before the first one made room"


async def worked(engine: Engine, id: str) -> tuple[datetime, datetime]:
    """A delivery's first turn, and when it made room for others, by its history: as it ended, or began to wait for its
    turn to land, which it does not get at once on a busy machine."""
    first: list[datetime] = []
    async for event in engine.client.get_workflow_handle(id).fetch_history_events():
        at, asked = event.event_time.ToDatetime(), event.activity_task_scheduled_event_attributes.activity_type.name
        first += [at] if asked in AGENTIC else []
        shown = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
        if first and b"waiting" in shown["PerdureStatus"].data:
            break
    return first[0], at


async def seen(handle: Any, what: Any, engine: Engine) -> dict[str, Any]:
    progress: dict[str, Any] = {}
    try:
        async with asyncio.timeout(patient(60)):
            while not what(progress := await handle.query("progress")):
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{progress}\n{engine.worker_log()[-3000:]}") from None
    return progress


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_items_of_a_stack_open_their_pull_requests_as_there_is_room_for_them(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, STORY, ports=ports) as engine:
        engine.worker()
        config = LIMITS.replace("\ndeliveries = 1", "")
        request = {
            "repository": str(origin),
            "items": [ITEMS[0], {"id": "hello", "request": "Say hello"}],
            "config": config,
        }
        night = await engine.client.start_workflow(
            "Backlog", {**request, "land": "stack"}, id="night", task_queue=TASK_QUEUE
        )
        words = ("1 pull request is open (limit 1)", "pull requests: 1 is in the making (limit 1)")
        shown = await seen(night, lambda progress: waits(progress, words), engine)
        assert len(git(origin, "for-each-ref", "refs/pull/*/head").splitlines()) <= 1
        shown = await seen(night, lambda _: git(origin, "for-each-ref", "refs/pull/1/head"), engine)
        assert waits(shown, words)
        git(origin, "update-ref", "refs/heads/main", git(origin, "rev-parse", "refs/pull/1/head"))  # merged
        progress = await ended(night, engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "landed"]


def waits(progress: dict[str, Any], words: tuple[str, ...]) -> list[str]:
    return [item["id"] for item in progress.get("items", ()) if item.get("because") in words]
