"""What may still be spent: which limit is reached first, and what unknown means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.models.budget.ledger import Spend, SpendingLimits, Usage
from perdure.models.budget.treasury import BudgetReservation
from perdure.models.delivery.state import BudgetState, ChildrenState, DeliveryState, SpendingState
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.rules.allowance import Limit, reached_limit, spending_limits, time_left
from tests.states import prepared_workspace

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def prepared(**more: Any) -> PreparedWorkspace:
    return prepared_workspace(**{"asks": True, "budget_usd": 1.0, "time_s": 60.0, **more})


def over(state: DeliveryState, *, seconds: float = 0, paying: bool = True, **more: Any) -> tuple[Limit, str] | None:
    return reached_limit(state, prepared(**more), NOW - timedelta(seconds=seconds), NOW, paying=paying)


@pytest.mark.parametrize(
    ("spend", "usage", "limit"),
    [
        (Spend(usd=0.99), Usage(), None),
        (Spend(usd=1.0), Usage(), Limit.USD),
        (Spend(usd=0.6, at_risk_usd=0.4), Usage(), Limit.USD),
        (Spend(usd=0.0), Usage(cost_usd=1.0), Limit.USD),
        (Spend(usd=None, known_usd=1.0), Usage(), Limit.USD),
        (Spend(usd=None, known_usd=0.5), Usage(), Limit.PRICE),
        (Spend(usd=0.1), Usage(cost_usd=None), Limit.PRICE),
        (Spend(), Usage(input_tokens=50, cache_read_tokens=30, cache_write_tokens=10, output_tokens=10), Limit.TOKENS),
        (Spend(), Usage(input_tokens=99), None),
        (Spend(tokens=100), Usage(input_tokens=10), Limit.TOKENS),
        (Spend(tokens=60, at_risk_tokens=40), Usage(input_tokens=10), Limit.TOKENS),
        (Spend(tokens=60), Usage(input_tokens=90), None),
        (Spend(at_risk_tokens=10), Usage(input_tokens=90), Limit.TOKENS),
    ],
)
def test_the_limit_that_is_reached(spend: Spend, usage: Usage, limit: Limit | None) -> None:
    found = over(DeliveryState(spending=SpendingState(spend=spend, usage=usage)), budget_tokens=100)
    assert (found[0] if found else None) == limit


def test_what_was_added_counts_to_the_cent_and_no_fraction_of_one_is_left_over() -> None:
    state = DeliveryState(spending=SpendingState(spend=Spend(usd=0.3)), budget=BudgetState(extra_usd=0.2))
    assert over(state, budget_usd=0.1) == (Limit.USD, "$0.30 of $0.30 are spent")
    state.budget.extra_usd = 0.3
    assert over(state, budget_usd=0.1) is None


def test_no_limit_of_tokens_is_none_and_more_can_be_added() -> None:
    state = DeliveryState(spending=SpendingState(usage=Usage(output_tokens=1_000_000)))
    assert over(state) is None
    assert over(state, budget_tokens=1_000_000) == (Limit.TOKENS, "1,000,000 of 1,000,000 tokens are used")
    state.budget.extra_tokens = 1
    assert over(state, budget_tokens=1_000_000) is None


def test_an_unknown_price_is_asked_about_once_and_only_where_somebody_is_asked() -> None:
    state = DeliveryState(spending=SpendingState(spend=Spend(usd=None)))
    assert over(state, asks=False) is None
    assert over(state) is not None
    state.budget.unpriced = True
    assert over(state) is None


def test_what_costs_nothing_is_kept_from_nobody_for_money_but_ends_in_time() -> None:
    state = DeliveryState(spending=SpendingState(spend=Spend(usd=5.0)))
    assert over(state, paying=False) is None
    assert over(state, paying=False, seconds=60) == (Limit.TIME, "the time limit of 0:01:00 is over")
    state.budget.extra_time_s = 60.0
    assert over(state, paying=False, seconds=60) is None
    assert time_left(state, prepared(), NOW - timedelta(seconds=90), NOW) == timedelta(seconds=30)


def test_the_room_of_a_turn_is_what_was_given_and_added_and_reserved() -> None:
    state = DeliveryState(
        budget=BudgetState(extra_usd=0.5, extra_tokens=100, reservation=BudgetReservation(ceiling=2.0)),
        children=ChildrenState(usd=0.2),
    )
    assert spending_limits(state, prepared()) == SpendingLimits(usd=1.5)
    shared = prepared(budget_tokens=1000, shared_budgets={"label:a": 5.0})
    assert spending_limits(state, shared) == SpendingLimits(usd=1.5, tokens=1100, day_usd=2.2)
    state.budget.unpriced = True
    assert spending_limits(state, prepared()).unpriced
    assert spending_limits(DeliveryState(), prepared(asks=False)).unpriced, "nobody is there to say so"
