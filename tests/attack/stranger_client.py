"""A stranger with nothing but a connection to Temporal: his client, his worker, his workflow. What he tries stands in
`clients.py` for the table, and in `tests/e2e/test_stranger_client.py`."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import ActivityFailureError, Client, WorkflowFailureError
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure.client.history.runs import read_runs
from perdure.models.limits import TASK_QUEUE
from tests.engine import Engine, until

QUIET = "version = 1\n[setup]\ncommands = []\n[ship]\nallow_untested = true\n"


@workflow.defn(name="Delivery", sandboxed=False)
class TenLines:
    """A stranger's workflow on a queue of his own: calls one activity of the host, sends a signal, or goes on as one
    of ours. On our queue it calls what `then` says instead, as the delivery that `call` asks for: after `own`
    activities that his own worker has carried out, in the last of `runs` runs."""

    @workflow.run
    async def run(self, call: dict[str, Any], then: dict[str, Any] | None = None) -> Any:
        if then is not None:
            for _ in range(then.pop("own", 0)):
                limit = timedelta(seconds=30)
                await workflow.execute_activity("look_for", task_queue=TASK_QUEUE, start_to_close_timeout=limit)
            if then["runs"] > 1:
                workflow.continue_as_new(args=[call, {**then, "runs": then["runs"] - 1}])
            call = then
        if "goes_on" in call:
            workflow.continue_as_new(call["goes_on"], task_queue=TASK_QUEUE)
        if "signals" in call:
            return await workflow.get_external_workflow_handle(call["signals"]).signal(call["name"], call["content"])
        if "child" in call:
            return await workflow.execute_child_workflow(
                call["child"], call["raw"], id=call["id"], task_queue=TASK_QUEUE
            )
        return await workflow.execute_activity(
            call["name"],
            call["work"],
            task_queue=call["queue"],
            start_to_close_timeout=timedelta(seconds=30),
            retry_policy=RetryPolicy(maximum_attempts=3),
        )


@activity.defn(name="look_for")
async def pretends_to_look() -> None:
    """An activity of ours as the stranger carries it out."""


class Stranger:
    """His client and his worker. `built`: what `prepare`, `commit` and tests have told in the history of a delivery."""

    def __init__(self, engine: Engine, queue: str) -> None:
        self.engine, self.client, self.queue = engine, engine.client, queue
        self.built: dict[str, Any] = {}

    async def reads(self, id: str) -> dict[str, Any]:
        for run in await read_runs(self.client, id):
            for act in run.activities.values():
                if act.result is not None:
                    self.built[act.activity] = act.result
        return self.built

    async def starts(self, kind: str, raw: Any, id: str, queue: str = TASK_QUEUE, **more: Any) -> Any:
        handle = await self.client.start_workflow(
            kind, raw, id=id, task_queue=queue, id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE, **more
        )
        return await handle.result()

    async def refused(self, kind: str, raw: Any, id: str, queue: str = TASK_QUEUE, **more: Any) -> str:
        try:
            ended = await self.starts(kind, raw, id, queue, **more)
        except WorkflowFailureError as error:
            return reason_of(error)
        raise AssertionError(f"it ended well: {ended}")

    async def calls(self, name: str, work: dict[str, Any], queue: str) -> str:
        """The one line with which an activity ends that his workflow calls."""
        call = {"name": name, "work": work, "queue": queue}
        return await self.refused("Delivery", call, f"his-{uuid.uuid4()}", self.queue)

    async def calls_alone(self, name: str, work: dict[str, Any], queue: str) -> str:
        """Likewise without any workflow."""
        limit = timedelta(seconds=30)
        try:
            ended = await self.client.execute_activity(
                name, work, id=f"his-{uuid.uuid4()}", task_queue=queue, start_to_close_timeout=limit
            )
        except ActivityFailureError as error:
            return reason_of(error)
        raise AssertionError(f"it ended well: {ended}")

    async def calls_as_ours(
        self,
        name: str,
        work: dict[str, Any],
        queue: str,
        raw: dict[str, Any] | None = None,
        *,
        own: int = 0,
        runs: int = 1,
    ) -> str:
        """The one line with which an activity ends that he calls while no worker of ours runs, from a workflow of our
        type on our queue, started with `raw`, which his worker carries out as TenLines says."""
        id, then = f"his-{uuid.uuid4()}", {"name": name, "work": work, "queue": queue, "own": own, "runs": runs}
        async with Worker(
            self.client,
            task_queue=TASK_QUEUE,
            workflows=[TenLines],
            activities=[pretends_to_look],
            max_cached_workflows=0,
        ):
            args = [raw or {}, then]
            await self.client.start_workflow("Delivery", args=args, id=id, task_queue=TASK_QUEUE)

            async def scheduled() -> bool:
                pending = (await self.client.get_workflow_handle(id).describe()).raw_description.pending_activities
                return [one.activity_type.name for one in pending] == [name]

            await until(scheduled, 60)
            newest = (await self.client.get_workflow_handle(id).describe()).run_id
            handle = self.client.get_workflow_handle(id, run_id=newest)
        self.engine.worker()
        called = 10**6
        try:
            async for event in handle.fetch_history_events(wait_new_event=True):
                if event.activity_task_scheduled_event_attributes.activity_type.name == name:
                    called = event.event_id
                assert event.activity_task_completed_event_attributes.scheduled_event_id in (0, *range(called)), name
                if event.HasField("activity_task_failed_event_attributes"):
                    failure = event.activity_task_failed_event_attributes.failure
                    assert failure.application_failure_info.non_retryable
                    return str(failure.message)
            raise AssertionError("it ended otherwise")
        finally:
            self.engine.end_workers()
            await handle.terminate()


def reason_of(error: BaseException) -> str:
    """The one line of the first failure that is not only about what failed below it."""
    while not isinstance(error, ApplicationError):
        error = getattr(error, "cause")  # noqa: B009  # of a workflow, a child or an activity
    assert error.non_retryable, error
    assert "\n" not in error.message.strip()
    return error.message


@asynccontextmanager
async def stranger(engine: Engine) -> AsyncIterator[Stranger]:
    queue = f"his-{uuid.uuid4()}"
    client = await Client.connect(engine.client.service_client.config.target_host, namespace=engine.client.namespace)
    async with Worker(client, task_queue=queue, workflows=[TenLines]):
        yield Stranger(engine, queue)


SIGNALS = ("landing_asked", "landing_over", "item_waits", "item_planned", "item_foreseen", "item_ended")
"""Those of a delivery to its backlog."""


def forged(name: str, delivery: str, run_id: str) -> dict[str, Any]:
    """What a signal carries that makes a backlog believe something of its item `one`."""
    contents: dict[str, dict[str, Any]] = {
        "landing_asked": {"run_id": run_id, "seq": 7},
        "landing_over": {"seq": 1, "commit": "c" * 40},
        "item_waits": {"number": 10**15, "words": "for a person", "gate": "plan"},
        "item_planned": {"touches": ["**"]},
        "item_foreseen": {"conflicts": {"two": "a"}},
        "item_ended": {"run_id": run_id, "status": "delivered", "commit": "c" * 40},
    }
    return {"item": "one", "delivery": delivery, **contents[name]}


def made_up(built: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The state of a delivery that is said to be tested and reviewed, on a branch of the stranger's choice."""
    commit, prepared = built["commit"], built["prepare"]
    green = {"status": "green", "passed": 4321, "tree": commit["tree"], "summary": "4321 green"}
    return {
        "prepared": {**prepared, "phases": ["ship"], "branch": "hijacked", "branches": {}},
        "planning": {"kind": "feature", "title": "Hijacked"},
        "building": {"built": True, "head": commit["commit"]},
        "testing": {"verdict": green, "tested_commit": commit["commit"]},
        "reviewing": {"result": {"status": "clean"}, "reviewed_commit": commit["commit"]},
        **more,
    }
