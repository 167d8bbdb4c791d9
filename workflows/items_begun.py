"""The beginning of an item's delivery. Messages come meanwhile: what was left out, cancelled or held since counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from temporalio import workflow
from temporalio.common import Priority, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from perdure.models.backlog_state import SATISFIED, BacklogState, ItemPhase, ItemState
from perdure.models.fairness import shared_with, urgency
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.rules.changes import leave_out
from perdure.models.rules.scheduling import Start
from workflows.endings import interpret
from workflows.items_request import request_of

if TYPE_CHECKING:
    from workflows.items import Items

MEANWHILE = "heard-as-it-begins"
"""The patch: before it, what was begun went on whatever had been said since it was decided that it begins."""

UNBEGUN = "held-before-it-begins"
"""The patch: before it, what was held as it began was started and then told, and might have paid for a turn by then."""


async def begin(items: Items, start: Start) -> None:
    """Begin an item's delivery; one that is there already is adopted. What may no longer begin does not."""
    at = items.state.items[start.id]
    if not _may_still(items.state, at) and workflow.patched(MEANWHILE):
        return
    at.phase, at.runs, at.began, at.granted = ItemPhase.BUILDING, at.runs + 1, workflow.now(), start.usd
    at.delivery = f"{workflow.info().workflow_id}/{start.id}"
    at.waits = at.gate = at.of = at.words = at.status = at.reason = ""
    items.beginning[start.id] = None
    try:
        await _begun(items, start, at)
    finally:
        cancelled = items.beginning.pop(start.id)
    if at.phase is ItemPhase.BUILDING and cancelled is not None:
        await items.cancel_item(start.id)
    if at.phase is ItemPhase.BUILDING and items.state.held and workflow.patched(MEANWHILE):
        await items.tell(start.id, "hold", {"note": items.state.held.removeprefix("held").removeprefix(": ")})


async def _begun(items: Items, start: Start, at: ItemState) -> None:
    try:
        raw = await request_of(items, at)
        if (note := items.beginning[start.id]) is not None:
            at.runs -= 1  # nothing of it was ever there
            return leave_out(at, ItemPhase.CANCELLED, note, workflow.now())
        if items.state.held and workflow.patched(UNBEGUN):
            at.phase, at.runs, at.granted = ItemPhase.WAITING, at.runs - 1, None
            return None
        child: ChildWorkflowHandle[Any, Any] = await workflow.start_child_workflow(
            "Delivery",
            raw,
            id=at.delivery,
            task_queue=TASK_QUEUE,
            task_timeout=WORKFLOW_TASK,
            parent_close_policy=ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            static_summary=f"{start.id}: {at.item.request}"[:100],
            priority=Priority(urgency(at.item.priority), shared_with(at.delivery, raw)),
        )
    except WorkflowAlreadyStartedError:
        items.unsure.add(start.id)
    except ActivityError as error:
        at.phase, at.words, at.ended = ItemPhase.FAILED, why(error)[:300], workflow.now()
        items.changed = True
    else:
        at.run_id = child.first_execution_run_id or ""
        items.heed(start.id, child)
        for said in items.state.said:
            await items.tell(start.id, "say", {"id": said.id, "text": said.text})


def why(error: ActivityError) -> str:
    """The failure of an activity, in words that its sender can use."""
    meaning = interpret(error)
    words = meaning.message if isinstance(meaning, ApplicationError) else str(meaning)
    return words.removeprefix("InvalidRequest: ")


def _may_still(state: BacklogState, at: ItemState) -> bool:
    """False where somebody has said otherwise since it was decided, while another one was begun."""
    after = [state.items[id] for id in at.item.depends_on if id in state.items]
    return at.phase is ItemPhase.WAITING and not state.held and all(one.phase in SATISFIED for one in after)
