"""Whatever a client sends to a workflow, with any number of arguments of any type, it goes on: no task of it fails, it
answers queries, it can be cancelled, and people see which messages did not count."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from backlog_fixtures import Branch, night
from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from perdure.client import Perdure
from perdure.models.budget.treasury import ReserveRequest
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.models.rules.inbox import DECISION_MODELS
from tests.deliveries import ADelivery, Script, at, playing
from tests.waiting import patient
from workflows import WORKFLOWS, Backlog, Delivery, Following, Notification, Treasury

JSON = {"encoding": b"json/plain"}


def raw(data: bytes, **metadata: bytes) -> RawValue:
    """A payload as any SDK may send it."""
    return RawValue(Payload(metadata=metadata or JSON, data=data))


ODD: dict[str, list[Any]] = {
    "none": [],
    "null": [None],
    "an empty object": [{}],
    "two objects": [{}, {}],
    "seven": [{"note": "x"}, 2, "three", None, [5], {}, True],
    "a text": ["words"],
    "a number": [2**63],
    "a list": [[{}, []]],
    "true": [True],
    "bytes": [b"\x00\xff"],
    "no JSON": [raw(b'{"text": ')],
    "half a character": [raw(b'{"text": "\\ud83d"}')],
    "not a number": [raw(b'{"usd": NaN, "seq": NaN, "ceiling": NaN, "until": NaN}')],
    "an unknown encoding": [raw(b"?", encoding=b"binary/strange")],
    "no encoding": [RawValue(Payload(data=b"?"))],
    "encrypted": [raw(b"?", encoding=b"binary/encrypted", **{"encryption-key-id": b"k"})],
    "nested": [raw(b"[" * 500 + b"]" * 500)],
    "unknown fields": [{"nothing": 1, "item": "api", "delivery": "d", "text": "t"}],
}

SIGNALS = {
    kind: sorted(
        name for name, method in inspect.getmembers(kind) if hasattr(method, "__temporal_signal_definition")
        and name != "unknown_signal"
    )
    for kind in (Delivery, Backlog, Treasury)
}  # fmt: skip
UPDATES = {
    kind: sorted(
        name for name, method in inspect.getmembers(kind) if hasattr(method, "_defn") and name != "unknown_update"
    )
    for kind in (Delivery, Backlog)
}
UPDATES[Backlog] += DECISION_MODELS


def test_each_message_has_the_name_of_its_method() -> None:
    for kind in WORKFLOWS:
        definition = workflow._Definition.must_from_class(kind)
        for name, handler in [*definition.signals.items(), *definition.updates.items()]:
            assert name is None or getattr(handler, "fn", handler).__name__ == name
    assert {"say", "decide", "granted", "landing_granted", "attempt_waits"} <= set(SIGNALS[Delivery])
    assert {"attach", "approve", "add_budget"} <= set(UPDATES[Delivery])
    assert {"add", "skip", "follow"} <= set(UPDATES[Backlog])


async def failed_tasks(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Why tasks of the workflow failed. One that the server has done again since a message came in did not fail."""
    return [
        event.workflow_task_failed_event_attributes.failure.message
        async for event in handle.fetch_history_events()
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        and event.workflow_task_failed_event_attributes.failure.message != "UnhandledCommand"
    ]


def reason_of(error: WorkflowUpdateFailedError | WorkflowFailureError) -> str:
    """Type and message of the ApplicationError in it."""
    cause = error.cause
    return f"{cause.type}: {cause.message}" if isinstance(cause, ApplicationError) else repr(cause)


async def send_all(handle: WorkflowHandle[Any, Any], kind: type) -> dict[str, str]:
    """Send every signal and update, and some of unknown names, with all odd arguments; return update and arguments →
    why it did not count."""
    refusals = dict[str, str]()

    async def signal(name: str, args: list[Any]) -> None:
        with suppress(RPCError):  # a name that the server itself refuses
            await handle.signal(name, args=args)

    async def update(name: str, label: str, args: list[Any]) -> None:
        try:
            await handle.execute_update(name, args=args)
        except WorkflowUpdateFailedError as error:
            refusals[f"{name}: {label}"] = reason_of(error)

    async with asyncio.timeout(patient(100)):
        for label, args in ODD.items():
            await asyncio.gather(*(signal(name, args) for name in [*SIGNALS.get(kind, ()), "aprove", "__stack_trace"]))
            names = [*UPDATES.get(kind, ()), "aprove"]
            if label in ("none", "null", "an empty object", "unknown fields"):
                names = [name for name in names if name not in ("approve", "reject")]  # they would decide
            for start in range(0, len(names), 5):  # the server takes ten at once
                await asyncio.gather(*(update(name, label, args) for name in names[start : start + 5]))
            await handle.query("__temporal_workflow_metadata", *args[:1])
    return refusals


async def details_of(handle: WorkflowHandle[Any, Any]) -> str:
    """What the Web UI shows."""
    metadata = await handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return str(metadata.current_details)


@pytest.mark.timeout(180)
async def test_a_delivery_lives_through_any_message(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.PLAN, Phase.BUILD, gates=("plan",)) as delivery:
        await delivery.pending()
        handle = delivery.handle
        refusals = await send_all(handle, Delivery)
        assert {text.partition(":")[0] for text in refusals.values()} <= {"NotCounted", "InvalidRequest"}
        assert refusals["approve: two objects"] == "NotCounted: approve takes one JSON object, got 2 arguments"
        assert "did you mean approve?" in refusals["aprove: none"]
        assert (await handle.query("progress", args=[1, 2]))["asked"], "the plan waits still"
        assert "was ignored" in await details_of(handle)
        assert await failed_tasks(handle) == []
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert await failed_tasks(handle) == []


@pytest.mark.timeout(180)
async def test_a_backlog_lives_through_any_message(client: Client, fresh: str) -> None:
    branch = Branch(api="a", page="p")
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch, within=150):
        await Perdure(client).submit_backlog(night({"id": "api"}, {"id": "page", "depends_on": ["api"]}), fresh)
        handle = client.get_workflow_handle(fresh)
        await at(handle, lambda progress: progress["items"])
        refusals = await send_all(handle, Backlog)
        assert {text.partition(":")[0] for text in refusals.values()} <= {"NotCounted", "InvalidRequest"}
        assert any("was ignored" in note for note in (await handle.query("progress", "more"))["notes"])
        assert await failed_tasks(handle) == []
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert await failed_tasks(handle) == []


@pytest.mark.timeout(120)
async def test_the_treasury_lives_through_any_message(client: Client, fresh: str) -> None:
    async with playing(client, Branch()):
        handle = await client.start_workflow("Treasury", id=fresh, task_queue=TASK_QUEUE)
        await send_all(handle, Treasury)
        await handle.query("table", args=[{}, {}])
        assert await failed_tasks(handle) == []
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()


@pytest.fixture
async def worker(client: Client) -> AsyncIterator[None]:
    async with playing(client, Branch(), within=100):
        yield


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", [Delivery, Backlog, Treasury, Following, Notification])
@pytest.mark.usefixtures("worker")
async def test_a_workflow_that_is_started_with_anything_ends_by_its_reason(
    client: Client, fresh: str, kind: type
) -> None:
    begins = ("none", "null", "an empty object", "unknown fields", "not a number") if kind is Treasury else ()
    for number, (label, args) in enumerate(ODD.items()):
        handle = await client.start_workflow(kind.__name__, args=args, id=f"{fresh}-{number}", task_queue=TASK_QUEUE)
        if label in begins:
            await handle.query("table")
            await handle.cancel()
        async with asyncio.timeout(patient(20)):
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
        assert label in begins or reason_of(failed.value).startswith("InvalidRequest: "), (label, failed.value.cause)
        assert await failed_tasks(handle) == [], label


def test_no_signal_between_workflows_brings_a_number_that_json_cannot_hold() -> None:
    """It would stand in the table of the Treasury, which could not be read by the next run."""
    text = '{"delivery": "d", "seq": 1, "settled": NaN, "booked": 0, "rules": {}, "key": "k", "queue": "q"}'
    with pytest.raises(ValidationError, match="finite"):
        ReserveRequest.model_validate_json(text)


@pytest.mark.timeout(120)
async def test_a_delivery_that_is_started_with_any_state_to_go_on_from_fails_no_task(
    client: Client, fresh: str, script: Script
) -> None:
    states: list[dict[str, Any]] = [
        {},
        {"head": "h", "tested": "h"},
        {"status": "delivered"},
        {"planning": {"plan": "p"}, "steps": [{"step": "plan", "attempt": 1, "started_at": "x"}]},
        {"gates": {"pending_decision": {"gate": "plan", "of": "x", "words": "w"}}},
        {"children": {"ids": ["a", "b"]}, "tasks": {}, "landing": {"landed_commit": "c"}},
        {"budget": {"reservation": {"seq": 3, "until": "2026-01-01T00:00:00Z"}}},
    ]
    async with playing(client, script, within=100):
        for number, (state, continued) in enumerate((state, flag) for state in states for flag in (True, False)):
            resume = {"run_id": "r", "state": state, "continued": continued}
            request = {"repository": "/r", "request": "Add sub", "resume": resume}
            id = f"{fresh}-{number}"
            handle = await client.start_workflow("Delivery", request, id=id, task_queue=TASK_QUEUE)
            await handle.query("progress")
            await handle.cancel()
            with pytest.raises(WorkflowFailureError):
                async with asyncio.timeout(patient(20)):
                    await handle.result()
            assert await failed_tasks(handle) == [], resume


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("worker")
async def test_a_backlog_that_is_started_with_a_state_ends_whatever_the_types_of_its_request_are(
    client: Client, fresh: str
) -> None:
    """A later run's request is not checked once more, and anybody can start one."""
    wrong: list[Any] = [
        5,
        [],
        {"repository": 0},
        {"gates": 5},
        {"labels": [5]},
        {"budget_usd": "5"},
        {"parallel": {}},
        {"window": "d"},
    ]
    for number, raw in enumerate([*wrong, {"base": ["x"]}, {"land": 5}, {"window": 5}, {"phases": [5]}]):
        id = f"{fresh}-{number}"
        handle = await client.start_workflow("Backlog", args=[raw, {}], id=id, task_queue=TASK_QUEUE)
        async with asyncio.timeout(patient(20)):
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
        assert reason_of(failed.value).startswith("InvalidRequest: "), (raw, failed.value.cause)
        assert (await handle.query("progress"))["status"] == "failed"
        await details_of(handle)
        assert await failed_tasks(handle) == [], raw
