"""What nobody needs to hear of any more is not told."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure.models.delivery.decisions import Gate, PendingDecision
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import DeliveryResult, Status
from perdure.models.delivery.state import DeliveryState, GatesState
from perdure.models.notice import Notice, notice_of

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
PLAN = PendingDecision(gate=Gate.PLAN, target="1a2b", summary="approve the plan", since=NOON)
OTHER = PLAN.model_copy(update={"target": "3c4d"})
BUDGET = DeliveryState(waiting="the day's budget of label team-a is spent")


@pytest.mark.parametrize(
    ("told_of", "now", "over"),
    [
        (
            DeliveryState(gates=GatesState(pending_decision=PLAN)),
            DeliveryState(gates=GatesState(pending_decision=PLAN)),
            False,
        ),
        (
            DeliveryState(gates=GatesState(pending_decision=PLAN)),
            DeliveryState(gates=GatesState(pending_decision=OTHER)),
            True,
        ),
        (DeliveryState(gates=GatesState(pending_decision=PLAN)), DeliveryState(), True),
        (BUDGET, BUDGET, False),
        (BUDGET, DeliveryState(waiting="the day's budget of label team-a is taken"), False),
        (BUDGET, DeliveryState(), True),
    ],
)
def test_a_notice_is_over_when_what_it_tells_of_is(told_of: DeliveryState, now: DeliveryState, over: bool) -> None:
    def told(event: str, result: DeliveryResult | None = None) -> Notice:
        request = DeliveryRequest(repository="/r", request="Add sub")
        return notice_of(
            event, told_of, request, id="n", delivery="d", delivery_id="d", run_id="r", at=NOON, result=result
        )

    assert told("waiting").is_outdated(now.waiting, now.gates.pending_decision) is over
    result = DeliveryResult(delivery_id="d", run_id="r", status=Status.COMPLETED, repository="/r")
    assert not told("ended", result).is_outdated(now.waiting, now.gates.pending_decision), "the end is never over"
