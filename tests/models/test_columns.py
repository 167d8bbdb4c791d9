"""What lists show of a delivery: short, true of its newest commit, and readable again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.state import BuildingState, DeliveryState, TestingState
from perdure.models.delivery.work import ChangeSize, TestVerdict
from perdure.models.webui.captions import format_change, format_waiting, parse_waiting

SIZE = ChangeSize(files=3, added=120, deleted=14)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def verdict(status: TestsStatus = TestsStatus.GREEN, **counts: int) -> TestVerdict:
    return TestVerdict(status=status, tree="t", **counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (None, ""),
        (verdict(passed=455, failed=0), " · tests 455/455"),
        (verdict(TestsStatus.RED, passed=453, failed=2), " · tests 453/455"),
        (verdict(TestsStatus.RED), " · tests red"),
        (verdict(TestsStatus.NONE), ""),
    ],
)
def test_the_size_is_said_with_the_tests_of_that_commit(tests: TestVerdict | None, words: str) -> None:
    state = DeliveryState(
        building=BuildingState(head="h1", change_size=SIZE), testing=TestingState(tested_commit="h1", verdict=tests)
    )
    assert format_change(state) == "+120 −14 in 3 files" + words
    state.building.head = "h2"
    assert format_change(state) == "+120 −14 in 3 files", "a fix that nobody has tested yet is not green"
    assert format_change(DeliveryState(testing=TestingState(verdict=tests))) == ""


@given(st.text(max_size=400).filter(str.strip))
def test_whatever_it_waits_for_fits_and_is_read_with_its_moment(words: str) -> None:
    value = format_waiting(words, NOON)
    assert len(value) < 255
    shown, since = parse_waiting(value)
    assert since == NOON
    assert "\n" not in shown


def test_words_of_others_are_words_without_a_moment() -> None:
    assert parse_waiting("") == ("", None)
    assert parse_waiting("held · since yesterday") == ("held · since yesterday", None)
    assert format_waiting("", NOON) == ""
