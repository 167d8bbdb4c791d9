"""The choice among several attempts at one plan, by verdict, and how each of them begins. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.models.contract import Contract
from perdure.models.decisions import Said
from perdure.models.forking import ForkedFrom
from perdure.models.phases import Phase
from perdure.models.result import Attempted, ReviewStatus, TestsStatus
from perdure.models.state import DeliveryState
from perdure.models.work import Prepared

_TESTS = {TestsStatus.GREEN: 0, TestsStatus.NONE: 1, TestsStatus.SKIPPED: 1, TestsStatus.RED: 2}
_REVIEW = {ReviewStatus.CLEAN: 0, ReviewStatus.SKIPPED: 1, ReviewStatus.BLOCKED: 2}


def best(attempts: Iterable[Attempted]) -> Attempted | None:
    """The one to go on with, sound ones first: the smallest change; of equal ones the cheapest, then the first begun.

    An unknown price is no cheap one. Where none is sound, the one that comes nearest: it is what the delivery fails
    with. None: none of them made a commit. The order in which they end decides nothing.
    """
    return min((one for one in attempts if one.head), key=_order, default=None)


def _order(one: Attempted) -> tuple[bool, int, int, int, int, bool, float, int]:
    verdicts = _TESTS[one.tests], _REVIEW[one.review.status], one.review.blockers
    return not one.sound, *verdicts, one.lines, one.cost_usd is None, one.cost_usd or 0.0, one.number


def attempt_of(workflow_id: str, number: int) -> str:
    """The workflow id of one attempt of a delivery."""
    return f"{workflow_id}/attempt-{number}"


def beginning(state: DeliveryState, prepared: Prepared, number: int, count: int) -> DeliveryState:
    """The state of an attempt as it begins: the plan, the files and the words that the delivery had after planning."""
    words = f"This is attempt {number} of {count} at this plan. Each is built by itself, and the best one is taken: go "
    words += "the way that you find best, whatever the others do."
    return DeliveryState(
        prepared=prepared,
        kind=state.kind,
        title=state.title,
        plan=state.plan,
        plan_words=state.plan_words,
        checkpoint=state.planned,
        told=state.told,
        said=(*(one for one in state.said), Said(id="attempt", text=words)),
        plans=state.plans,
        assumptions=state.assumptions,
    )


def several(contract: Contract) -> dict[str, Any]:
    """The fields of Prepared that say how often a plan is built: once on a branch that is there, and as a task."""
    settings = contract.config.delivery
    if contract.existing or contract.task or Phase.BUILD not in settings.phases:
        return {}
    return {"attempts": settings.attempts, "after_red": settings.after_red}


def of_attempt(forked: ForkedFrom | None) -> dict[str, Any]:
    """The rest of what is prepared for an attempt: nobody is asked about it alone, or told of it."""
    if forked is None or not forked.attempt:
        return {}
    return {"asks": False, "gates": (), "notifies": False, "comments_at_gates": False}


def summary(attempts: Sequence[Attempted]) -> str:
    """In one line: which was chosen, or what became of each where nobody has made anything."""
    chosen = next((one for one in attempts if one.chosen), None)
    shown = [chosen] if chosen is not None else attempts
    return f"of {len(attempts)}, " + " · ".join(one.line for one in shown)
