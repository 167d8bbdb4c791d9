"""The request of an item's delivery, as its backlog makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import workflow

from perdure.models.backlog import LandingPlace
from perdure.models.backlog_state import ItemState
from perdure.models.landing import ResumeInput, ResumeResult, SignRequestInput, SignRequestResult
from perdure.models.phases import Phase
from perdure.models.request import DeliveryRequest
from perdure.models.rules.specialists import parent_of_task
from perdure.models.rules.stack import start_branch

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
