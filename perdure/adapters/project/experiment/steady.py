"""Tests of the base that fail on the change every time: one that does not is as flaky as it may be on the change."""

from __future__ import annotations

from perdure.adapters.project.baseline import Key, key
from perdure.adapters.project.experiment.commits import Layout
from perdure.adapters.project.experiment.judge import green
from perdure.adapters.project.experiment.runs import Runs
from perdure.models.policy import EXPERIMENT_AGAIN, RERUN_TESTS_MOST
from perdure.models.report import CommandResult


async def steady(runs: Runs, layout: Layout, failing: set[Key], before: CommandResult, spared: set[Key]) -> set[Key]:
    """Those that fail again, each alone where that can be.

    before  the command's report of the base
    spared  nobody is called tampered for these: once more is enough
    """
    for turn in range(EXPERIMENT_AGAIN):
        if not failing or (turn and failing <= spared):
            break
        failing = failing - await _passing(runs, layout, failing, before)
    return failing


async def _passing(runs: Runs, layout: Layout, failing: set[Key], before: CommandResult) -> set[Key]:
    cases, passing = {key(case): case for case in before.cases}, set[Key]()
    for one in sorted(failing) if len(failing) <= RERUN_TESTS_MOST else ():
        ran = await runs.alone(layout, cases[one])
        if ran is None:
            break
        passing |= green(ran.result)
    else:
        if len(failing) <= RERUN_TESTS_MOST:
            return passing
    return green((await runs.whole("b-again", layout)).result)
