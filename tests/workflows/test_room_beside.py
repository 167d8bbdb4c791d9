"""Items of a backlog that begin in one moment count for each other before anybody knows what repository they are of."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from activities.concurrency_limit import _list_other_deliveries
from perdure.models.concurrency_limit import limit_reason
from tests.waiting import patient


@workflow.defn(name="TwoItems", sandboxed=False)
class TwoItems:
    """A parent of deliveries that nobody works on: they are listed, and have shown nothing."""

    @workflow.run
    async def run(self, ids: list[str]) -> None:
        for id in ids:
            await workflow.start_child_workflow("Delivery", {}, id=id, task_queue="nobody")
        await workflow.wait_condition(lambda: False)


async def test_of_two_items_that_are_not_prepared_the_older_one_goes_first(client: Client, fresh: str) -> None:
    first, second = f"{fresh}/first", f"{fresh}/second"
    async with Worker(client, task_queue=fresh, workflows=[TwoItems]):
        handle: Any = await client.start_workflow("TwoItems", [first, second], id=fresh, task_queue=fresh)
        async with asyncio.timeout(patient(60)):
            while not await _list_other_deliveries(client, "/r.git", second, "") or not await _list_other_deliveries(
                client, "/r.git", first, ""
            ):
                await asyncio.sleep(0.05)
        assert limit_reason(1, None, await _list_other_deliveries(client, "/r.git", first, ""), 0) == ""
        assert "before this one (limit 1)" in limit_reason(
            1, None, await _list_other_deliveries(client, "/r.git", second, ""), 0
        )
        await handle.terminate()
