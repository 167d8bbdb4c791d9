"""The choice among several attempts at one plan, by their verdicts, and the state in which each begins. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from perdure.models.contract import Contract
from perdure.models.decisions import UserMessage
from perdure.models.forking import ForkedFrom
from perdure.models.phases import Phase
from perdure.models.result import AttemptResult, ReviewStatus, TestsStatus
from perdure.models.state import DeliveryState
from perdure.models.work import PreparedWorkspace

_TESTS_RANKS = {TestsStatus.GREEN: 0, TestsStatus.NONE: 1, TestsStatus.SKIPPED: 1, TestsStatus.RED: 2}
_REVIEW_RANKS = {ReviewStatus.CLEAN: 0, ReviewStatus.SKIPPED: 1, ReviewStatus.BLOCKED: 2}


def best_attempt(attempts: Iterable[AttemptResult]) -> AttemptResult | None:
    """Return the attempt to go on with, of those that made a commit; None: none of them did.

    Sound ones come first, then greener tests and a cleaner review, then the smallest change, the cheapest, the first
    begun. An unknown price counts as dearer than any. Where none is sound, it is the one that comes nearest: the
    delivery fails with it. The order in which they end decides nothing.
    """
    return min((attempt for attempt in attempts if attempt.head), key=_attempt_rank, default=None)


def _attempt_rank(attempt: AttemptResult) -> tuple[bool, int, int, int, int, bool, float, int]:
    """Return an attempt's sort key for the choice, smallest is best."""
    verdicts = _TESTS_RANKS[attempt.tests], _REVIEW_RANKS[attempt.review.status], attempt.review.blockers
    return (
        not attempt.is_sound,
        *verdicts,
        attempt.lines,
        attempt.cost_usd is None,
        attempt.cost_usd or 0.0,
        attempt.number,
    )


def attempt_workflow_id(workflow_id: str, number: int) -> str:
    """Return the workflow id of one attempt of a delivery."""
    return f"{workflow_id}/attempt-{number}"


def initial_attempt_state(state: DeliveryState, prepared: PreparedWorkspace, number: int, count: int) -> DeliveryState:
    """Return the state in which an attempt begins: plan, files and messages that the delivery had after planning.

    A message to its agent is added: it is attempt `number` of `count`, and the best one is taken.
    """
    instruction = (
        f"This is attempt {number} of {count} at this plan. Each is built by itself, and the best one is taken: go "
    )
    instruction += "the way that you find best, whatever the others do."
    return DeliveryState(
        prepared=prepared,
        kind=state.kind,
        title=state.title,
        plan=state.plan,
        plan_text=state.plan_text,
        checkpoint=state.planned_checkpoint,
        delivered_messages=state.delivered_messages,
        pending_messages=(
            *(message for message in state.pending_messages),
            UserMessage(id="attempt", text=instruction),
        ),
        plans=state.plans,
        assumptions=state.assumptions,
    )


def attempt_settings(contract: Contract) -> dict[str, Any]:
    """Return the fields of PreparedWorkspace that say how many attempts are made at a plan; empty: it is built once.

    It is built once on an existing branch, as a task of a plan, and where the phases have no build.
    """
    settings = contract.config.delivery
    if contract.existing or contract.is_task or Phase.BUILD not in settings.phases:
        return {}
    return {"attempts": settings.attempts, "after_red": settings.after_red}


def attempt_overrides(forked: ForkedFrom | None) -> dict[str, Any]:
    """Return the fields of PreparedWorkspace that are switched off in an attempt.

    Nobody is asked about an attempt alone, or told of it.

    forked  where the delivery was forked from; empty for one that is no attempt
    """
    if forked is None or not forked.attempt:
        return {}
    return {"asks": False, "gates": (), "notifies": False, "comments_at_gates": False}


def attempts_summary(attempts: Sequence[AttemptResult]) -> str:
    """Return one line for people: the attempt that was chosen, or how each one ended where none was."""
    chosen = next((attempt for attempt in attempts if attempt.chosen), None)
    shown = [chosen] if chosen is not None else attempts
    return f"of {len(attempts)}, " + " · ".join(attempt.summary_line for attempt in shown)
