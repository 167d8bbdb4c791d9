"""Failures that do not happen again: each new one is run once more, alone, before anybody is asked to mend it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from perdure.adapters.checks.baseline import FAILING, case_key, failing_cases, mark_failures
from perdure.adapters.system.output import flood_reason
from perdure.models.limits import RERUN_TESTS_MOST
from perdure.models.report import BaseComparison, CommandResult, TestCase

Rerun: TypeAlias = Callable[[TestCase | None], Awaitable[CommandResult | None]]
"""Runs a command once more, for one test alone or (None) as a whole. Its result is None where the runner cannot select
that test, or the time for reruns is over."""


async def rerun_new_failures(result: CommandResult, base_result: CommandResult | None, rerun: Rerun) -> CommandResult:
    """Compare a result with the base, run its new failures once more, and return it with those that did not fail again
    marked flaky.

    base_result  the same command's on the base commit; None: all failures are new

    Each failing test is run alone; where the runner cannot select one, or the report names no new failing test, the
    whole command is run again instead. A flaky test has passed, and keeps its message. What could not be run again has
    failed.
    """
    marked = mark_failures(result, base_result)
    new_failures = [case for case in failing_cases(marked) if not case.known]
    if not _should_rerun(marked, new_failures):
        return marked
    if not new_failures:
        return await _rerun_whole_command(marked, rerun)
    flaky = []
    for case in new_failures:
        second = await rerun(case)
        if second is None or not any(case_key(other) == case_key(case) for other in second.cases):
            return await _rerun_whole_command(marked, rerun)  # cannot be selected, and then no other of this runner can
        if _passes_alone(second, case):
            flaky.append(case)
    return mark_failures(_mark_flaky(marked, flaky), base_result)


def _should_rerun(result: CommandResult, new_failures: list[TestCase]) -> bool:
    """Return whether a result's new failures are to be run again.

    False for failures that are known, for a command that could not start, did not end by itself or printed too much,
    and for more than RERUN_TESTS_MOST new failing tests, which are no accident.
    """
    if result.since is not BaseComparison.NEW or result.verdict not in ("failed", "contradicted"):
        return False
    return result.exit_code is not None and result.reason != flood_reason() and len(new_failures) <= RERUN_TESTS_MOST


async def _rerun_whole_command(result: CommandResult, rerun: Rerun) -> CommandResult:
    """Run the whole command once more and return the first result with what passed the second time marked flaky.

    A second run that passes makes the command pass, with the second run's cases and the first failures' messages; where
    none of its cases had failed before, the command itself is flaky. A second run that fails clears only the new
    failures that passed in it. Without a second run the result stays as it is.
    """
    second = await rerun(None)
    if second is None:
        return result
    if second.verdict != "passed":
        return _mark_flaky(
            result, [case for case in failing_cases(result) if not case.known and _has_passed(second, case)]
        )
    first_messages = {case_key(case): case.message for case in failing_cases(result)}
    cases = tuple(
        case.model_copy(update={"flaky": True, "message": first_messages[case_key(case)]})
        if case_key(case) in first_messages
        else case
        for case in second.cases
    )
    is_command_flaky = not any(
        case.flaky for case in cases
    )  # no report, or a file that could not be loaded the first time
    changes = {
        "verdict": "passed",
        "since": None,
        "flaky": is_command_flaky,
        "reason": f"passed when run again: {result.reason}",
    }
    return result.model_copy(update={**changes, "cases": cases})


def _passes_alone(second: CommandResult, case: TestCase) -> bool:
    return second.verdict == "passed" and _has_passed(second, case)


def _has_passed(second: CommandResult, case: TestCase) -> bool:
    """Return whether a second run reports this test as passed, and nothing of the same key as failing."""
    outcomes = [other.outcome for other in second.cases if case_key(other) == case_key(case)]
    return "passed" in outcomes and not set(outcomes) & set(FAILING)


def _mark_flaky(result: CommandResult, flaky: list[TestCase]) -> CommandResult:
    """Return the result with these cases as passed and flaky; where no other case fails, the command passes too."""
    names = set(map(case_key, flaky))
    cases = tuple(
        case.model_copy(update={"outcome": "passed", "flaky": True}) if case_key(case) in names else case
        for case in result.cases
    )
    changed = result.model_copy(update={"cases": cases})
    if flaky and not failing_cases(changed):
        return changed.model_copy(update={"verdict": "passed", "since": None})
    return changed
