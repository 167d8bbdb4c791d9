"""`perdure budget --shared`: what it shows of a table, and what it refuses before anything is sent."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.cli.commands.options import LAST
from perdure.cli.decide.budget import budget, budget_rows, budgets_json, holder_rows, nearest_name_hint
from perdure.models.budget.treasury import BudgetLease, DayBudget, TreasuryTable
from perdure.models.errors import BadInput

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def lease(until: datetime, **more: object) -> BudgetLease:
    return BudgetLease(seq=1, rules=("label:a",), booked=1.0, ceiling=2.0, until=until).model_copy(update=more)


def call_budget(id: str = LAST, **options: Any) -> None:
    """Call what `perdure budget` does; an option that is not given is not typed."""
    budget(id, **{"add": None, "tokens": None, "time": None, "shared": False, "json": False} | options)


TABLE = TreasuryTable(
    day="2026-05-04",
    rules={
        "label:a": DayBudget(usd_per_day=5.0, spent=3.5, added=1.0),
        "label:b": DayBudget(usd_per_day=2.0, spent=2.4),
    },
    leases={
        "holds": lease(NOON + timedelta(minutes=5)),
        "silent": lease(NOON - timedelta(minutes=5)),
        "waits": lease(NOON, ceiling=1.0, waits=1),
        "idle": lease(NOON, ceiling=1.0),
    },
)


def test_a_row_a_budget_and_none_has_less_than_nothing_left() -> None:
    rows = [line.split("  ") for line in budget_rows(TABLE, None)]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["budget", "on 2026-05-04 UTC", "spent", "reserved", "left"],
        ["label:a", "$6.00 ($1.00 added)", "$3.50", "$2.00", "$0.50"],
        ["label:b", "$2.00", "$2.40", "$0.00", "$0.00"],
    ]


def test_those_who_hold_or_wait_are_named_and_what_became_of_them() -> None:
    rows = holder_rows(TABLE, NOON, None)[1:]
    assert [row.split()[0] for row in rows] == ["holds", "silent", "waits"]
    assert [row.split()[2] for row in rows] == ["until", "silent", "waits"]
    assert "until 12:05 UTC" in rows[0]
    assert holder_rows(TreasuryTable(), NOON, None) == []
    data = budgets_json(TABLE.model_copy(update={"note": "it was ended"}))
    assert [(one["delivery_id"], one["waits"]) for one in data["deliveries"]] == [  # type: ignore[attr-defined]
        ("holds", False), ("silent", False), ("waits", True),
    ]  # fmt: skip
    assert (data["note"], budgets_json(TABLE)["note"]) == ("it was ended", None)


@pytest.mark.parametrize(
    ("usd", "what"),
    [
        (-5, "-5 is nothing more"),
        (0, "0 is nothing more"),
        (math.nan, "nan is nothing more"),
        (0.001, "0.001 is too little"),
        (math.inf, "inf is too much"),
        (1e9, "1,000,000,000 is too much: 0.01 to 1,000,000 at once"),
    ],
)
def test_an_amount_that_cannot_be_added_is_refused_before_anything_is_sent(usd: float, what: str) -> None:
    with pytest.raises(BadInput) as refusal:
        call_budget("label:a b", add=usd, shared=True)
    assert refusal.value.what.startswith(what)
    assert refusal.value.fix == "perdure budget --shared 'label:a b' --add 5"


@pytest.mark.parametrize(
    ("amounts", "what"),
    [
        ({"add": -5.0}, "-5 is nothing more"),
        ({"add": math.inf}, "inf is nothing more"),
        ({"add": 0.001}, "0.001 is too little: 0.01 to 100,000 at once"),
        ({"add": 1e12}, "1,000,000,000,000 is too much"),
        ({"tokens": -1}, "-1 is nothing more"),
        ({"tokens": 10**13}, "10,000,000,000,000 is too much: 1 to 1,000,000,000,000 at once"),
    ],
)
def test_a_deliverys_own_budget_is_raised_by_no_nonsense_either(amounts: dict[str, float], what: str) -> None:
    with pytest.raises(BadInput) as refusal:
        call_budget("calc-sub", **amounts)
    assert refusal.value.what.startswith(what)


@pytest.mark.parametrize(
    ("options", "where"),
    [({"id": "label:a"}, "--add"), ({"add": 5.0}, "NAME"), ({"id": "label:a", "tokens": 5}, "--tokens")],
)
def test_more_of_a_shared_budget_needs_its_name_and_dollars(options: dict[str, Any], where: str) -> None:
    with pytest.raises(BadInput) as refusal:
        call_budget(**options, shared=True)
    assert refusal.value.where == where


def test_a_name_that_is_nearly_right_is_found() -> None:
    assert nearest_name_hint("team-a", ["label:team-a", "repository:x"]) == "did you mean label:team-a?"
    assert nearest_name_hint("zzz", []) == "there are none yet"
