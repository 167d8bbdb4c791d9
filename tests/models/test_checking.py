"""The `check` commands of what has landed: who has its turn, and what is said of those that did not run."""

from __future__ import annotations

from datetime import timedelta

from perdure.models.backlog.request import CHECKS_MOST
from perdure.models.backlog.state import ItemPhase
from perdure.models.rules.dependencies import Dependencies
from perdure.models.rules.landed_checks import (
    checks_for_landing,
    due_checks,
    record_branch_move,
    record_passed_checks,
    unchecked_summary,
)
from tests.models.backlog_night import NOON, backlog


def test_every_check_of_what_landed_has_its_turn_and_those_of_much_depended_on_come_first() -> None:
    items = [{"id": f"i{at}", "check": tuple(f"check {at} {n}" for n in range(at % 6 + 1))} for at in range(24)]
    _, state = backlog(*items, {"id": "last", "depends_on": ("i5",), "check": ("mine",)})
    for at in state.items.values():
        at.phase = ItemPhase.LANDED
    state.items["last"].phase = ItemPhase.BUILDING
    seen = list[str]()
    for round in range(6):
        found = checks_for_landing(state, "last")
        assert found.pop("last") == ("mine",)
        assert 0 < sum(map(len, found.values())) <= CHECKS_MOST
        if round == 0:
            assert next(iter(found)) == "i5"
        seen += found
        record_branch_move(state, found, NOON + timedelta(minutes=round))
    assert set(seen) == {f"i{at}" for at in range(24)}
    assert "last" not in Dependencies.from_state(state).blocked_by


def test_of_what_did_not_run_on_the_branch_as_it_is_the_first_are_named_and_the_rest_counted() -> None:
    _, state = backlog(*({"id": f"i{at}", "check": ("make smoke",)} for at in range(8)), {"id": "quiet"})
    for at in state.items.values():
        at.phase = ItemPhase.LANDED
    assert unchecked_summary(state) == "", "nothing is known of when the branch moved"
    record_branch_move(state, ["i7", "gone"], NOON)
    assert unchecked_summary(state) == (
        "the checks of i0, i1, i2, i3, i4 and 2 more are not known to hold on the branch as it is"
    )
    assert list(due_checks(state)) == [f"i{at}" for at in range(7)]
    record_passed_checks(state, [f"i{at}" for at in range(7)], NOON + timedelta(minutes=1))
    assert (unchecked_summary(state), due_checks(state)) == ("", {})
