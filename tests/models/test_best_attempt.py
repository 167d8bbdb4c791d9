"""Of several attempts, which one ships; and when another fix makes sense."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.delivery.result import AttemptResult, ReviewResult, ReviewStatus, TestsStatus
from perdure.models.delivery.work import TestVerdict
from perdure.models.rules.gates import not_converging_reason, stop_test_fixing_reason
from perdure.models.rules.parallel_builds import best_attempt

CLEAN, BLOCKED = ReviewResult(status=ReviewStatus.CLEAN), ReviewResult(status=ReviewStatus.BLOCKED, blockers=1)


def green(number: int, lines: int = 10, cost_usd: float | None = 1.0) -> AttemptResult:
    head = f"{number:040d}"
    return AttemptResult(
        number=number, head=head, tests=TestsStatus.GREEN, review=CLEAN, lines=lines, cost_usd=cost_usd
    )


REVIEWS = st.builds(ReviewResult, status=st.sampled_from(ReviewStatus), blockers=st.integers(0, 2))
ENDS = st.builds(
    AttemptResult,
    number=st.integers(1, 5),
    head=st.sampled_from(["", "a" * 40]),
    tests=st.sampled_from(TestsStatus),
    review=REVIEWS | st.just(CLEAN),
    lines=st.integers(0, 3),
    words=st.sampled_from(["", "the budget is used up"]),
    cost_usd=st.none() | st.integers(0, 3).map(float),
)
ATTEMPTS = st.lists(ENDS, max_size=5, unique_by=lambda one: one.number)


@given(ATTEMPTS, st.randoms(use_true_random=False))
def test_the_order_in_which_attempts_end_changes_nothing_of_who_wins(
    attempts: list[AttemptResult], chance: random.Random
) -> None:
    mixed = [*attempts]
    chance.shuffle(mixed)
    assert best_attempt(mixed) == best_attempt(attempts)


@given(ATTEMPTS)
def test_what_ships_is_green_clean_and_no_larger_than_any_other_that_may(attempts: list[AttemptResult]) -> None:
    chosen = best_attempt(attempts)
    sound = [
        one
        for one in attempts
        if one.head
        and not one.failure
        and one.tests is TestsStatus.GREEN
        and one.review.status is ReviewStatus.CLEAN
        and one.review.blockers == 0
    ]
    assert (chosen is None) == (not any(one.head for one in attempts))
    if sound:
        assert chosen is not None
        assert chosen in sound
        assert chosen.lines == min(one.lines for one in sound)


@given(ATTEMPTS, ENDS)
def test_an_attempt_that_may_not_ship_changes_nothing_of_who_wins_where_one_may(
    attempts: list[AttemptResult], other: AttemptResult
) -> None:
    red = other.model_copy(update={"number": 9, "tests": TestsStatus.RED})
    if any(one.is_sound for one in attempts):
        assert best_attempt([*attempts, red]) == best_attempt(attempts)


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (green(1, lines=11, cost_usd=0.1), green(2, lines=10, cost_usd=9.0)),
        (green(1, cost_usd=2.0), green(2, cost_usd=1.0)),
        (green(1, cost_usd=None), green(2, cost_usd=9.0)),
        (green(2), green(1)),
        (green(1, lines=0).model_copy(update={"review": BLOCKED}), green(2)),
        (green(1, lines=0).model_copy(update={"review": ReviewResult()}), green(2)),
        (green(1, lines=0).model_copy(update={"tests": TestsStatus.NONE}), green(2)),
        (green(1, lines=0).model_copy(update={"head": ""}), green(2)),
        (green(1, lines=0).model_copy(update={"failure": "the budget is used up"}), green(2)),
    ],
    ids=[
        "larger",
        "dearer",
        "price unknown",
        "later",
        "blocked",
        "not reviewed",
        "no tests",
        "nothing made",
        "not ended well",
    ],
)
def test_an_attempt_loses_that_is(worse: AttemptResult, better: AttemptResult) -> None:
    assert best_attempt([worse, better]) == better


def test_of_attempts_of_which_none_may_ship_the_one_that_comes_nearest_is_what_the_delivery_fails_with() -> None:
    red, blocked = (
        green(1).model_copy(update={"tests": TestsStatus.RED}),
        green(2).model_copy(update={"review": BLOCKED}),
    )
    assert best_attempt([red, blocked]) == blocked
    assert best_attempt([green(1).model_copy(update={"head": ""})]) is None
    assert best_attempt([]) is None


def red(fingerprint: str = "f", tree: str = "t") -> TestVerdict:
    return TestVerdict(status=TestsStatus.RED, tree=tree, fingerprint=fingerprint, summary="1 of 2 fail: test_a")


def test_two_attempts_that_leave_the_same_failures_are_enough() -> None:
    words = not_converging_reason([red("x", "1"), red("f", "2")], red("f", "3"))
    assert words == "not converging: two fixes in a row left the same failures: 1 of 2 fail: test_a"


def test_an_attempt_that_changed_nothing_is_told_as_such_even_if_other_tests_fail_by_chance() -> None:
    words = not_converging_reason([red("f", "2")], red("g", "2"))
    assert words == "not converging: the last fix changed nothing, and still 1 of 2 fail: test_a"


def test_attempts_end_at_their_limit_and_the_state_before_the_first_one_is_no_attempt() -> None:
    assert stop_test_fixing_reason([], red(), 4, 4) == "tests are red after 4 fixes"
    assert stop_test_fixing_reason([], red(), 0, 0) == f"tests are red: {red().summary}"
    assert stop_test_fixing_reason([red("f", "1")], red("f", "2"), 1, 4) == ""
    assert stop_test_fixing_reason([red("f", "1"), red("f", "2")], red("f", "3"), 2, 4).startswith("not converging")


def test_other_failures_are_progress_of_a_kind() -> None:
    assert not_converging_reason([red("f", "2")], red("g", "3")) == ""


def test_one_attempt_alone_proves_nothing() -> None:
    assert not_converging_reason([], red()) == ""


def test_verdicts_of_older_releases_have_no_fingerprint_and_end_nothing_early() -> None:
    assert not_converging_reason([red("")], red("")) == ""
    assert not_converging_reason([red("")], red("f")) == ""
