"""Tests of the base that fail on the change every time: one that does not is as flaky as it may be on the change."""

from __future__ import annotations

import time

from perdure.adapters.checks.baseline import CaseKey, case_key
from perdure.adapters.checks.experiment.commits import Layout
from perdure.adapters.checks.experiment.judge import green, outcomes
from perdure.adapters.checks.experiment.runs import Runs
from perdure.models.amounts import parse_duration
from perdure.models.limits import RERUN_TESTS_MOST
from perdure.models.report import CommandResult

EXPERIMENT_AGAIN = 5
"""Times that the base's tests run on a change once more when some fail there and pass on the base, and the change would
be called tampered for it: of tests that fail every second time one in some thirty-five is then believed."""


async def steady(
    runs: Runs, layout: Layout, failing: set[CaseKey], before: CommandResult, spared: set[CaseKey]
) -> set[CaseKey]:
    """Those that fail again, each alone where that can be, within the time the command itself may take. One that passes
    alone is asked among the others: what it fails for may be what the change leaves behind.

    before  the command's report of the base
    spared  nobody is called tampered for these: once more is enough
    """
    end, together = time.monotonic() + parse_duration(runs.test.timeout), set[CaseKey]()
    for turn in range(EXPERIMENT_AGAIN):
        if not failing or (turn and (failing <= spared or time.monotonic() > end)):
            break
        passing = await _passing(runs, layout, failing - together, before, end)
        together |= passing or set()
        if passing is None or together & failing:
            again = outcomes((await runs.whole("b-again", layout)).result)
            unasked = together - again.keys()  # as where another one does not compile: that is not its own failure
            passing = unasked | {one for one, outcome in again.items() if outcome == "passed"}
        failing = failing - passing
    return failing


async def _passing(
    runs: Runs, layout: Layout, failing: set[CaseKey], before: CommandResult, end: float
) -> set[CaseKey] | None:
    """Of these, those that pass alone; None where they are too many, or cannot be asked so."""
    cases, passing = {case_key(case): case for case in before.cases}, set[CaseKey]()
    if len(failing) > RERUN_TESTS_MOST:
        return None
    for one in sorted(failing):
        if time.monotonic() > end:
            break
        ran = await runs.alone(layout, cases[one])
        if ran is None:
            return None
        passing |= green(ran.result)
    return passing
