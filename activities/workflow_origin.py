"""The origin of a workflow, and of the state that it begins with: asked of the server before a worker does anything for
it. Class `OriginInterceptor` asks so before every activity, and activity `former_run` for a backlog, which says itself
what is wrong. A home asks once a run: it keeps which ones it has accepted (perdure/adapters/worker/origin_record.py).

Whoever may start workflows may start ours with any state, and may call our activities from workflows of their own. The
server alone knows which run went on in which, which workflow began which, and what is in a run's history; nobody can
send that. So state counts only where a run of ours has left it: the run that went on as this one, the workflow that
began it, or an ended run, or another delivery's turn, whose state is made again from its history and compared.

Effect: none. Key: the run that calls.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import ContinueAsNewInitiator
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from activities.workflow_lookup import describe_workflow, start_attributes
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.origin_record import AcceptedRuns
from perdure.client.delivery.turns import find_turn, state_before, turns_of_runs
from perdure.client.history.runs import read_run, read_runs
from perdure.client.server.view import exact_id_query
from perdure.models.backlog.state import BacklogState, PreviousRunInput, PreviousRunResult, state_digest
from perdure.models.delivery.request import DeliveryRequest, ResumePoint, parse_request
from perdure.models.delivery.state import BudgetState, DeliveryState
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import RPC_TIMEOUT, TASK_QUEUE
from perdure.models.notice import Notice, trial_notice
from perdure.models.rules.changes import reopen_backlog
from perdure.models.rules.inbox import NotCounted
from perdure.text import shorten

UNKNOWN_STATE = "its state comes from no run before it: start it with its items alone"
UNKNOWN_NOTICE = "a notice is sent for the delivery or backlog that it is about, which starts it"
UNKNOWN_RESUME = "resume: that state comes from no run before it: start it without, or: perdure retry, rewind or fork"

QUERY_TIMEOUT = timedelta(seconds=20)
"""The time a worker has to replay a thousand events of the ended run; after that the activity is tried again."""

CHAIN_MOST = 1000
"""Runs that are looked back through, from one that went on as the next to the first of them, or to one that this home
has accepted: 10 s of a server, within the time after which an activity without a heartbeat is tried again. No backlog
comes near it."""

EVENTS_A_PAGE = 100
"""Events that the server is asked for at a time, the newest first: most of what is looked for is among the last few."""

CALLED_ALONE = frozenset({"read", "read_issue", "keep", "spent", "verify", "verify_published", "aim"})
"""Activities that clients call without a workflow: they read a delivery, or an issue that one could be
started for, or store a text for it."""

ASKED_BY_ANY = ("former_run", "has_subscribers")
"""Activities that are for a workflow of any origin: the one whose result is the answer, as its workflow ends by it in
words of its own; and whether anybody wants to hear of a request that was refused."""


class OriginInterceptor(Interceptor):
    """An interceptor that lets an activity run only for a workflow of ours, with a state of ours."""

    def __init__(self, client: Client, accepted: AcceptedRuns) -> None:
        self._client, self._accepted = client, accepted

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _OriginActivityInterceptor(next, self)

    async def find_problem(self, info: activity.Info) -> str:
        """Return why nothing is done for the workflow that calls; empty: it is one of ours. Raises RPCError, which is
        retried, when the server does not answer."""
        if info.workflow_id is None or info.workflow_run_id is None:
            return "" if info.activity_type in CALLED_ALONE else f"{info.activity_type} is called by {FOREIGN}"
        if info.activity_type in ASKED_BY_ANY:
            return ""
        return await origin_problem(self._client, self._accepted, info.workflow_id, info.workflow_run_id)


class _OriginActivityInterceptor(ActivityInboundInterceptor):
    """The activity side of OriginInterceptor."""

    def __init__(self, next: ActivityInboundInterceptor, origins: OriginInterceptor) -> None:
        super().__init__(next)
        self._origins = origins

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        """Run the activity. Raises ApplicationError InvalidRequest, not retried, when its caller is none of ours."""
        if problem := await self._origins.find_problem(activity.info()):
            raise ApplicationError(problem, type=InvalidRequest.__name__, non_retryable=True)
        return await self.next.execute_activity(input)


class PreviousRunActivity:
    """The activity by which a backlog asks for the origin of its state."""

    def __init__(self, accepted: AcceptedRuns) -> None:
        self._accepted = accepted

    @activity.defn
    async def former_run(self, work: PreviousRunInput) -> PreviousRunResult:
        """Check that the state of a backlog's run comes from an earlier run of it, from the delivery whose tasks it
        builds, or from an ended run that was reopened; return the reason why it does not, empty when it does. Raises
        RPCError, which is retried, when the server does not answer."""
        run_id = activity.info().workflow_run_id or ""
        return PreviousRunResult(reason=await origin_problem(activity.client(), self._accepted, work.backlog, run_id))


FOREIGN = "no workflow of Perdure's"


async def origin_problem(client: Client, accepted: AcceptedRuns, id: str, run_id: str) -> str:
    """Return why a run is none of ours or begins with a state that no run of ours has left; empty: all is well. A run
    that this home has accepted is not asked about again. Raises RPCError when the server does not answer."""
    if (id, run_id) in accepted:
        return ""
    problem = await _ask_origin(client, accepted, id, run_id)
    if not problem:
        await in_thread(accepted.add, (id, run_id))
    return problem


async def _ask_origin(client: Client, accepted: AcceptedRuns, id: str, run_id: str) -> str:
    """Ask the server about a run and the runs that went on as it, back to the first of them or to one that this home
    has accepted, and return what `origin_problem` says."""
    for _ in range(CHAIN_MOST):
        description = await describe_workflow(client, id, run_id)
        if description is None or not _is_ours(description):
            return f"{shorten(id, 100)} is {FOREIGN}: it is not on queue {TASK_QUEUE}"
        started = await start_attributes(client.get_workflow_handle(id, run_id=run_id))
        if started is None:
            return f"{shorten(id, 100)} has no beginning"
        # A reset copies the beginning: the run that it came from may have been accepted, and what that goes on from may
        # be gone since.
        if (id, started.original_execution_run_id) in accepted:
            return ""
        arguments = await client.data_converter.decode_wrapper(started.input)
        if not _takes_state(description.workflow_type, arguments):
            return ""
        if not started.continued_execution_run_id:
            return await _ORIGINS[description.workflow_type](client, accepted, description, started, arguments)
        # The first event of the run that asks says so; the event that closed the run before leaves it out (seen with
        # 1.32.0). A retry policy or a cron schedule of whoever started it begins the next run with what was sent.
        former = await describe_workflow(client, id, started.continued_execution_run_id)
        if (
            started.initiator != ContinueAsNewInitiator.CONTINUE_AS_NEW_INITIATOR_WORKFLOW
            or not _is_ours(former)
            or former is None
            or former.workflow_type != description.workflow_type
        ):
            return _UNKNOWN[description.workflow_type]
        run_id = started.continued_execution_run_id
        if (id, run_id) in accepted:
            return ""
    return f"it has gone on in more than {CHAIN_MOST} runs, of which this home knows none"


def _is_ours(description: WorkflowExecutionDescription | None) -> bool:
    """Return whether the workflow exists, is of one of our types, and runs or ran on our own task queue."""
    return description is not None and description.workflow_type in _UNKNOWN and description.task_queue == TASK_QUEUE


def _takes_state(kind: str, arguments: list[Any]) -> bool:
    """Return whether a workflow of this type was started with a state, or as part of another workflow's work."""
    first = arguments[0] if arguments else None
    if kind == "Delivery" and isinstance(first, dict):
        return bool(first.get("resume") or first.get("landing"))
    return kind in ("Following", "Notification") or (
        kind == "Backlog" and len(arguments) > 1 and arguments[1] is not None
    )


async def _parent_problem(
    client: Client, accepted: AcceptedRuns, started: WorkflowExecutionStartedEventAttributes, kind: str, unknown: str
) -> str:
    """Return `unknown` unless a workflow of this type and of ours has begun the run, and begins itself with a state of
    ours; then return an empty text."""
    parent = started.parent_workflow_execution
    description = await describe_workflow(client, parent.workflow_id, parent.run_id) if parent.workflow_id else None
    if description is None or description.workflow_type != kind:
        return unknown
    return unknown if await origin_problem(client, accepted, parent.workflow_id, parent.run_id) else ""


async def _notice_problem(
    client: Client,
    accepted: AcceptedRuns,
    description: WorkflowExecutionDescription,
    started: WorkflowExecutionStartedEventAttributes,
    arguments: list[Any],
) -> str:
    """Return why a notice is not one of the delivery or backlog that it is about; empty: it is, or it is the trial that
    anybody may send, which says nothing else. That a request was refused is told of any of our workflows, whatever
    state that request names."""
    parent_id, is_refusal = started.parent_workflow_execution.workflow_id, False
    with suppress(IndexError, ValidationError):
        notice = Notice.model_validate(arguments[0])
        is_refusal = notice.event == "ended" and notice.refused
        if not parent_id and notice == trial_notice(description.id, notice.at):
            return ""
    if not arguments or not isinstance(arguments[0], dict) or arguments[0].get("delivery_id") != parent_id:
        return UNKNOWN_NOTICE
    parent = await describe_workflow(client, parent_id, started.parent_workflow_execution.run_id)
    kind = parent.workflow_type if parent is not None else ""
    if is_refusal and kind in ("Delivery", "Backlog") and _is_ours(parent):
        return ""
    return await _parent_problem(client, accepted, started, kind, UNKNOWN_NOTICE)


async def _delivery_problem(
    client: Client,
    accepted: AcceptedRuns,
    description: WorkflowExecutionDescription,
    started: WorkflowExecutionStartedEventAttributes,
    arguments: list[Any],
) -> str:
    """Return why the state of a delivery, or its place on a backlog, is not one that was left by a run of ours; empty:
    it is. Raises RPCError when the server does not answer."""
    try:
        request = parse_request(arguments[0])
        if (resume := request.resume) is not None and resume.continued:
            return UNKNOWN_RESUME  # the server would know of it
        if resume is None:
            return await _parent_problem(
                client, accepted, started, "Backlog", "landing: a backlog's deliveries are begun by it"
            )
        if request.forked is not None and request.forked.attempt:
            return await _parent_problem(client, accepted, started, "Delivery", UNKNOWN_RESUME)
        expected_states = await _left_states(client, accepted, description, request, resume)
        claims = _claimed_fields(DeliveryState.model_validate(resume.state), is_rewound=bool(resume.rewound))
        known = (_claimed_fields(state, is_rewound=bool(resume.rewound)) for state in expected_states)
    except (InvalidRequest, BadInput, ValidationError) as error:
        return f"resume: {shorten(str(error), 300)}".partition("\n")[0]
    return "" if claims in known else UNKNOWN_RESUME


async def _left_states(
    client: Client,
    accepted: AcceptedRuns,
    description: WorkflowExecutionDescription,
    request: DeliveryRequest,
    resume: ResumePoint,
) -> list[DeliveryState]:
    """Return the states that were left where the delivery is said to go on: that of an ended run of its own, or those
    before the turn of another delivery that it is forked at; none when these are not ours. Raises BadInput for a turn
    that is not there, RPCError when the server does not answer."""
    states = list[DeliveryState]()
    if (forked := request.forked) is not None and not resume.run_id:
        newest = await describe_workflow(client, forked.delivery)
        if newest is None or await origin_problem(client, accepted, forked.delivery, newest.run_id):
            return []
        for run_history in await read_runs(client, forked.delivery, newest.run_id):
            own_turns = [turn for turn in turns_of_runs([run_history]) if turn.place == forked.at]
            states += [_with_budget(state_before(run_history, turn), BudgetState()) for turn in own_turns]
        return [state for state in states if state.turns.checkpoint == forked.checkpoint]
    former = await describe_workflow(client, description.id, resume.run_id) if resume.run_id else None
    if (
        former is None
        or former.workflow_type != "Delivery"
        or former.status == WorkflowExecutionStatus.RUNNING
        or await origin_problem(client, accepted, description.id, resume.run_id)
    ):
        return []
    if resume.rewound:
        run_history = await read_run(client, description.id, resume.run_id)
        before = state_before(run_history, find_turn(turns_of_runs([run_history]), resume.rewound))
        return [
            before,
            *[_with_budget(before, budget) for budget in await _budget_before(client, accepted, description)],
        ]
    state_json = await _state_left(client, description.id, resume.run_id)
    return [DeliveryState.model_validate(state_json).for_retry()] if state_json is not None else []


def _with_budget(state: DeliveryState, budget: BudgetState) -> DeliveryState:
    """Return a copy of a state with this budget: a fork begins without what people added, a rewound delivery keeps
    it."""
    return state.model_copy(update={"budget": budget})


async def _budget_before(
    client: Client, accepted: AcceptedRuns, description: WorkflowExecutionDescription
) -> list[BudgetState]:
    """Return the budget that the run of ours just before this one of the same delivery has left; none when it left
    none."""
    began = description.start_time
    others = [one async for one in client.list_workflows(exact_id_query(description.id)) if one.start_time < began]
    for former in sorted(others, key=lambda execution: execution.start_time, reverse=True):
        if not await origin_problem(client, accepted, former.id, former.run_id):  # anybody can start one in between
            state_json = await _state_left(client, former.id, former.run_id)
            return [DeliveryState.model_validate(state_json).budget] if state_json is not None else []
    return []


async def _state_left(client: Client, id: str, run_id: str) -> dict[str, Any] | None:
    """Return the state that a delivery's run has left in its history: with the run that goes on from it, or in its
    memo; None: none. The memo that a run was started with does not count: whoever started it chose it."""
    converter = client.data_converter
    async for event in read_backwards(client, WorkflowExecution(workflow_id=id, run_id=run_id)):
        went_on = event.workflow_execution_continued_as_new_event_attributes
        if went_on.input.payloads:
            point = (await converter.decode_wrapper(went_on.input))[0].get("resume")
            return point["state"] if point else None
        memo = event.workflow_properties_modified_event_attributes.upserted_memo.fields
        if "resume" in memo:
            state: dict[str, Any] = (await converter.decode([memo["resume"]]))[0]["state"]
            return state
    return None


async def read_backwards(client: Client, execution: WorkflowExecution) -> AsyncIterator[HistoryEvent]:
    """Yield the events of a run's history, the newest first. Raises RPCError when the server does not answer."""
    token = b""
    while True:
        page = await client.workflow_service.get_workflow_execution_history_reverse(
            GetWorkflowExecutionHistoryReverseRequest(
                namespace=client.namespace,
                execution=execution,
                maximum_page_size=EVENTS_A_PAGE,
                next_page_token=token,
            ),
            timeout=RPC_TIMEOUT,
        )
        for event in page.history.events:
            yield event
        if not (token := page.next_page_token):
            return


_FORGOTTEN = {
    "prepared": {"contract", "agents"},
    "children": {"ids", "usd", "budget_raises"},
    "gates": {"pending_decision", "deaths", "hold_reason", "rewinding_to"},
    "turns": {"sample"},
    "budget": {"started", "reservation", "breaches"},
}
"""Fields that a rewind or a fork sets anew. The contract has a signature of its own; the others claim no work."""

_CLAIMED = frozenset({*_FORGOTTEN, "planning", "building", "testing", "reviewing", "fixing", "publishing", "landing"})


def _claimed_fields(state: DeliveryState, *, is_rewound: bool) -> dict[str, Any]:
    """Return what a state says was done, decided and allowed. `is_rewound`: contract and models may be others."""
    exclude: Mapping[str, Any] = _FORGOTTEN if is_rewound else {**_FORGOTTEN, "prepared": {"summary"}}
    return state.model_dump(mode="json", include=set(_CLAIMED), exclude=dict(exclude))


async def _backlog_problem(
    client: Client,
    accepted: AcceptedRuns,
    description: WorkflowExecutionDescription,
    started: WorkflowExecutionStartedEventAttributes,
    arguments: list[Any],
) -> str:
    """Return why a backlog's state is not that of its parent delivery, or of the ended run it names with the change
    applied to it; empty: it is.

    Asks the ended run for its state by a query, applies the change, and compares the digests. A request that is not the
    ended run's, a change that is refused, and a run that is missing, still running or cannot be replayed are reasons
    too. Raises RPCError when server or worker does not answer.
    """
    if started.parent_workflow_execution.workflow_id:
        return await _parent_problem(client, accepted, started, "Delivery", UNKNOWN_STATE)
    try:
        state = BacklogState.model_validate(arguments[1])
    except ValidationError:
        return UNKNOWN_STATE
    if (reopened_from := state.reopened_from) is None:
        return UNKNOWN_STATE
    former = await describe_workflow(client, description.id, reopened_from.run_id)
    if (
        former is None
        or not _is_ours(former)
        or former.workflow_type != "Backlog"
        or former.status == WorkflowExecutionStatus.RUNNING
    ):
        return UNKNOWN_STATE
    handle: WorkflowHandle[Any, Any] = client.get_workflow_handle(description.id, run_id=former.run_id)
    former_start = await start_attributes(handle)
    raws = await client.data_converter.decode_wrapper(former_start.input) if former_start is not None else []
    if _without_items(raws) != _without_items(arguments):
        return f"its request is not that of the run before it ({former.run_id})"
    try:
        ended_state: BacklogState = await handle.query("state", result_type=BacklogState, rpc_timeout=QUERY_TIMEOUT)
        expected_state = reopen_backlog(
            ended_state,
            reopened_from.change,
            reopened_from.item,
            reopened_from.note,
            reopened_from.changed_at or datetime.now(UTC),
        )
    except NotCounted as error:
        return error.what
    except WorkflowQueryFailedError as error:
        return shorten(f"the run before it ({former.run_id}) cannot be read: {error}", 300)
    if not ended_state.items or state_digest(expected_state) != state_digest(state):
        return f"its state is not that of the run before it ({former.run_id})"
    return ""


def _without_items(arguments: list[Any]) -> dict[str, Any]:
    """Return a backlog's request, the first argument that it was started with, without its items."""
    raw = arguments[0] if arguments and isinstance(arguments[0], dict) else {}
    return {name: value for name, value in raw.items() if name != "items"}


async def _stack_problem(
    client: Client,
    accepted: AcceptedRuns,
    description: WorkflowExecutionDescription,
    started: WorkflowExecutionStartedEventAttributes,
    arguments: list[Any],
) -> str:
    """Return why a stack that is followed is not one of the backlog that began this run; empty: it is."""
    return await _parent_problem(client, accepted, started, "Backlog", UNKNOWN_STATE)


Origin = Callable[
    [Client, AcceptedRuns, WorkflowExecutionDescription, WorkflowExecutionStartedEventAttributes, list[Any]],
    Awaitable[str],
]
_ORIGINS: Mapping[str, Origin] = {
    "Delivery": _delivery_problem,
    "Backlog": _backlog_problem,
    "Following": _stack_problem,
    "Notification": _notice_problem,
}
_UNKNOWN = {
    "Delivery": UNKNOWN_RESUME,
    "Backlog": UNKNOWN_STATE,
    "Following": UNKNOWN_STATE,
    "Notification": UNKNOWN_NOTICE,
    "Treasury": "",
}
"""Our workflow types, and what is said of a state that no run of ours has left. The Treasury takes none from whoever
starts it, but the name of the run before it."""
