"""What lists and descriptions say of deliveries that no worker can speak for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.client import ListEntry, Perdure
from perdure.models.limits import TASK_QUEUE
from tests.waiting import patient

RUNNING = TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_keyword("PerdureStatus"), "running")])
REQUEST = {"repository": "/r", "request": "Add sub"}


async def seen(perdure: Perdure, ids: str, when: Callable[[list[ListEntry]], bool]) -> list[ListEntry]:
    """The list once it is as expected: the server's list follows with a delay."""
    async with asyncio.timeout(patient(20)):
        while not when(found := await perdure.list(limit=2, query=f"WorkflowId STARTS_WITH '{ids}'")):
            await asyncio.sleep(0.1)
    return found


async def start(client: Client, id: str) -> None:
    await client.start_workflow("Delivery", REQUEST, id=id, task_queue=TASK_QUEUE, search_attributes=RUNNING)


async def test_a_delivery_that_was_terminated_is_not_listed_as_running(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    await start(client, fresh)
    await seen(perdure, fresh, lambda found: [one.status for one in found] == ["running"])
    await client.get_workflow_handle(fresh).terminate()
    (ended,) = await seen(perdure, fresh, lambda found: bool(found and found[0].closed))
    assert ended.status == "terminated"


async def test_a_delivery_with_several_runs_takes_one_place_in_the_list(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    for id in (f"{fresh}-other", *3 * [f"{fresh}-again"]):
        await start(client, id)
        await client.get_workflow_handle(id).terminate()
    found = await seen(perdure, fresh, lambda found: len(found) == 2)
    assert {one.delivery_id for one in found} == {f"{fresh}-again", f"{fresh}-other"}


async def test_the_newest_is_the_one_that_was_started_last_whatever_runs_or_ended_since(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    names = [f"{fresh}-{n}" for n in range(5)]
    for name in names:
        await start(client, name)
    for name in (names[4], names[2], names[1]):  # the newest has ended first, and older ones run on or ended later
        await client.get_workflow_handle(name).terminate()

    def order(count: int) -> list[str]:
        return [f"{fresh}-{n}" for n in (4, 3, 2, 1, 0)[:count]]

    async with asyncio.timeout(patient(20)):
        for limit in (1, 2, 4, 10):
            found: list[str] = []
            while found != order(limit):
                query = f"WorkflowId STARTS_WITH '{fresh}'"
                found = [one.delivery_id for one in await perdure.list(limit=limit, query=query)]
                await asyncio.sleep(0.1)
    for name in (names[0], names[3]):
        await client.get_workflow_handle(name).terminate()
