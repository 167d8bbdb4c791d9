"""A backlog of a thousand items: few events each, and as much memory at its end as in its middle."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psutil
import pytest
from backlog_fixtures import Branch, backlog, night
from temporalio.client import Client, WorkflowHandle

from tests.deliveries import playing

ITEMS = 1000
EVENTS_MOST = 40
"""Of the backlog, over all its runs, for an item."""

GROWTH_MOST = 100_000_000
"""Bytes, of this process, from the first third on: its lists of what was seen, and a tenth of what a leak of a kilobyte
an event would be."""


def item(number: int) -> dict[str, Any]:
    after = {"depends_on": [f"item{number - 100}", f"item{number - 99}"]} if number >= 100 else {}
    return {"id": f"item{number}", "touches": [f"src/part{number % 97}/**", f"tests/test_part{number}.py"], **after}


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_a_thousand_items_cost_few_events_each_and_no_memory(client: Client, fresh: str) -> None:
    names = [f"item{number}" for number in range(ITEMS)]
    branch = Branch(**{name: name for name in names})
    branch.real_looks, branch.price = client, 0.0  # a price would be counted over all of them
    memory = []
    async with playing(client, branch, within=2900):
        handle = await backlog(client, fresh, night(*map(item, range(ITEMS)), parallel=20))
        result = asyncio.create_task(handle.result())
        while not result.done():
            await asyncio.wait([result], timeout=5)
            memory.append((len(branch.landed), psutil.Process(os.getpid()).memory_info().rss))
            print(len(branch.landed), memory[-1][1] // 1_000_000, "MB", flush=True)
        progress = result.result()
    assert {one["phase"] for one in progress["items"]} == {"landed"}
    assert sorted(branch.landed) == sorted(names), "each once"
    runs = [run async for run in client.list_workflows(f"WorkflowId = '{fresh}'")]
    events, failed = 0, 0
    for run in runs:
        history = await history_of(client.get_workflow_handle(fresh, run_id=run.run_id))
        events += len(history)
        failed += sum(event.HasField("workflow_task_failed_event_attributes") for event in history)
        failed += sum(event.HasField("workflow_task_timed_out_event_attributes") for event in history)
    print(f"{events / ITEMS:.1f} events an item, {len(runs)} runs, {failed} tasks failed or timed out")
    assert len(runs) > 5
    assert events < EVENTS_MOST * ITEMS, events
    first = next(rss for landed, rss in memory if landed > ITEMS / 3)
    assert memory[-1][1] - first < GROWTH_MOST, memory


async def history_of(handle: WorkflowHandle[Any, Any]) -> list[Any]:
    return [event async for event in handle.fetch_history_events()]
