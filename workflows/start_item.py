"""The start of an item's delivery: the request that its backlog makes for it, and the start itself. Messages that come
meanwhile count: what was left out, cancelled or held by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from perdure.models.backlog.landing import ResumeInput, ResumeResult, SignRequestInput, SignRequestResult
from perdure.models.backlog.request import LandingPlace
from perdure.models.backlog.state import SATISFIED, BacklogState, ItemPhase, ItemState
from perdure.models.concurrency_limit import fairness_key, temporal_priority
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.phases import Phase
from perdure.models.rules.changes import end_idle_item
from perdure.models.rules.dependencies import start_branch
from perdure.models.rules.parallel_builds import parent_of_task
from perdure.models.rules.scheduling import ItemStart
from workflows.endings import interpret_failure

if TYPE_CHECKING:
    from workflows.items import Items


T = TypeVar("T")


def _own_or_default(own: T | None, default: T | None) -> T | None:
    return own if own is not None else default


async def make_item_request(items: Items, entry: ItemState) -> dict[str, Any]:
    """Make the request of an item's delivery, as JSON; of a later run with the point where it goes on, if there is one.

    Records in the item the branch that it begins from, in a stack. Signed where the backlog came with a proof. Raises
    ActivityError.
    """
    backlog, item, opened = items.request, entry.item, items.state.opened
    assert opened is not None
    resumed_request: dict[str, Any] | None = None
    if entry.runs > 1:
        work = ResumeInput(workflow_id=entry.delivery)
        resumed_request = (
            await items.run_activity("resume_point", work, ResumeResult, f"where {item.id} goes on")
        ).request
    budget = entry.granted_usd if entry.granted_usd is not None else item.budget_usd
    is_stacked = backlog.land == "stack"
    if is_stacked and not resumed_request:
        entry.into = start_branch(items.state, item.id)
    raw = DeliveryRequest.model_construct(
        repository=backlog.repository,
        request=item.request,
        base=entry.into or opened.branch,
        gates=tuple(backlog.gates),
        budget_usd=budget,
        questions=backlog.questions,
        labels=(*backlog.labels, *item.labels),
        issue=item.issue,
        phases=(Phase.PLAN,) if item.decompose else None,
        attempts=_own_or_default(item.attempts, backlog.attempts) if not item.decompose else None,
        after_red=_own_or_default(item.after_red, backlog.after_red) if not item.decompose else None,
        model=backlog.model,
        agent=backlog.agent,
        config=backlog.config,
        source=backlog.source,
        landing=LandingPlace(
            backlog=workflow.info().workflow_id,
            item=item.id,
            branch=opened.base if is_stacked else opened.branch,
            role=item.role,
            decompose=item.decompose,
            within=parent_of_task(opened.within, item),
            ships=is_stacked,
        ),
    ).model_dump(mode="json", exclude_defaults=True)
    if backlog.proof:
        sign_input = SignRequestInput(
            backlog=workflow.info().workflow_id,
            backlog_request=items.request_fields,
            workflow_id=entry.delivery,
            request=raw,
        )
        signed = await items.run_activity("vouch", sign_input, SignRequestResult, f"{item.id} is of this backlog")
        raw |= {"proof": signed.proof} if signed.proof else {}
    return raw | ({"resume": resumed_request["resume"]} if resumed_request and resumed_request.get("resume") else {})


async def start_item(items: Items, start: ItemStart) -> None:
    """Start an item's delivery, as another run where there were runs before; one that is running already is adopted.
    Does nothing where the item may no longer start.

    A cancellation or hold that came while it started is passed on to it.
    """
    entry = items.state.items[start.id]
    if not _may_still_start(items.state, entry):
        return
    entry.phase, entry.runs, entry.began_at, entry.granted_usd = (
        ItemPhase.BUILDING,
        entry.runs + 1,
        workflow.now(),
        start.usd,
    )
    entry.delivery = f"{workflow.info().workflow_id}/{start.id}"
    entry.waiting_for = entry.gate = entry.target = entry.message = entry.status = entry.reason = ""
    items.starting[start.id] = None
    try:
        await _start_delivery(items, start, entry)
    finally:
        cancelled = items.starting.pop(start.id)
    if entry.phase is ItemPhase.BUILDING and cancelled is not None:
        await items.cancel_delivery(start.id)
    if entry.phase is ItemPhase.BUILDING and items.state.hold_reason:
        await items.signal_delivery(
            start.id, "hold", {"note": items.state.hold_reason.removeprefix("held").removeprefix(": ")}
        )


async def _start_delivery(items: Items, start: ItemStart, entry: ItemState) -> None:
    """Start the child workflow of an item's delivery, and send it what people have said so far.

    Not started where the item was cancelled or everything held while its request was made. Where the delivery runs
    already, the item is noted in `items.unsure`; where an activity fails, the item has failed.
    """
    try:
        raw = await make_item_request(items, entry)
        if (note := items.starting[start.id]) is not None:
            entry.runs -= 1  # no run was started
            return end_idle_item(entry, ItemPhase.CANCELLED, note, workflow.now())
        if items.state.hold_reason:
            entry.phase, entry.runs, entry.granted_usd = ItemPhase.WAITING, entry.runs - 1, None
            return None
        child: ChildWorkflowHandle[Any, Any] = await workflow.start_child_workflow(
            "Delivery",
            raw,
            id=entry.delivery,
            task_queue=TASK_QUEUE,
            task_timeout=WORKFLOW_TASK,
            parent_close_policy=ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            static_summary=f"{start.id}: {entry.item.request}"[:100],
            priority=Priority(temporal_priority(entry.item.priority), fairness_key(entry.delivery, raw)),
        )
    except WorkflowAlreadyStartedError:
        items.unsure.add(start.id)
    except ActivityError as error:
        entry.phase, entry.message, entry.ended_at = ItemPhase.FAILED, failure_reason(error)[:300], workflow.now()
        items.changed = True
    else:
        entry.run_id = child.first_execution_run_id or ""
        items.watch_child(start.id, child)
        for message in items.state.task_messages:
            await items.signal_delivery(start.id, "say", {"id": message.id, "text": message.text})


def failure_reason(error: ActivityError) -> str:
    """Return why an activity failed, as text that people can use."""
    meaning = interpret_failure(error)
    text = meaning.message if isinstance(meaning, ApplicationError) else str(meaning)
    return text.removeprefix("InvalidRequest: ")


def _may_still_start(state: BacklogState, entry: ItemState) -> bool:
    """Return whether an item still waits to be started, nothing is held, and all it depends on is satisfied. Messages
    may have changed that since it was decided, while another one was started."""
    dependencies = [state.items[id] for id in entry.item.depends_on if id in state.items]
    return (
        entry.phase is ItemPhase.WAITING
        and not state.hold_reason
        and all(dependency.phase in SATISFIED for dependency in dependencies)
    )
