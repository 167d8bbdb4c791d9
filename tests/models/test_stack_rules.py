"""The branch that each item of a stack begins from, and where its pull request goes once what is below was merged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import (
    BacklogState,
    ItemChild,
    ItemLanding,
    ItemPhase,
    ItemState,
    OpenBacklogResult,
    StackedItem,
)
from perdure.models.delivery.result import DeliveryResult, PullRequest, Reason, Status, TestsResult, TestsStatus
from perdure.models.rules.dependencies import (
    no_place_reason,
    place_parts,
    retargets,
    stackable_commit,
    stacked_items,
    start_branch,
)

OPENED = OpenBacklogResult(base="main", base_sha="b", branch="", queue="q")


def stack(**depends_on: str) -> BacklogState:
    """All of them have landed, one a minute, each into what it begins from."""
    state = BacklogState(opened=OPENED)
    for at, (id, after) in enumerate(depends_on.items()):
        item = BacklogItem(id=id, request="x", depends_on=tuple(after.split()))
        ended = datetime(2026, 1, 1, 0, at, tzinfo=UTC)
        made = ItemState(
            item=item,
            phase=ItemPhase.LANDED,
            stacked=StackedItem(branch=f"p/{id}"),
            landing=ItemLanding(commit=f"c-{id}"),
            child=ItemChild(ended_at=ended),
        )
        state.items[id] = made
        made.stacked.into = start_branch(state, id)
    return state


def test_each_begins_from_what_it_depends_on_and_the_lowest_from_the_base() -> None:
    state = stack(a="", b="a", c="b a", d="")
    assert {id: at.stacked.into for id, at in state.items.items()} == {"a": "main", "b": "p/a", "c": "p/b", "d": "main"}


def test_below_one_that_was_left_out_is_what_that_one_depends_on() -> None:
    state = stack(a="", b="a", c="b")
    state.items["b"].phase = ItemPhase.SKIPPED
    assert start_branch(state, "c") == "p/a"
    state.items["a"].phase = ItemPhase.SKIPPED
    assert start_branch(state, "c") == "main"


def test_of_two_beside_each_other_it_is_the_one_that_landed_last() -> None:
    assert stack(a="", b="", c="a b").items["c"].stacked.into == "p/b"


def test_what_is_into_a_merged_branch_goes_where_that_one_went() -> None:
    state = stack(a="", b="a", c="b", d="c")
    assert retargets(state) == {}
    state.items["a"].stacked.merged = True
    assert retargets(state) == {"b": "main"}
    assert start_branch(state, "b") == "main"
    state.items["b"].stacked.merged = True  # into p/a, which was merged before
    assert retargets(state) == {"c": "main"}
    state.items["c"].stacked.into = "main"
    assert retargets(state) == {}
    assert state.items["d"].stacked.into == "p/c"


def test_branches_in_a_circle_end_at_the_base() -> None:
    state = stack(a="", b="a")
    state.items["a"].stacked.into, state.items["a"].stacked.merged, state.items["b"].stacked.merged = "p/b", True, True
    assert start_branch(state, "b") == "main"


def test_a_chain_has_places_and_two_beside_each_other_have_none_above() -> None:
    items = {at.item.id: at.item for at in stack(a="", b="a", c="a b", d="").items.values()}
    assert [no_place_reason(item, items) for item in items.values()] == [""] * 4
    both = BacklogItem(id="e", request="x", depends_on=("b", "d"))
    assert no_place_reason(both, items | {"e": both}).startswith("depends_on: b and d: a pull request has one base")


@pytest.mark.parametrize(
    ("status", "reason", "tests", "stands"),
    [
        (Status.DELIVERED, None, TestsStatus.GREEN, True),
        (Status.COMPLETED, None, TestsStatus.NONE, True),
        (Status.DRAFT, None, TestsStatus.GREEN, True),
        (Status.DRAFT, None, TestsStatus.RED, False),
        (Status.DRAFT, Reason.TESTS_RED, TestsStatus.GREEN, False),
        (Status.NOT_DELIVERED, Reason.LIMITS, TestsStatus.GREEN, False),
        (Status.CANCELLED, None, TestsStatus.GREEN, False),
    ],
)
def test_others_build_on_a_pull_request_without_doubts_alone(
    status: Status, reason: Reason | None, tests: TestsStatus, stands: bool
) -> None:
    result = DeliveryResult(
        delivery_id="d",
        run_id="r",
        repository="/r",
        status=status,
        reason=reason,
        head_sha="c",
        pull_request=PullRequest(number=1, url="u", title="t"),
        tests=TestsResult(status=tests),
    )
    assert stackable_commit(result) == ("c" if stands else "")


@given(st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=6), st.booleans())
def test_the_parts_of_a_decomposed_item_all_have_a_place_and_stand_on_what_they_did(
    wants: list[set[int]], last: bool
) -> None:
    def item(id: str, *on: str) -> BacklogItem:
        return BacklogItem(id=id, request="x", depends_on=on)

    parts = [item(f"p{n}", *(f"p{on}" for on in sorted(on) if on < n)) for n, on in enumerate(wants)]
    items = {one.id: one for one in (item("low"), item("big", "low"), *([item("top", "low", "big")] if last else ()))}
    made = place_parts("big", parts, items)
    assert [one.id for one in sorted(made, key=lambda one: one.id)] == [one.id for one in parts]
    known = {**items, **{one.id: one for one in made}}
    if last:
        known["top"] = item("top", "low", *(one.id for one in made))
    assert [words for one in known.values() if (words := no_place_reason(one, known))] == []
    for before, after in zip(parts, sorted(made, key=lambda one: one.id), strict=True):
        assert set(before.depends_on or ["low"]) <= set(after.depends_on)


def test_what_stands_on_another_does_so_until_it_is_merged_or_closed() -> None:
    state = stack(a="", b="a", c="b")
    assert stacked_items(state) == ["b", "c"]
    state.items["b"].stacked.closed = True
    assert stacked_items(state) == ["c"]
    state.items["c"].stacked.merged = True
    assert stacked_items(state) == []
