"""The cases of a report by their keys: made once, cheaply, and not kept beyond the report."""

from __future__ import annotations

import gc

from perdure.adapters.checks import baseline
from perdure.adapters.checks.baseline import CaseKey, cases_by_key, number_cases
from perdure.models.checks.report import CommandResult, TestCase


def result(*names: str) -> CommandResult:
    cases = tuple(TestCase(name=name, file="test_a.py", outcome="passed") for name in names)
    return CommandResult(name="unit", command="pytest", verdict="passed", exit_code=0, cases=cases)


def test_cases_of_one_name_have_numbers_and_others_have_none() -> None:
    keys = list(number_cases(result("a", "b", "a", "c").cases))
    assert keys == [CaseKey("test_a.py", "a", number) for number in (0, 1)] + [
        CaseKey("test_a.py", name) for name in ("b", "c")
    ]


def test_the_cases_of_a_report_are_numbered_once_and_forgotten_with_it() -> None:
    one, another = result("a", "b"), result("a", "b")
    assert cases_by_key(one) is cases_by_key(one)
    assert cases_by_key(another) is not cases_by_key(one), "equal, and its own"
    assert cases_by_key(None) == {}
    before = len(baseline._numbered)
    del one, another
    gc.collect()
    assert len(baseline._numbered) == before - 2
