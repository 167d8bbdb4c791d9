"""Who shares the workers with somebody who has a hundred times as much has their turn all the same."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.client.submit import start_workflow
from perdure.models.concurrency_limit import FAIRNESS_KEY_BYTES, fairness_key, temporal_priority
from tests.deliveries import playing
from tests.waiting import patient


@workflow.defn
class Turn:
    """Tells when it came to its turn."""

    @workflow.run
    async def run(self) -> float:
        return workflow.now().timestamp()


@pytest.mark.parametrize(("given", "key"), [(100, 1), (51, 1), (1, 2), (0, None), (-1, 4), (-50, 4), (-100, 5)])
def test_an_items_priority_is_one_of_temporals_five(given: int, key: int | None) -> None:
    assert temporal_priority(given) == key


def test_a_fairness_key_is_the_backlogs_or_the_repositorys_and_never_too_long() -> None:
    assert fairness_key("night/api", {"repository": "/r", "landing": {"backlog": "night"}}) == "night"
    assert fairness_key("night", {"repository": "/r"}, backlog=True) == "night"
    assert fairness_key("d-1/tasks/1", {"landing": {"backlog": "d-1/tasks", "within": {"delivery": "d-1"}}}) is None
    assert fairness_key("d-1", {"repository": "https://github.com/me/durations"}) == "https://github.com/me/durations"
    assert len(fairness_key("d-1", {"repository": "/ü" * 60}).encode()) <= FAIRNESS_KEY_BYTES


async def test_the_embedded_server_gives_each_key_its_turn_and_the_urgent_one_first(client: Client) -> None:
    queue = f"q-{uuid.uuid4().hex}"
    many = [("many", Priority(fairness_key="many"))] * 60
    one = [("one", Priority(fairness_key="one"))] * 3 + [("urgent", Priority(temporal_priority(100), "many"))]
    handles = [
        await client.start_workflow(Turn.run, id=uuid.uuid4().hex, task_queue=queue, priority=priority)
        for _, priority in [*many, *one]
    ]
    runner = UnsandboxedWorkflowRunner()
    async with Worker(
        client, task_queue=queue, workflows=[Turn], workflow_runner=runner, max_concurrent_workflow_tasks=2
    ):
        times = await asyncio.wait_for(asyncio.gather(*(handle.result() for handle in handles)), patient(40))
    order = [whose for _, (whose, _) in sorted(zip(times, [*many, *one], strict=True), key=lambda turn: turn[0])]
    assert order.index("urgent") < 30, order
    assert order.index("one") < 30, order


async def test_deliveries_and_backlogs_are_begun_with_their_keys(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one", "priority": 60}))
        await until(handle, lambda at: at["one"] == "building")
        child = (await client.get_workflow_handle(f"{fresh}/one").describe()).raw_description.workflow_execution_info
        assert (child.priority.priority_key, child.priority.fairness_key) == (1, fresh)
        assert await handle.execute_update("prioritise", {"item": "one", "priority": -60}) == "priority -60: one"
        now = (await client.get_workflow_handle(f"{fresh}/one").describe()).raw_description.workflow_execution_info
        assert (now.priority.priority_key, now.priority.fairness_key) == (5, fresh)
        branch.holding["one"].set()
        await handle.result()
    other = f"{fresh}-2"
    await start_workflow(client, other, {"repository": "/r", "request": "x"}, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    alone = (await client.get_workflow_handle(other).describe()).raw_description.workflow_execution_info
    assert alone.priority.fairness_key == "/r"
