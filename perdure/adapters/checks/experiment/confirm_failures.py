"""Failures of the base's tests on the change that come every time; a test whose failure does not is flaky, as it may be
on the change."""

from __future__ import annotations

import time

from perdure.adapters.checks.baseline import CaseKey, case_key
from perdure.adapters.checks.experiment.commit_pair import TreeLayout
from perdure.adapters.checks.experiment.outcomes import green_keys, outcomes_by_key
from perdure.adapters.checks.experiment.runs import CommandRuns
from perdure.models.amounts import parse_duration
from perdure.models.limits import RERUN_TESTS_MOST
from perdure.models.report import CommandResult

EXPERIMENT_AGAIN = 5
"""Times that the base's tests are run on the change once more when some fail there and pass on the base, and the change
would be called tampered for it: of tests that fail every second time, one in some thirty-five is then believed to fail.
"""


async def confirm_failures(
    runs: CommandRuns, layout: TreeLayout, failing: set[CaseKey], base_result: CommandResult, once_only: set[CaseKey]
) -> set[CaseKey]:
    """Run failing tests of the base on the change again, each alone where that can be, and return those that failed
    every time.

    base_result  the command's report of the base, with the case of each test
    once_only    tests for which nobody is called tampered: failing once more is enough

    It is repeated at most EXPERIMENT_AGAIN times, within the time the command itself may take. A test that passes alone
    is then run among the others: it may fail because of what the change leaves behind.
    """
    deadline, passed_alone = time.monotonic() + parse_duration(runs.test.timeout), set[CaseKey]()
    for repetition in range(EXPERIMENT_AGAIN):
        if not failing or (repetition and (failing <= once_only or time.monotonic() > deadline)):
            break
        passing = await _passing_alone(runs, layout, failing - passed_alone, base_result, deadline)
        passed_alone |= passing or set()
        if passing is None or passed_alone & failing:
            repeat_outcomes = outcomes_by_key((await runs.run_whole("b-again", layout)).result)
            not_reported = (
                passed_alone - repeat_outcomes.keys()
            )  # as where another one does not compile: that is not its own failure
            passing = not_reported | {test_key for test_key, outcome in repeat_outcomes.items() if outcome == "passed"}
        failing = failing - passing
    return failing


async def _passing_alone(
    runs: CommandRuns, layout: TreeLayout, failing: set[CaseKey], base_result: CommandResult, deadline: float
) -> set[CaseKey] | None:
    """Run these tests each alone, until the deadline (monotonic), and return those that passed; None where they are
    more than RERUN_TESTS_MOST, or the runner cannot select one."""
    cases, passing = {case_key(case): case for case in base_result.cases}, set[CaseKey]()
    if len(failing) > RERUN_TESTS_MOST:
        return None
    for test_key in sorted(failing):
        if time.monotonic() > deadline:
            break
        test_run = await runs.run_single(layout, cases[test_key])
        if test_run is None:
            return None
        passing |= green_keys(test_run.result)
    return passing
