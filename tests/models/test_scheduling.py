"""Backlogs played to their end by the rules alone, and the branch that each item of a stack begins from."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.models.backlog.landing import ItemEnded
from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.backlog.state import (
    BacklogState,
    ItemChild,
    ItemLanding,
    ItemPhase,
    ItemState,
    ItemWaiting,
    OpenBacklogResult,
    StackedItem,
)
from perdure.models.backlog.touches import OVERLAP_STEPS, OverlapCheck
from perdure.models.delivery.result import DeliveryResult, PullRequest, Reason, Status, TestsResult, TestsStatus
from perdure.models.rules import scheduling
from perdure.models.rules.changes import ITEM_MESSAGE_CHARS, apply_item_end
from perdure.models.rules.dependencies import (
    Dependencies,
    no_place_reason,
    place_parts,
    retargets,
    stackable_commit,
    stacked_items,
    start_branch,
)
from perdure.models.rules.landed_checks import checks_for_landing
from perdure.models.rules.scheduling import (
    EXPLAINED_MOST,
    OVERTAKEN_MOST,
    SLOT_KEPT,
    ItemStart,
    is_finished,
    item_views,
    next_start_time,
    next_to_land,
    startable_items,
    unreserved_usd,
    waiting_reasons,
)
from tests.costs import examples
from tests.models.backlog_night import NOON, Night, backlog, backlogs


@settings(max_examples=examples(300), deadline=None)
@given(backlogs(), st.integers(0, 2**32))
def test_every_graph_runs_to_an_end_at_which_all_that_could_land_has_landed(
    made: tuple[BacklogRequest, BacklogState], seed: int
) -> None:
    night = Night(*made, chance=random.Random(seed))
    night.run()
    graph = Dependencies.from_state(night.state)
    left = unreserved_usd(night.request, night.state)
    for id, at in night.state.items.items():
        assert at.phase is not ItemPhase.BUILDING
        if at.phase is ItemPhase.WAITING:
            assert graph.blocked_by.get(id) or (left is not None and left < 0.01)
    assert len(night.begun) == len(set(night.begun))


@settings(max_examples=examples(300), deadline=None)
@given(backlogs(), st.integers(0, 2**32))
def test_files_learnt_from_plans_and_people_who_take_their_time_lose_nothing_and_leave_no_slot_unused(
    made: tuple[BacklogRequest, BacklogState], seed: int
) -> None:
    """Never two at once that were known to meet when the second began; at most twice as many as may run at once."""
    night = Night(*made, chance=random.Random(seed), failing=0.0, planning=0.3, waiting=0.3)
    night.run()
    left = unreserved_usd(night.request, night.state)
    if left is None or left >= 0.01:
        assert all(at.phase is ItemPhase.LANDED for at in night.state.items.values())
    assert len(night.begun) == len(set(night.begun))


@settings(max_examples=examples(150), deadline=None)
@given(backlogs(), st.integers(0, 2**32), st.integers(1, 25))
def test_it_wakes_exactly_when_who_waits_for_a_person_leaves_a_slot_that_somebody_takes(
    made: tuple[BacklogRequest, BacklogState], seed: int, moves: int
) -> None:
    night = Night(*made, chance=random.Random(seed), planning=0.2, waiting=0.5)
    for _ in range(moves):
        night.begin()
        opens = next_start_time(night.request, night.state, night.now)
        times = {
            at.waiting.since + SLOT_KEPT
            for at in night.building()
            if at.waiting.since and at.waiting.since + SLOT_KEPT > night.now
        }
        used = [time for time in sorted(times) if startable_items(night.request, night.state, time)]
        assert opens == (used[0] if used else None)
        if building := [at.item.id for at in night.building()]:
            night.moves(night.chance.choice(building))


@settings(max_examples=examples(150), deadline=None)
@given(backlogs(), st.randoms(use_true_random=False), st.integers(0, 2**32))
def test_the_same_state_is_decided_alike_in_whatever_order_its_items_stand(
    made: tuple[BacklogRequest, BacklogState], shuffle: random.Random, seed: int
) -> None:
    night = Night(*made, chance=random.Random(seed))
    for _ in range(shuffle.randint(0, 6)):
        night.begin()
        building = [id for id, at in night.state.items.items() if at.phase is ItemPhase.BUILDING]
        if building:
            night.end(night.chance.choice(building))
    ids = list(night.state.items)
    shuffle.shuffle(ids)
    other = BacklogState.model_validate_json(night.state.model_dump_json())
    other.items = {id: other.items[id] for id in ids}
    for decide in (startable_items, item_views, is_finished, next_start_time):
        assert decide(night.request, other, night.now) == decide(night.request, night.state, night.now)
    assert checks_for_landing(other, "i0") == checks_for_landing(night.state, "i0")


@settings(max_examples=examples(150), deadline=None)
@given(backlogs())
def test_what_begins_is_in_the_order_of_what_it_unblocks_its_chain_priority_and_age(
    made: tuple[BacklogRequest, BacklogState],
) -> None:
    request, state = made
    started = [start.id for start in startable_items(request, state, NOON)]
    behind = {id: closure(state, id) for id in state.items}
    ranks = [
        (-len(behind[id]), -longest(state, id), -state.items[id].item.priority, state.items[id].order) for id in started
    ]
    assert ranks == sorted(ranks)
    shown = {view.id: view for view in item_views(request, state, NOON)}
    assert {id: len(behind[id]) for id in state.items} == {id: view.unblocks for id, view in shown.items()}
    chain = [view.id for view in shown.values() if view.critical]
    most = max(longest(state, id) for id in state.items)
    assert len(chain) == (most if most > 1 else 0)
    assert all(before in state.items[after].item.depends_on for before, after in pairwise(chain))


def closure(state: BacklogState, id: str) -> set[str]:
    """The distinct items behind one, as nobody would write it twice: by asking each of them."""
    direct = {other for other, at in state.items.items() if id in at.item.depends_on}
    return direct.union(*(closure(state, one) for one in direct))


def longest(state: BacklogState, id: str) -> int:
    behind = [longest(state, other) for other, at in state.items.items() if id in at.item.depends_on]
    return 1 + max(behind, default=0)


def test_an_item_whose_files_others_change_too_is_overtaken_a_bounded_number_of_times() -> None:
    """Two lines of items keep one file each busy, by turns: one that wants both would never find both free."""
    lines = [
        {"id": f"{line}{at}", "touches": (f"{line}.py",), "depends_on": ("tip",) if at % 2 else ()}
        for at in range(30)
        for line in ("a", "b")
    ]
    request, state = backlog({"id": "tip"}, *lines, {"id": "both", "touches": ("*.py",), "priority": 50}, parallel=2)
    night = Night(request, state, chance=random.Random(1), failing=0.0)
    state.items["tip"].phase, state.items["tip"].child.ended_at = ItemPhase.LANDED, NOON
    running = ["a0", "b0"]
    for id in running:
        state.items[id].phase, state.items[id].child.began_at = ItemPhase.BUILDING, NOON
    state.began_at = NOON
    while "both" not in night.begun:
        oldest = min(
            (at.child.began_at, id)
            for id, at in state.items.items()
            if at.phase is ItemPhase.BUILDING and at.child.began_at
        )[1]
        night.end(oldest)
        night.begin()
    overtook = [id for id in night.begun[: night.begun.index("both")] if id != "both"]
    assert len(overtook) <= OVERTAKEN_MOST
    assert len(overtook) >= OVERTAKEN_MOST - 2, "no free slot was left unused before that"
    night.run()
    assert all(at.phase is ItemPhase.LANDED for at in state.items.values())


def test_the_reasons_are_one_line_each() -> None:
    request, state = backlog(
        {"id": "cache", "touches": ("src/**",), "check": ("make cache",)},
        {"id": "stats", "touches": ("src/stats.py",)},
        {"id": "schema"},
        {"id": "export", "depends_on": ("schema",)},
        {"id": "mail", "depends_on": ("export", "cache")},
        {"id": "news", "depends_on": ("cache",)},
        {"id": "docs"},
        parallel=3,
    )
    items = state.items
    items["schema"].phase, items["schema"].child.reason = ItemPhase.FAILED, "tests_red after 4 fixes"
    items["cache"].phase, items["docs"].phase = ItemPhase.BUILDING, ItemPhase.BUILDING
    (
        items["docs"].waiting.reason,
        items["docs"].waiting.gate,
        items["docs"].waiting.target,
        items["docs"].waiting.since,
    ) = (
        "plan: approve?",
        "plan",
        "1a",
        NOON,
    )
    state.landing.queue = ("cache",)
    assert {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)} == {
        "cache": ("landing", "is the next"),
        "stats": ("ready", "after cache: same files"),
        "schema": ("failed", "tests_red after 4 fixes"),
        "export": ("blocked", "blocked by schema (tests_red after 4 fixes)"),
        "mail": ("blocked", "blocked by schema (tests_red after 4 fixes)"),
        "news": ("after", "after cache"),
        "docs": ("waits", "plan: approve?"),
    }
    shown = {view.id: view for view in item_views(request, state, NOON)}
    assert (shown["docs"].gate, shown["docs"].target, shown["docs"].since) == ("plan", "1a", NOON)
    assert (shown["export"].blocked_by, shown["schema"].unblocks, shown["cache"].unblocks) == ("schema", 2, 1)
    state.landing.item, state.landing.queue = "docs", ("cache",)
    assert next(view.because for view in item_views(request, state, NOON) if view.id == "cache") == "1 before it"
    state.hold_reason = "held: lunch"
    assert next(view.because for view in item_views(request, state, NOON) if view.id == "stats") == "held: lunch"
    state.status = "cancelled"
    over = {view.id: (view.phase, view.because) for view in item_views(request, state, NOON)}
    assert over["stats"] == over["news"] == ("cancelled", "not begun: the backlog was cancelled")
    assert over["export"][0] == "blocked"


def test_nothing_begins_while_held_or_outside_of_the_window_and_it_wakes_when_that_opens() -> None:
    request, state = backlog({"id": "a"}, {"id": "b", "depends_on": ("a",)}, window="23:00-07:00")
    opens = NOON.replace(hour=23)
    assert startable_items(request, state, NOON) == ()
    assert next_start_time(request, state, NOON) == opens
    assert item_views(request, state, NOON)[0].because == "window opens 23:00"
    early = request.model_copy(update={"window": "07:54-07:55 +02:00"})
    for hour, because in ((4, "window opens 07:54 +02:00"), (6, "window opens tomorrow 07:54 +02:00")):
        assert item_views(early, state, NOON.replace(hour=hour))[0].because == because
    assert item_views(early, state, NOON.replace(hour=22))[0].because == "window opens 07:54 +02:00", (
        "it is tomorrow there"
    )
    assert not is_finished(request, state, NOON)
    assert [start.id for start in startable_items(request, state, opens)] == ["a"]
    assert next_start_time(request, state, opens) is None
    state.hold_reason = "held"
    assert startable_items(request, state, opens) == ()
    assert next_start_time(request, state, NOON) is None
    assert not is_finished(request, state, opens)
    state.items["a"].phase = ItemPhase.FAILED
    assert is_finished(request, state, NOON)


def test_money_is_shared_equally_comes_back_and_ends_the_backlog_when_there_is_none() -> None:
    request, state = backlog(*[{"id": id} for id in "abc"], {"id": "d", "budget_usd": 0.5}, parallel=2, budget_usd=4.0)
    first, second = startable_items(request, state, NOON)
    assert (first, second) == (ItemStart("a", 1.0), ItemStart("b", 1.0))
    for id in "ab":
        state.items[id].phase, state.items[id].child.granted_usd = ItemPhase.BUILDING, 1.0
    state.items["a"].phase, state.items["a"].child.usd = ItemPhase.LANDED, 0.2
    assert unreserved_usd(request, state) == 2.8
    assert startable_items(request, state, NOON) == (ItemStart("c", 1.4),)
    state.items["c"].phase, state.items["c"].child.granted_usd = ItemPhase.BUILDING, 1.4
    state.items["b"].phase, state.items["b"].child.usd = ItemPhase.FAILED, 1.0
    assert startable_items(request, state, NOON) == (ItemStart("d", 0.5),)
    state.items["c"].phase, state.items["c"].child.usd = ItemPhase.LANDED, 2.795
    assert unreserved_usd(request, state) == 0.005
    assert not startable_items(request, state, NOON)
    assert item_views(request, state, NOON)[3].because == "waiting for budget: $0.00 left"
    assert is_finished(request, state, NOON)
    more = request.model_copy(update={"budget_usd": 5.0})
    assert startable_items(more, state, NOON) == (ItemStart("d", 0.5),)
    state.items["b"].phase = ItemPhase.WAITING  # retried: beside what it has paid, a share
    assert startable_items(more, state, NOON)[0] == ItemStart("b", 1.5)


def test_turns_to_land_are_granted_in_the_order_in_which_they_were_asked_for() -> None:
    _, state = backlog({"id": "a"}, {"id": "b"}, {"id": "c", "depends_on": ("b",)})
    assert next_to_land(state) == ""
    state.items["a"].phase = state.items["b"].phase = ItemPhase.BUILDING
    state.landing.queue = ("gone", "a", "b")
    assert next_to_land(state) == "a"
    state.items["a"].phase = ItemPhase.CANCELLED
    assert next_to_land(state) == "b"
    state.landing.item = "b"
    assert next_to_land(state) == ""


def test_a_thousand_items_are_decided_in_a_moment_of_a_processor() -> None:
    """Of the work, not of the time: a thousand patterns are compared in few steps, and the graph is built once."""
    items = [
        {"id": f"i{at}", "depends_on": tuple(f"i{on}" for on in range(max(0, at - 3), at)) if at % 7 else ()}
        | {"touches": (f"src/part{at % 40}/**", f"tests/test_part{at % 40}.py")}
        for at in range(1000)
    ]
    request, state = backlog(*items, parallel=50)
    assert len(startable_items(request, state, NOON)) == 40
    meeting = OverlapCheck()
    for one in items:
        meeting.may_overlap(one["touches"], items[0]["touches"])  # type: ignore[arg-type]
    assert meeting.steps < OVERLAP_STEPS / 10
    why = waiting_reasons(request, state, NOON)
    assert sum(words.endswith("same files") for words in why.values()) > 100, "a slot is free: each has its reason"
    for id in list(state.items)[:50]:
        state.items[id].phase = ItemPhase.BUILDING
    full = waiting_reasons(request, state, NOON)
    assert set(full.values()) >= {"50 of 50 slots busy"}
    assert sum(words.endswith("same files") for words in full.values()) <= EXPLAINED_MOST
    assert Dependencies.from_state(state) is Dependencies.from_state(state)


def test_many_who_wait_for_a_person_cost_one_decision_and_not_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    request, state = backlog(*({"id": f"i{at}", "touches": (f"a{at % 30}",)} for at in range(300)), parallel=100)
    for number, start in enumerate(startable_items(request, state, NOON)):
        at = state.items[start.id]
        at.phase, at.waiting.reason, at.waiting.since = (
            ItemPhase.BUILDING,
            "plan: approve?",
            NOON + timedelta(seconds=number),
        )
    for number in range(30, 130):
        at = state.items[f"i{number}"]
        at.phase, at.waiting.reason, at.waiting.since = (
            ItemPhase.BUILDING,
            "plan: approve?",
            NOON + timedelta(seconds=number % 100),
        )
    asked = list[datetime]()
    monkeypatch.setattr(scheduling, "startable_items", lambda *about: asked.append(about[2]) or ())
    assert next_start_time(request, state, NOON + timedelta(seconds=100)) is None
    assert len(asked) <= 1


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


def test_an_item_that_has_ended_waits_for_nothing_and_counts_its_messages_on() -> None:
    _, state = backlog({"id": "api"})
    decision = {"gate": "plan", "of": "1a2b3c4d", "words": "approve the plan", "since": NOON.isoformat()}
    state.items["api"].waiting = ItemWaiting(
        number=3, reason="a plan", gate="plan", target="1a2b", since=NOON, about="Plan", pending_decision=decision
    )
    apply_item_end(state, "api", ItemEnded(item="api", delivery="n/api", run_id="r", status="not_delivered"), NOON)
    assert state.items["api"].waiting == ItemWaiting(number=3)


def test_what_items_paid_together_is_unknown_as_soon_as_that_of_one_is() -> None:
    _, state = backlog({"id": "a"}, {"id": "b"})
    ended = ItemEnded(item="a", delivery="n/a", run_id="r", status="delivered", usd=0.5)
    apply_item_end(state, "a", ended, NOON)
    assert state.paid_usd == 0.5
    apply_item_end(state, "b", ended.model_copy(update={"item": "b", "usd": None}), NOON)
    assert state.paid_usd is None


def test_an_item_with_nothing_to_do_offers_to_be_skipped() -> None:
    _, state = backlog({"id": "a"})
    ended = ItemEnded(item="a", delivery="n/a", run_id="r", status="no_changes", message="nothing changed " + "x" * 400)
    apply_item_end(state, "a", ended, NOON)
    assert state.items["a"].phase is ItemPhase.FAILED
    assert state.items["a"].message.startswith("nothing changed xxx")
    assert state.items["a"].message.endswith("…: if there is nothing to do, skip lets what depends on it begin")
    assert len(state.items["a"].message) <= ITEM_MESSAGE_CHARS
