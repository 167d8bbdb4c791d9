"""What a worker was handed and had not noted when it died is done again at once, and nothing else is."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from burying import gone, undertaker
from patient import Patient
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import (
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    PollWorkflowTaskQueueResponse,
)
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.adapters.system.home import Home
from perdure.adapters.worker.inflight import InFlight, find_handed_out
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin

GONE = "0" * 32
"""The name of a worker that is dead."""


class Handed:
    """Patient's activity on a queue of its own, in the hands of whoever took it last and did nothing with it."""

    def __init__(self, client: Client, queue: str) -> None:
        self._client, self.queue = client, queue

    async def to(self, worker: str) -> None:
        request = PollActivityTaskQueueRequest(
            namespace=self._client.namespace, task_queue=TaskQueue(name=self.queue), identity=f"1@here/{worker}"
        )
        assert (await self._client.workflow_service.poll_activity_task_queue(request)).task_token

    async def seen(self) -> PendingActivityInfo:
        described = await self._client.get_workflow_handle(self.queue).describe()
        return described.raw_description.pending_activities[0]


@asynccontextmanager
async def handed(client: Client, *workers: str) -> AsyncIterator[list[Handed]]:
    """One for each of these workers."""
    each = [Handed(client, f"patient-{uuid.uuid4().hex}") for _ in workers]
    async with Worker(client, task_queue=TASK_QUEUE, workflows=[Patient]):
        for one, worker in zip(each, workers, strict=True):
            await client.start_workflow(Patient.run, one.queue, id=one.queue, task_queue=TASK_QUEUE)
            await one.to(worker)
        yield each
        for one in each:
            await client.get_workflow_handle(one.queue).terminate()


@pytest.mark.timeout(60)
async def test_what_a_worker_was_handed_and_had_not_noted_when_it_died_is_handed_out_again(
    home: Home, server: str
) -> None:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    living = InFlight(home)
    assert living.identity.endswith(f"/{living.worker}")
    async with handed(client, GONE, living.worker) as (lost, kept):
        (home.inflight / f"{GONE}.lock").touch()
        async with undertaker(home, client):
            await gone(home.inflight / f"{GONE}.lock")
        await lost.to("another")
        again, untouched = await lost.seen(), await kept.seen()
        assert (again.attempt, again.last_failure.application_failure_info.type) == (2, "WorkerDied")
        assert (untouched.attempt, untouched.last_worker_identity) == (1, f"1@here/{living.worker}")
    living.close()


@pytest.mark.timeout(60)
async def test_a_report_of_what_was_not_noted_that_comes_late_does_not_touch_the_next_attempt(
    home: Home, server: str
) -> None:
    from perdure.adapters.worker.inflight import _report_note

    client = await Client.connect(server, plugins=[perdure_plugin()])
    async with handed(client, GONE) as (lost,):
        [note] = [note async for note in find_handed_out(client, GONE)]
        assert (note["workflow_id"], note["activity"]) == (lost.queue, "implement")
        assert await _report_note(client, note)
        await lost.to("another")
        assert await _report_note(client, note), "the answer is final: there is nothing to report any more"
        assert [note async for note in find_handed_out(client, GONE)] == []
        assert (await lost.seen()).attempt == 2


@pytest.mark.timeout(60)
async def test_a_decision_that_a_dead_worker_had_taken_is_given_back_at_once_and_a_living_ones_is_not(
    home: Home, server: str
) -> None:
    client = await Client.connect(server, plugins=[perdure_plugin()])
    living = InFlight(home)
    ids = {GONE: f"patient-{uuid.uuid4().hex}", living.worker: f"patient-{uuid.uuid4().hex}"}
    for worker, id in ids.items():
        await client.start_workflow(Patient.run, id, id=id, task_queue=TASK_QUEUE, task_timeout=timedelta(minutes=5))
        await client.get_workflow_handle(id).signal("beforehand")  # it stands between scheduled and taken
        assert (await decision(client, worker)).workflow_execution.workflow_id == id
    async with undertaker(home, client):
        (home.inflight / f"{GONE}.lock").touch()
        again = await decision(client, "another")  # the time-out of five minutes has not decided
    assert (again.workflow_execution.workflow_id, again.attempt) == (ids[GONE], 1)
    failed = [event async for event in client.get_workflow_handle(ids[GONE]).fetch_history_events()][4]
    assert failed.workflow_task_failed_event_attributes.failure.message == "its worker died"
    assert len([event async for event in client.get_workflow_handle(ids[living.worker]).fetch_history_events()]) == 4
    for id in ids.values():
        await client.get_workflow_handle(id).terminate()
    living.close()


async def decision(client: Client, worker: str) -> PollWorkflowTaskQueueResponse:
    """The next one that waits, taken by a worker of that name."""
    request = PollWorkflowTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=TASK_QUEUE), identity=f"1@here/{worker}"
    )
    return await client.workflow_service.poll_workflow_task_queue(request)
