"""Sends messages to running workflows and starts others, and finds what no longer goes on after them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio.api.common.v1 import Header, Memo, Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import EventType, UpdateWorkflowExecutionLifecycleStage, WorkflowTaskFailedCause
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    QueryWorkflowRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.limits import TASK_QUEUE
from tests.fuzz.messages import Message
from tests.waiting import patient
from workflows import Backlog, Delivery, Following, Notification, Treasury

REQUESTS: dict[type, Any] = {
    Delivery: {"repository": "/r", "request": "Add sub", "phases": ["plan", "build"], "gates": ["plan"]},
    Backlog: {"repository": "/r", "items": [{"id": "api", "request": "x"}, {"id": "page", "request": "x"}]},
    Treasury: None,
    Following: {"backlog": "b", "request": {}, "until": "2099-01-01T00:00:00Z"},
    Notification: {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "d", "delivery_id": "d",
                   "run_id": "r", "repository": "/r", "request": "x", "summary": "y"},
}  # fmt: skip
"""What a running workflow of each type is started with."""

CALL = timedelta(seconds=20)

UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
"""No failure: something came in while a run was about to end, and the server has it look at that first."""


@dataclass
class Outcome:
    """What came of messages. `sent`: how many the server took; `problems`: what went wrong, by message or run."""

    sent: int = 0
    runs: int = 0
    problems: list[str] = field(default_factory=list)


async def play(client: Client, messages: Sequence[Message], *, at_once: int = 8, a_run: int = 30) -> Outcome:
    """Send all messages, `a_run` of them to one run; then each run has to answer a query, and to end when cancelled."""
    outcome, room = Outcome(), asyncio.Semaphore(at_once)
    groups = list[list[Message]]()
    for kind in REQUESTS:
        sent = [message for message in messages if message.kind is kind and message.act != "start"]
        groups += [sent[place : place + a_run] for place in range(0, len(sent), a_run)]
    groups += [[message] for message in messages if message.act == "start"]

    async def guarded(group: list[Message]) -> None:
        async with room:
            await (_play_start if group[0].act == "start" else _play_group)(client, group, outcome)

    await asyncio.gather(*map(guarded, groups))
    return outcome


async def _play_start(client: Client, group: list[Message], outcome: Outcome) -> None:
    (message,) = group
    try:
        handle = await _start(client, message)
    except RPCError:
        return  # the server itself refuses it
    outcome.sent += 1
    outcome.runs += 1
    if problem := await _problem_of(client, handle):
        outcome.problems.append(f"{problem}\n  after {message}")


async def _play_group(client: Client, group: list[Message], outcome: Outcome) -> None:
    problem, sent = await _play_on_one_run(client, group, outcome)
    if problem and len(group) > 1:  # which of them was it?
        alone = [
            f"{single}\n  after {message}"
            for message in sent
            if (single := (await _play_on_one_run(client, [message], Outcome()))[0])
        ]
        outcome.problems += alone or [f"{problem}\n  after all of: " + "\n    ".join(map(str, sent))]
    elif problem:
        outcome.problems.append(f"{problem}\n  after {group[0]}")


async def _play_on_one_run(client: Client, group: list[Message], outcome: Outcome) -> tuple[str, list[Message]]:
    """Send messages to a run, in turns to a new one where they ended it; return what is wrong, and those that were sent
    to the last run."""
    left, problem, sent = list(group), "", list[Message]()
    while left and not problem:
        handle, sent = await _begin(client, group[0].kind), []
        outcome.runs += 1
        while left:
            try:
                async with asyncio.timeout(patient(30)):
                    await _send(client, handle.id, left[0])
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND and sent:
                    break  # it has ended: the others go to a new one
                if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
                    problem = f"{handle.id} does not answer: {error.message[:100]}"
                else:
                    outcome.sent -= 1  # refused by the server, before any workflow saw it
            except TimeoutError:
                problem = f"{handle.id} does not answer"
            outcome.sent += 1
            sent.append(left.pop(0))
        problem = await _problem_of(client, handle) or problem
    return problem, sent


async def _begin(client: Client, kind: type) -> WorkflowHandle[Any, Any]:
    args = [] if REQUESTS[kind] is None else [REQUESTS[kind]]
    id = f"fuzz-{uuid.uuid4().hex[:12]}"
    handle = await client.start_workflow(kind.__name__, args=args, id=id, task_queue=TASK_QUEUE)
    with suppress(RPCError):
        await handle.query("__temporal_workflow_metadata", rpc_timeout=CALL)
    return handle


async def _start(client: Client, message: Message) -> WorkflowHandle[Any, Any]:
    id = f"fuzz-{uuid.uuid4().hex[:12]}"
    fields = dict(message.more)
    await client.workflow_service.start_workflow_execution(
        StartWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_id=id,
            workflow_type=WorkflowType(name=message.name),
            task_queue=TaskQueue(name=TASK_QUEUE),
            input=Payloads(payloads=message.payloads),
            request_id=id,
            identity="fuzz",
            memo=Memo(fields=fields),
            header=Header(fields=fields),
        )
    )
    return client.get_workflow_handle(id)


async def _send(client: Client, id: str, message: Message) -> None:
    """Send a signal, an update or a query. Raises RPCError where the server refuses, or nobody answers."""
    execution, args = WorkflowExecution(workflow_id=id), Payloads(payloads=message.payloads)
    service, namespace, header = client.workflow_service, client.namespace, Header(fields=dict(message.more))
    match message.act:
        case "signal":
            await service.signal_workflow_execution(
                SignalWorkflowExecutionRequest(
                    namespace=namespace, workflow_execution=execution, signal_name=message.name, input=args,
                    header=header, request_id=uuid.uuid4().hex, identity="fuzz",
                )
            )  # fmt: skip
        case "update":
            stage = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
            await service.update_workflow_execution(
                UpdateWorkflowExecutionRequest(
                    namespace=namespace, workflow_execution=execution, wait_policy=WaitPolicy(lifecycle_stage=stage),
                    request=Request(
                        meta=Meta(update_id=uuid.uuid4().hex, identity="fuzz"),
                        input=Input(header=header, name=message.name, args=args),
                    ),
                ),
                timeout=CALL,
            )  # fmt: skip
        case _:
            query = WorkflowQuery(query_type=message.name, query_args=args, header=header)
            await service.query_workflow(
                QueryWorkflowRequest(namespace=namespace, execution=execution, query=query), timeout=CALL
            )


async def _problem_of(client: Client, handle: WorkflowHandle[Any, Any]) -> str:
    """Query a run, cancel it, wait for its end, and look for failed tasks in its history; return what is wrong."""
    problem = ""
    try:
        async with asyncio.timeout(patient(40)):
            await handle.query("__temporal_workflow_metadata", rpc_timeout=CALL)
            with suppress(RPCError):
                await handle.cancel()
            with suppress(WorkflowFailureError):
                await handle.result()
    except (RPCError, TemporalError, TimeoutError) as error:
        problem = f"{handle.id} cannot be queried, cancelled or ended: {error!r}"[:300]
        with suppress(RPCError):
            if (await handle.describe()).status is WorkflowExecutionStatus.RUNNING:
                await handle.terminate()
    failures = [
        event.workflow_task_failed_event_attributes.failure.message
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and event.workflow_task_failed_event_attributes.cause != UNHANDLED
    ]
    return "; ".join(filter(None, [problem, *(f"a task failed: {failure[:300]}" for failure in failures[:2])]))
