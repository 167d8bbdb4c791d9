"""Which deliveries need a person, at a glance: in the list, and by @waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.cli.session import only_waiting_id
from perdure.client import ListEntry
from perdure.models.delivery.decisions import Gate, PendingDecision, Question
from perdure.models.errors import BadInput
from perdure.render.lists import delivery_rows, entry_json, waiting_delivery_rows

NOON = datetime(2031, 5, 1, 12, tzinfo=UTC)
PLAN = PendingDecision(gate=Gate.PLAN, target="1a", summary="approve the plan: Add sub", since=NOON)
QUESTION = PendingDecision(
    gate=Gate.QUESTION,
    target="plan-1-1",
    summary="question: Which?",
    since=NOON - timedelta(days=2),
    question=Question(text="Which?"),
    options=("answer",),
)


def one(
    id: str, status: str = "waiting", asked: PendingDecision | None = None, closed: datetime | None = None
) -> ListEntry:
    return ListEntry(id, "r", status, NOON - timedelta(days=3), closed, "/r", "build", "", 0.25, asked)


def test_the_list_says_what_each_delivery_waits_for() -> None:
    rows = delivery_rows([one("a", asked=PLAN), one("b"), one("c", "delivered", closed=NOON)], None, NOON)
    assert [row.partition("  3 d ago")[0].split(maxsplit=1)[1].strip() for row in rows[1:]] == [
        "waiting (plan)",
        "waiting (build)",
        "delivered",
    ]
    rows = waiting_delivery_rows([one("a", asked=QUESTION), one("b", asked=PLAN), one("c")], None, NOON)
    assert [row.split() for row in rows[1:]] == [
        ["a", "question", "2", "d", "ago", "Which?"],
        ["b", "plan", "just", "now", "approve", "the", "plan:", "Add", "sub"],
        ["c", "held,", "or", "a", "host", "3", "d", "ago", "/r"],
    ]


def test_one_that_has_ended_waits_for_nobody() -> None:
    assert not one("a", closed=NOON).waiting
    assert one("a").waiting
    assert one("a", "running", asked=PLAN).waiting, "where the server knows no status of ours"


def test_a_program_reads_the_same_and_what_is_asked() -> None:
    told: dict[str, Any] = entry_json(one("a", asked=PLAN))
    assert (told["delivery_id"], told["started"], told["closed"]) == ("a", "2031-04-28T12:00:00+00:00", None)
    assert told["asked"]["of"] == "1a"
    assert entry_json(one("a"))["asked"] is None


def test_waiting_means_the_only_one_that_a_decision_can_be_meant_for() -> None:
    both = [one("a", asked=PLAN), one("b", asked=QUESTION), one("c")]
    assert only_waiting_id(both, "approve") == "a"
    assert only_waiting_id(both, "answer") == "b"
    with pytest.raises(BadInput, match="no delivery waits for that"):
        only_waiting_id(both, "add_budget")
    with pytest.raises(BadInput, match="2 deliveries wait: name one") as caught:
        only_waiting_id([one("a", asked=PLAN), one("d", asked=PLAN)], "approve")
    assert caught.value.where == "a (plan), d (plan)"
