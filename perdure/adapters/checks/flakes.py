"""Failures that do not happen again: each new one is tried once more, alone, before anybody is asked to mend it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from perdure.adapters.checks.baseline import FAILING, against, failing, key
from perdure.adapters.system.output import flooded
from perdure.models.limits import RERUN_TESTS_MOST
from perdure.models.report import CommandResult, Since, TestCase

Rerun: TypeAlias = Callable[[TestCase | None], Awaitable[CommandResult | None]]
"""Runs a command once more, for one test alone or (None) as a whole. None: its runner cannot select that test, or the
time for trying again is over."""


async def settled(result: CommandResult, base: CommandResult | None, rerun: Rerun) -> CommandResult:
    """The result, compared with the base, in which what did not fail again counts as flaky.

    base  the same command's on the base commit; None: all failures are new

    A test that is flaky has passed; its message stays. What could not be tried again has failed.
    """
    judged = against(result, base)
    new = [case for case in failing(judged) if not case.known]
    if not _worth_it(judged, new):
        return judged
    if not new:
        return await _as_a_whole(judged, rerun)
    flaky = []
    for case in new:
        second = await rerun(case)
        if second is None or not any(key(other) == key(case) for other in second.cases):
            return await _as_a_whole(judged, rerun)  # cannot be selected, and then no other of this runner can
        if _passes(second, case):
            flaky.append(case)
    return against(_without(judged, flaky), base)


def _worth_it(judged: CommandResult, new: list[TestCase]) -> bool:
    """Not for what is known, could not begin, never ended, or fails in so many places that it is no accident."""
    if judged.since is not Since.NEW or judged.verdict not in ("failed", "contradicted"):
        return False
    return judged.exit_code is not None and judged.reason != flooded() and len(new) <= RERUN_TESTS_MOST


async def _as_a_whole(judged: CommandResult, rerun: Rerun) -> CommandResult:
    second = await rerun(None)
    if second is None:
        return judged
    if second.verdict != "passed":
        return _without(judged, [case for case in failing(judged) if not case.known and _passed(second, case)])
    first = {key(case): case.message for case in failing(judged)}
    cases = tuple(
        case.model_copy(update={"flaky": True, "message": first[key(case)]}) if key(case) in first else case
        for case in second.cases
    )
    whole = not any(case.flaky for case in cases)  # no report, or a file that could not be loaded the first time
    told = {"verdict": "passed", "since": None, "flaky": whole, "reason": f"passed when run again: {judged.reason}"}
    return judged.model_copy(update={**told, "cases": cases})


def _passes(second: CommandResult, case: TestCase) -> bool:
    return second.verdict == "passed" and _passed(second, case)


def _passed(second: CommandResult, case: TestCase) -> bool:
    found = [other.outcome for other in second.cases if key(other) == key(case)]
    return "passed" in found and not set(found) & set(FAILING)


def _without(judged: CommandResult, flaky: list[TestCase]) -> CommandResult:
    """As if these had passed the first time. Nothing else that failed: the command passes."""
    names = set(map(key, flaky))
    cases = tuple(
        case.model_copy(update={"outcome": "passed", "flaky": True}) if key(case) in names else case
        for case in judged.cases
    )
    left = judged.model_copy(update={"cases": cases})
    if flaky and not failing(left):
        return left.model_copy(update={"verdict": "passed", "since": None})
    return left
