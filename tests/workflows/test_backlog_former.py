"""A backlog's state counts when a run of ours has left it: whoever starts a workflow may send any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, ended, night, phases
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

from perdure.client.backlog import Backlog
from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import BacklogState, ItemState, OpenBacklogResult, ReopenedFrom
from perdure.models.errors import BadInput
from perdure.models.limits import TASK_QUEUE
from tests.deliveries import playing

pytestmark = pytest.mark.story

STRANGE = "its state comes from no run before it"
RAW = {"repository": "/r"}


def made_up(**more: Any) -> BacklogState:
    """Of a stranger: it lands on a branch of his choice."""
    opened = OpenBacklogResult(base="main", base_sha="b", branch="main", queue="his-queue")
    item = BacklogItem(id="one", request="Do one")
    return BacklogState(items={"one": ItemState(item=item)}, opened=opened, **more)


async def refused(handle: WorkflowHandle[Any, Any]) -> str:
    with pytest.raises(WorkflowFailureError) as failed:
        await ended(handle)
    return str(failed.value.cause)


async def test_a_state_that_somebody_sends_is_refused_and_nobody_can_go_on_with_it(client: Client, fresh: str) -> None:
    branch = Branch(one="a")
    async with playing(client, branch):
        sent = [RAW, made_up()]
        handle = await client.start_workflow("Backlog", args=sent, id=fresh, task_queue=TASK_QUEUE)
        assert STRANGE in await refused(handle)
        assert await handle.query("state") == {}
        with pytest.raises(BadInput, match="was refused when it was started"):
            await Backlog(client, fresh).retry()
        first = (await handle.describe()).run_id
        sent = [RAW, made_up(reopened_from=ReopenedFrom(run_id=first, change="retry"))]
        handle = await client.start_workflow("Backlog", args=sent, id=fresh, task_queue=TASK_QUEUE)
        assert "there is nothing to go on with" in await refused(handle)
    assert branch.landed == []


async def test_a_retry_policy_or_a_cron_schedule_of_the_sender_makes_no_former_run(client: Client, fresh: str) -> None:
    """The server counts the next run of either as one that went on in another."""
    branch = Branch(one="a")
    again = RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=10))
    async with playing(client, branch):
        sent = {"args": [RAW, made_up()], "task_queue": TASK_QUEUE}
        once = await client.start_workflow("Backlog", id=f"{fresh}-0", retry_policy=again, **sent)
        assert STRANGE in await refused(once)
        often = await client.start_workflow("Backlog", id=fresh, cron_schedule="@every 1s", **sent)
        runs: dict[str, str] = {}
        while len(runs) < 3:
            run_id = (await client.get_workflow_handle(fresh).describe()).run_id
            async for words in _found(client.get_workflow_handle(fresh, run_id=run_id)):
                runs[run_id] = words
            await asyncio.sleep(0.1)
        await often.terminate()
    assert all(STRANGE in words for words in runs.values()), runs
    assert branch.landed == []


async def _found(handle: WorkflowHandle[Any, Any]) -> AsyncIterator[str]:
    """The words that a run was told of the state that it was given."""
    async for event in handle.fetch_history_events():
        if event.HasField("activity_task_completed_event_attributes"):
            yield event.activity_task_completed_event_attributes.result.payloads[0].data.decode()
            return


@workflow.defn(name="Backlog", sandboxed=False)
class GoesOn:
    """A stranger's workflow on a queue of his own, which goes on as one of ours."""

    @workflow.run
    async def run(self, raw: Any) -> None:
        workflow.continue_as_new(args=[raw, made_up()], task_queue=TASK_QUEUE)


@workflow.defn(name="Delivery", sandboxed=False)
class Begins:
    """A stranger's workflow on a queue of his own, which begins one of ours as its child."""

    @workflow.run
    async def run(self, raw: Any) -> None:
        id = f"{workflow.info().workflow_id}/tasks"
        await workflow.execute_child_workflow("Backlog", args=[raw, made_up()], id=id, task_queue=TASK_QUEUE)


@asynccontextmanager
async def stranger(client: Client, queue: str) -> AsyncIterator[None]:
    async with Worker(client, task_queue=queue, workflows=[GoesOn, Begins]):
        yield


@pytest.mark.parametrize("kind", ["Backlog", "Delivery"])
async def test_a_stranger_who_works_on_his_own_queue_begins_none_of_ours(client: Client, fresh: str, kind: str) -> None:
    branch = Branch(one="a")
    async with playing(client, branch), stranger(client, f"his-{fresh}"):
        handle = await client.start_workflow(kind, RAW, id=fresh, task_queue=f"his-{fresh}")
        if kind == "Delivery":
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            handle = client.get_workflow_handle(f"{fresh}/tasks")
        assert STRANGE in await refused(handle)
    assert branch.landed == []


async def test_what_goes_on_from_an_ended_run_is_that_runs_state_and_request(client: Client, fresh: str) -> None:
    branch = Branch(one="a", two="b")
    branch.fails = {"two"}
    request = night({"id": "one"}, {"id": "two"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        assert phases(await ended(handle)) == {"one": "landed", "two": "failed"}
        run = (await client.get_workflow_handle(fresh).describe()).run_id
        again = ReopenedFrom(run_id=run, change="retry")
        for raw, state, words in (
            (RAW, made_up(reopened_from=again), "its state is not that of the run before it"),
            ({"repository": "/etc"}, made_up(reopened_from=again), "its request is not that of the run before it"),
            (RAW, made_up(reopened_from=ReopenedFrom(run_id="no-run", change="retry")), STRANGE),
        ):
            handle = await client.start_workflow("Backlog", args=[raw, state], id=fresh, task_queue=TASK_QUEUE)
            assert words in await refused(handle)
        other = await client.start_workflow(
            "Backlog", args=[RAW, made_up(reopened_from=again)], id=f"{fresh}-2", task_queue=TASK_QUEUE
        )
        assert STRANGE in await refused(other), "another backlog's run is not this one's"
    assert branch.landed == ["one"]
