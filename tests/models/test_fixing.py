"""When another attempt at the failures makes sense."""

from __future__ import annotations

from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestVerdict
from perdure.models.rules.gates import not_converging_reason, stop_test_fixing_reason


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
