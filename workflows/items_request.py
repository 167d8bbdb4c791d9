"""The request of an item's delivery, as its backlog makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from temporalio import workflow

from perdure.models.backlog import LandingPlace
from perdure.models.backlog_state import ItemState
from perdure.models.landing import Resumed, ResumeInput, Vouched, VouchInput
from perdure.models.phases import Phase
from perdure.models.request import DeliveryRequest
from perdure.models.rules.specialists import of_item
from perdure.models.rules.stack import begins_from

if TYPE_CHECKING:
    from workflows.items import Items


T = TypeVar("T")


def _either(own: T | None, all: T | None) -> T | None:
    return own if own is not None else all


async def request_of(items: Items, at: ItemState) -> dict[str, Any]:
    """The item as a delivery's request; a former run's, with the point where it goes on, where there was one."""
    backlog, item, opened = items.request, at.item, items.state.opened
    assert opened is not None
    resumed: dict[str, Any] | None = None
    if at.runs > 1:
        work = ResumeInput(workflow_id=at.delivery)
        resumed = (await items.activity("resume_point", work, Resumed, f"where {item.id} goes on")).request
    budget = at.granted if at.granted is not None else item.budget_usd
    stacked = backlog.land == "stack"
    if stacked and not resumed:
        at.into = begins_from(items.state, item.id)
    raw = DeliveryRequest.model_construct(
        repository=backlog.repository,
        request=item.request,
        base=at.into or opened.branch,
        gates=tuple(backlog.gates),
        budget_usd=budget,
        questions=backlog.questions,
        labels=(*backlog.labels, *item.labels),
        issue=item.issue,
        phases=(Phase.PLAN,) if item.decompose else None,
        attempts=_either(item.attempts, backlog.attempts) if not item.decompose else None,
        after_red=_either(item.after_red, backlog.after_red) if not item.decompose else None,
        model=backlog.model,
        agent=backlog.agent,
        config=backlog.config,
        source=backlog.source,
        landing=LandingPlace(
            backlog=workflow.info().workflow_id,
            item=item.id,
            branch=opened.base if stacked else opened.branch,
            role=item.role,
            decompose=item.decompose,
            within=of_item(opened.within, item),
            ships=stacked,
        ),
    ).model_dump(mode="json", exclude_defaults=True)
    if backlog.proof:
        vouching = VouchInput(
            backlog=workflow.info().workflow_id, said=items.said, workflow_id=at.delivery, request=raw
        )
        vouched = await items.activity("vouch", vouching, Vouched, f"{item.id} is of this backlog")
        raw |= {"proof": vouched.proof} if vouched.proof else {}
    return raw | ({"resume": resumed["resume"]} if resumed and resumed.get("resume") else {})
