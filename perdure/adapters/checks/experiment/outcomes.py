"""The outcomes of an experiment's runs, test by test. A test is named by its key, see case_key."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from perdure.adapters.checks.baseline import FAILING, CaseKey, case_key
from perdure.models.report import CommandResult, TestCase


def outcomes_by_key(result: CommandResult | None) -> dict[CaseKey, str]:
    """Return test → outcome: failed or errored if any case of that name did, passed only if all did. Empty without a
    result."""
    by_key = dict[CaseKey, str]()
    for case in result.cases if result is not None else ():
        earlier = by_key.get(case_key(case))
        by_key[case_key(case)] = (
            case.outcome if earlier in (None, "passed") or case.outcome in FAILING else str(earlier)
        )
    return by_key


def green_keys(result: CommandResult | None) -> set[CaseKey]:
    """Return the tests that passed."""
    return {test_key for test_key, outcome in outcomes_by_key(result).items() if outcome == "passed"}


def ended_by_itself(result: CommandResult) -> bool:
    """Return whether a command ended by itself (exit code 0 to 128): what was killed says nothing about the tests it
    did not reach."""
    return result.verdict != "timed_out" and result.exit_code is not None and 0 <= result.exit_code <= 128


def find_proving_tests(
    base_result: CommandResult | None, change_result: CommandResult, d_result: CommandResult, differing: Collection[str]
) -> set[CaseKey]:
    """Find the tests that pass on the change and not without it.

    base_result    the base as it is; None: not known
    change_result  the change as it is
    d_result       the change's tests on the base's product files
    differing      files of the test side that the change has added or changed

    A test that was left out of that run, because it does not differ, is judged by base_result.
    """
    base_outcomes, d_outcomes = outcomes_by_key(base_result), outcomes_by_key(d_result)
    unbuilt = {case.name for case in d_result.cases if case.outcome == "errored" and not case.file}  # packages of Go

    def counts_as_proof(test_key: CaseKey) -> bool:
        """Return False for a test that was left out of the run on the base's product files, and was green on the
        base."""
        package = test_key[1].rpartition("::")[0]
        return (
            test_key in d_outcomes
            or test_key not in base_outcomes
            or test_key[0] in differing
            or base_outcomes[test_key] in FAILING
            or package in unbuilt
        )

    return {
        test_key
        for test_key in green_keys(change_result)
        if d_outcomes.get(test_key) != "passed" and counts_as_proof(test_key)
    }


def messages_by_key(result: CommandResult | None) -> dict[CaseKey, str]:
    """Return test → message of its failure, for those that have one."""
    return {case_key(case): case.message for case in result.cases if case.message} if result is not None else {}


def order_keys(keys: Iterable[CaseKey], result: CommandResult | None) -> list[CaseKey]:
    """Return these tests in the order in which the result reports them; those that it does not report come last,
    sorted."""
    key_set = set(keys)
    reported = (
        dict.fromkeys(case_key(case) for case in result.cases if case_key(case) in key_set)
        if result is not None
        else {}
    )
    return [*reported, *sorted(key_set - reported.keys())]


def red_canaries(names: Iterable[str], result: CommandResult, reports_cases: bool) -> set[str]:
    """Return the names of the canaries (tests that must fail) that were reported as failing by a command that failed as
    a whole.

    reports_cases  whether the runner reports its tests. Of one that tells nothing but its exit code, all canaries count
                   as reported where it failed and the end of its output names one of them; else none
    """
    if result.verdict in ("passed", "not_started"):
        return set()
    if not reports_cases:
        is_named = any(name in result.tail for name in names)  # else it is red for another reason: what did not compile
        return set(names) if is_named and result.verdict == "failed" and result.exit_code not in (None, 0) else set()
    failing = [case for case in result.cases if case.outcome in FAILING]
    return {name for name in names if any(_is_case_of(name, case) for case in failing)}


def failed_keys(keys: Iterable[CaseKey], result: CommandResult) -> set[CaseKey]:
    """Return those of these tests, which were made to fail, that were reported as failing; a test that is reported
    nowhere under its key counts by its name alone, for its file may have moved."""
    by_key = outcomes_by_key(result)
    failing = {test_key for test_key, outcome in by_key.items() if outcome in FAILING}
    names = {name for _, name in failing}
    if result.verdict in ("passed", "not_started"):
        return set()
    return {test_key for test_key in keys if test_key in failing or (test_key not in by_key and test_key[1] in names)}


def _is_case_of(name: str, case: TestCase) -> bool:
    """Return whether a canary's name is part of the case's name."""
    return name in case.name
