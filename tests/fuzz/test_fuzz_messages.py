"""Messages and starts of any shape to workflows of every type: no task fails, and each run can be queried and ended.

FUZZ=SEED:COUNT sends another number of messages, from another seed (`make fuzz`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, get_type_hints

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from temporalio import workflow
from temporalio.api.common.v1 import (
    Header,
    Memo,
    Payload,
    Payloads,
    SearchAttributes,
    WorkflowExecution,
    WorkflowType,
)
from temporalio.api.enums.v1 import (
    EventType,
    UpdateWorkflowExecutionLifecycleStage,
    WorkflowIdConflictPolicy,
    WorkflowTaskFailedCause,
)
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request, WaitPolicy
from temporalio.api.workflowservice.v1 import (
    ExecuteMultiOperationRequest,
    QueryWorkflowRequest,
    SignalWithStartWorkflowExecutionRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import TemporalError
from temporalio.service import RPCError, RPCStatusCode

from perdure.models.backlog.following import StackToFollow
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import AddItem, BacklogState, NamedItem, PrioritisedItem
from perdure.models.delivery.decisions import Hold, Rewind, Say
from perdure.models.delivery.request import DeliveryRequest, ResumePoint
from perdure.models.delivery.state import DeliveryState
from perdure.models.limits import TASK_QUEUE
from perdure.models.notice import Notice
from perdure.models.rules.inbox import DECISION_MODELS
from tests.deliveries import Script, client, playing
from tests.temporal_server import server
from tests.waiting import patient
from workflows import Backlog, Delivery, Following, Notification, Treasury

__all__ = ["client", "server"]

SEED, COUNT = map(int, os.environ.get("FUZZ", "1:120").split(":"))
A_SECOND = 5
"""Messages that are sent in a second at least, on a slow machine."""


KINDS = (Delivery, Backlog, Treasury, Following, Notification)
STARTS: dict[type, tuple[type[BaseModel], ...]] = {
    Delivery: (DeliveryRequest,),
    Backlog: (BacklogRequest, BacklogState),
    Treasury: (DeliveryState,),
    Following: (StackToFollow,),
    Notification: (Notice,),
}
UNTYPED: dict[str, type[BaseModel]] = {
    "say": Say, "hold": Hold, "rewind": Rewind, "attach": DeliveryRequest, "add": AddItem, "edit": AddItem,
    "skip": NamedItem, "retry": NamedItem, "cancel_item": NamedItem, "prioritise": PrioritisedItem, **DECISION_MODELS,
}  # fmt: skip
"""The models that handlers with a parameter of any type expect."""

STRANGE_NAMES = ("aprove", "__temporal_nothing", "__stack_trace", "run", "sa y", "ж", "x" * 300, "state", "signal\t")


MISSPELT_TYPES = (
    "delivery",
    "Delivery ",
    "Deliveries",
    "backlog",
    "DELIVERY",
    "Dеlivery",
    "perdure.Delivery",
    "Deliverу",
    "Backlog\t",
)
"""Near the types there are, some with a letter that looks like theirs. A type that is like none may be a later
version's, and waits for its worker."""

ATTRIBUTES = ("PerdureStatus", "PerdureRepository", "PerdureCostUsd", "PerdureLabels", "PerdureWaiting", "BuildIds")


@dataclass(frozen=True)
class Message:
    """One thing that a client does. `act`: start, signal, update or query. `more`: header, and a start's memo.

    starts      whether a signal or an update comes with the start of its run
    attributes  search attributes of a start
    """

    kind: type
    act: str
    name: str
    payloads: tuple[Payload, ...]
    more: tuple[tuple[str, Payload], ...] = ()
    starts: bool = False
    attributes: tuple[tuple[str, Payload], ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(f"{dict(p.metadata)} {p.data[:300]!r}" for p in self.payloads)
        more = f" + {[(name, p.data[:60]) for name, p in self.more]}" if self.more else ""
        more += f" attributes {self.attributes}"[:300] if self.attributes else ""
        return f"{self.act}{' with start' if self.starts else ''} {self.kind.__name__}.{self.name[:60]}({shown}){more}"


def _edge_values() -> st.SearchStrategy[Any]:
    numbers = (0, -1, 2**31, 2**53, 2**63, 2**64, -(2**63), 1e308, float("nan"), float("inf"), 0.1, 10**400)
    texts = ("", "\0", "\ud83d", "ж" * 300, "a\nb", "x" * 20_000, "../../etc/passwd", "2026-01-01T00:00:00Z", "9" * 400)
    texts += ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "9" * 20 + "h", "1e999", "{{}}", "--help")
    deep: Any = None
    for _ in range(300):
        deep = [deep]
    plain = st.sampled_from([*numbers, *texts, None, True, False, [], {}, [[]], {"": None}, deep])
    return st.one_of(plain, st.text(max_size=20), st.integers(), st.lists(plain, max_size=3))


EDGES = _edge_values()


def _strategy_of(schema: dict[str, Any], defs: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
    """Return values that a schema describes, and here and there others."""
    if "$ref" in schema:
        schema = defs[schema["$ref"].rpartition("/")[2]]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return st.one_of([_strategy_of(part, defs, depth + 1) for part in schema[union]])
    if "const" in schema or "enum" in schema:
        return st.sampled_from(schema.get("enum") or [schema["const"]])
    match schema.get("type"):
        case "object" if depth < 7:
            return _object_of(schema, defs, depth)
        case "array" if depth < 7:
            items = schema.get("items")
            inner = _strategy_of(items, defs, depth + 1) if isinstance(items, dict) else EDGES
            return st.lists(inner, max_size=3)
        case "string" if schema.get("format") == "date-time":
            return st.datetimes().map(lambda time: f"{time.isoformat()}Z")
        case "string":
            return st.sampled_from(["api", "page", "/r", "plan", "1h", "d", "a" * 64, "build"]) | st.text(max_size=12)
        case "integer":
            return st.integers(schema.get("minimum", -5), min(schema.get("maximum", 10**6), 10**15))
        case "number":
            return st.floats(0, 100, allow_nan=False) | st.integers(0, 100)
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    return EDGES


def _object_of(schema: dict[str, Any], defs: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    fields = schema.get("properties", {})
    required = set(schema.get("required", ()))
    extra = schema.get("additionalProperties")

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        made = dict[str, Any]()
        share = draw(st.sampled_from([0, 0, 1, 3])) if depth else draw(st.sampled_from([0, 1, 2, 4]))
        for name, part in fields.items():
            if name in required or draw(st.integers(0, 9)) < share:
                inner = st.deferred(lambda part=part: _strategy_of(part, defs, depth + 1))
                made[name] = draw(inner if draw(st.integers(0, 15)) else EDGES)
        if isinstance(extra, dict) and draw(st.booleans()):
            inner = st.deferred(lambda: _strategy_of(extra, defs, depth + 1))
            made |= draw(st.dictionaries(st.sampled_from(["api", "page", "x"]), inner, max_size=2))
        if not draw(st.integers(0, 20)):
            made[draw(st.text(max_size=5))] = draw(EDGES)
        return made

    return build()


def values_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    schema = model.model_json_schema(by_alias=True)
    return _strategy_of(schema, schema.get("$defs", {}))


def _json_payload(value: Any) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


def _raw_payloads() -> st.SearchStrategy[Payload]:
    kinds = [{"encoding": name} for name in (b"json/plain", b"binary/null", b"binary/plain", b"json/protobuf")]
    kinds += [{"encoding": name} for name in (b"binary/protobuf", b"binary/strange", b"binary/encrypted", b"\xff")]
    kinds += [
        {},
        {"encoding": b"json/protobuf", "messageType": b"temporal.api.common.v1.Payload"},
        {"messageType": b"x"},
    ]
    data = st.sampled_from([b"", b"null", b"{", b'{"a": 1}', b"\x00\xff", b"[" * 5000, b'"\xed\xa0\xbd"', b"1" * 5000])
    return st.builds(lambda metadata, data: Payload(metadata=metadata, data=data), st.sampled_from(kinds), data)


def _handlers_of(kind: type) -> list[tuple[str, str, type[BaseModel] | None]]:
    """Act, name and model of every handler."""
    definition = workflow._Definition.must_from_class(kind)
    rows: list[tuple[str, str, type[BaseModel] | None]] = []
    for act, handlers in (("signal", definition.signals), ("update", definition.updates)):
        for name, handler in handlers.items():
            if name is not None:
                hints = [h for n, h in get_type_hints(handler.fn).items() if n != "return"]
                typed = [h for h in hints if inspect.isclass(h) and issubclass(h, BaseModel)]
                rows.append((act, name, typed[0] if typed else UNTYPED.get(name)))
    rows += [("query", name or "x", None) for name in definition.queries]
    rows += [("query", name, None) for name in ("__temporal_workflow_metadata", "__stack_trace", "nothing")]
    if kind is Backlog:
        rows += [("update", name, model) for name, model in DECISION_MODELS.items()]
    return rows


@dataclass(frozen=True)
class Target:
    """The receiver of a message. `models`: those of its arguments; `share`: of all messages, beside the others."""

    kind: type
    act: str
    name: str
    models: tuple[type[BaseModel], ...] = ()
    share: int = 2


def list_targets() -> list[Target]:
    """Every handler of every workflow, names that none has, and every start."""
    targets = [Target(kind, "start", kind.__name__, STARTS[kind], 12) for kind in KINDS]
    targets += [Target(Delivery, "start", name, STARTS[Delivery], 1) for name in MISSPELT_TYPES]
    for kind in KINDS:
        rows = [Target(kind, act, name, (model,) if model else ()) for act, name, model in _handlers_of(kind)]
        targets += rows + [Target(kind, act, name, share=1) for act in ("signal", "update") for name in STRANGE_NAMES]
    return targets


def messages(target: Target) -> st.SearchStrategy[Message]:
    """One message of any client for a target: as its models have it, as another model has it, raw, or too many or too
    few."""
    other = st.sampled_from([*UNTYPED.values(), DeliveryRequest, ResumePoint]).flatmap(values_of)
    anything, raw = EDGES | other, _raw_payloads()
    fitting = [values_of(model) for model in target.models]
    values = st.sampled_from(["", "x", "ж" * 120, "running", 0.5, 1e308, [], ["a", "b"], [""], True, None, {}])

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        shape = draw(st.sampled_from(["fits", "fits", "fits", "other", "raw", "count"]))
        if shape == "fits" and fitting:
            parts = [_json_payload(draw(part)) for part in fitting[: 1 if draw(st.integers(0, 3)) else 2]]
        elif shape == "raw":
            parts = [draw(raw)]
        elif shape == "count":
            parts = [_json_payload(draw(anything)) for _ in range(draw(st.sampled_from([0, 2, 3, 7])))]
        else:
            parts = [_json_payload(draw(anything))]
        if draw(st.integers(0, 7)) == 7:
            parts.append(draw(raw))
        attributes = st.dictionaries(st.sampled_from(ATTRIBUTES), values.map(_json_payload), min_size=1, max_size=3)
        names = st.sampled_from(["resume", "asked", "x", "_tracer-data", "__temporal"])
        fields = st.dictionaries(names, raw | anything.map(_json_payload), max_size=2)
        more = draw(fields) if draw(st.integers(0, 5)) == 5 else {}
        starts = target.act in ("signal", "update") and not draw(st.integers(0, 5))
        indexed = draw(attributes) if target.act == "start" and not draw(st.integers(0, 3)) else {}
        return Message(
            target.kind, target.act, target.name, tuple(parts), tuple(more.items()), starts, tuple(indexed.items())
        )

    return build()


def draw_messages(count: int, seed: int) -> list[Message]:
    """As many messages, of each target its share and at least one; the same for the same seed."""
    targets = list_targets()
    total = sum(target.share for target in targets)
    return [
        message
        for target in targets
        for message in _draw_for(target, max(1, round(count * target.share / total)), seed)
    ]


def _draw_for(target: Target, count: int, seed: int) -> list[Message]:
    drawn = list[Message]()

    @hypothesis.seed(seed)
    @settings(
        max_examples=count + 1, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(messages(target))
    def collect(message: Message) -> None:
        drawn.append(message)

    collect()
    return drawn[-count:]  # the first is always the least


REQUESTS: dict[type, Any] = {
    Delivery: {"repository": "/r", "request": "Add sub", "phases": ["plan", "build"], "gates": ["plan"]},
    Backlog: {"repository": "/r", "items": [{"id": "api", "request": "x"}, {"id": "page", "request": "x"}]},
    Treasury: None,
    Following: {"backlog": "b", "request": {}, "until": "2099-01-01T00:00:00Z"},
    Notification: {"id": "n", "event": "ended", "at": "2026-01-01T00:00:00Z", "delivery": "d", "delivery_id": "d",
                   "run_id": "r", "repository": "/r", "request": "x", "summary": "y"},
}  # fmt: skip
"""The argument with which a running workflow of each type is started."""


def _call() -> timedelta:
    """The longest that a call may take."""
    return timedelta(seconds=patient(20))


UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND
"""No failure: something came in while a run was about to end, and the server has it look at that first."""


@dataclass
class Outcome:
    """The result of sending messages. `sent`: how many the server took; `problems`: by message or run."""

    sent: int = 0
    runs: int = 0
    problems: list[str] = field(default_factory=list)


async def play(client: Client, messages: Sequence[Message], *, at_once: int = 8, a_run: int = 30) -> Outcome:
    """Send all messages, `a_run` of them to one run; then each run has to answer a query, and to end when cancelled."""
    outcome, room = Outcome(), asyncio.Semaphore(at_once)
    groups = list[list[Message]]()
    for kind in REQUESTS:
        sent = [message for message in messages if message.kind is kind and not _begins_a_run(message)]
        groups += [sent[place : place + a_run] for place in range(0, len(sent), a_run)]
    groups += [[message] for message in messages if _begins_a_run(message)]

    async def guarded(group: list[Message]) -> None:
        async with room:
            await (_play_start if _begins_a_run(group[0]) else _play_group)(client, group, outcome)

    await asyncio.gather(*map(guarded, groups))
    return outcome


def _begins_a_run(message: Message) -> bool:
    return message.starts or message.act == "start"


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
        await handle.query("__temporal_workflow_metadata", rpc_timeout=_call())
    return handle


async def _start(client: Client, message: Message) -> WorkflowHandle[Any, Any]:
    """Start a run by a message: as it says, or with a request that fits and the message as its first."""
    id = f"fuzz-{uuid.uuid4().hex[:12]}"
    fields, service = dict(message.more), client.workflow_service
    if not message.starts:
        await service.start_workflow_execution(_start_request(client, id, message.name, message.payloads, message))
        return client.get_workflow_handle(id)
    request = REQUESTS[message.kind]
    fitting = () if request is None else (_json_payload(request),)
    start = _start_request(client, id, message.kind.__name__, fitting)
    if message.act == "signal":
        await service.signal_with_start_workflow_execution(
            SignalWithStartWorkflowExecutionRequest(
                namespace=client.namespace, workflow_id=id, workflow_type=start.workflow_type, input=start.input,
                task_queue=start.task_queue, request_id=id, identity="fuzz", signal_name=message.name,
                signal_input=Payloads(payloads=message.payloads), header=Header(fields=fields),
            )
        )  # fmt: skip
    else:
        start.workflow_id_conflict_policy = WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
        update = ExecuteMultiOperationRequest.Operation(update_workflow=_update_request(client, id, message))
        operations = [ExecuteMultiOperationRequest.Operation(start_workflow=start), update]
        with suppress(RPCError):  # the update may be refused, and its run goes on
            await service.execute_multi_operation(
                ExecuteMultiOperationRequest(namespace=client.namespace, operations=operations), timeout=_call()
            )
    return client.get_workflow_handle(id)


def _start_request(
    client: Client, id: str, name: str, payloads: Sequence[Payload], message: Message | None = None
) -> StartWorkflowExecutionRequest:
    fields = dict(message.more) if message else {}
    return StartWorkflowExecutionRequest(
        namespace=client.namespace, workflow_id=id, workflow_type=WorkflowType(name=name), request_id=id,
        task_queue=TaskQueue(name=TASK_QUEUE), input=Payloads(payloads=payloads), identity="fuzz",
        memo=Memo(fields=fields), header=Header(fields=fields),
        search_attributes=SearchAttributes(indexed_fields=dict(message.attributes)) if message else None,
    )  # fmt: skip


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
            await service.update_workflow_execution(_update_request(client, id, message), timeout=_call())
        case _:
            query = WorkflowQuery(query_type=message.name, query_args=args, header=header)
            await service.query_workflow(
                QueryWorkflowRequest(namespace=namespace, execution=execution, query=query), timeout=_call()
            )


def _update_request(client: Client, id: str, message: Message) -> UpdateWorkflowExecutionRequest:
    """Return an update that waits until it is accepted or refused."""
    stage = UpdateWorkflowExecutionLifecycleStage.UPDATE_WORKFLOW_EXECUTION_LIFECYCLE_STAGE_ACCEPTED
    update = Input(
        header=Header(fields=dict(message.more)), name=message.name, args=Payloads(payloads=message.payloads)
    )
    return UpdateWorkflowExecutionRequest(
        namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=id),
        wait_policy=WaitPolicy(lifecycle_stage=stage),
        request=Request(meta=Meta(update_id=uuid.uuid4().hex, identity="fuzz"), input=update),
    )  # fmt: skip


async def _problem_of(client: Client, handle: WorkflowHandle[Any, Any]) -> str:
    """Query a run, cancel it, wait for its end, and look for failed tasks in its history; return what is wrong."""
    problem = ""
    try:
        async with asyncio.timeout(patient(40)):
            await handle.query("__temporal_workflow_metadata", rpc_timeout=_call())
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


@pytest.mark.timeout(300 + COUNT)
async def test_no_message_stops_a_workflow(client: Client) -> None:
    messages = draw_messages(COUNT, SEED)
    assert {(message.kind, message.act) for message in messages} >= {(kind, "start") for kind in KINDS}
    since = time.monotonic()
    async with playing(client, Script(gates=("plan",)), within=250 + COUNT / A_SECOND * 5):
        outcome = await play(client, messages)
    print(
        f"seed {SEED}: {len(messages)} messages, {outcome.sent} taken by the server, {outcome.runs} runs, "
        f"{time.monotonic() - since:.0f} s, {len(outcome.problems)} problems"
    )
    assert outcome.problems == [], f"{len(outcome.problems)} problems:\n" + "\n".join(outcome.problems[:20])
    assert outcome.sent > COUNT / 2
