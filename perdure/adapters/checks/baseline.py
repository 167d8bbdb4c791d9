"""Tell a change's own test failures from others: a report is compared, test by test, with that of the base commit,
which is stored for the next delivery on the same base; and each new failure is run once more, alone, and counts as
flaky where it passes then. `perdure.adapters.checks.tests` and `activities.run_tests` use it; the experiments use its
keys, by which a test or a command is the same one in two reports."""

from __future__ import annotations

import json
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from pydantic import ValidationError

from perdure import __version__
from perdure.adapters.sandbox.base import KILLED_EXIT_CODES
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.keyed_store import KeyedStore
from perdure.adapters.system.output import flood_reason
from perdure.models.checks.report import BaseComparison, CommandResult, TestCase, TestReport
from perdure.models.config.repository import TestCommand
from perdure.models.ids import digest
from perdure.models.limits import RERUN_TESTS_MOST

FAILING = ("failed", "errored")

_REPORT = "report.json"


class CaseKey(NamedTuple):
    """The identity of a test, the same on two commits: its file and its name, as its runner gives them. `number` tells
    apart tests of one name, which some runners allow: 0, 1, …, those that failed first, and those that passed last: a
    failure that comes in addition, as of a subtest, is one of the test that passed before."""

    file: str
    name: str
    number: int = 0


def case_key(case: TestCase) -> CaseKey:
    """Return a case's key, as if no other one had its file and name."""
    return CaseKey(case.file, case.name)


_numbered: dict[int, tuple[weakref.ref[CommandResult], Mapping[CaseKey, TestCase]]] = {}


def cases_by_key(result: CommandResult | None) -> Mapping[CaseKey, TestCase]:
    """Return number_cases of a result, none without one; made once while the result is referenced: an experiment asks
    twenty times."""
    if result is None:
        return {}
    number = id(result)
    if (known := _numbered.get(number)) is None or known[0]() is not result:
        forget = weakref.ref(result, lambda _: _numbered.pop(number, None))
        known = _numbered[number] = forget, number_cases(result.cases)
    return known[1]


def number_cases(cases: Iterable[TestCase]) -> dict[CaseKey, TestCase]:
    """Return the cases by their keys, each with a key of its own, in their order."""
    cases = tuple(cases)
    by_name = {CaseKey(case.file, case.name): case for case in cases}
    if len(by_name) == len(cases):
        return by_name
    same_name: dict[CaseKey, list[TestCase]] = {}
    for case in cases:
        same_name.setdefault(case_key(case), []).append(case)
    return {
        key._replace(number=number): case
        for key, group in same_name.items()
        for number, case in enumerate(sorted(group, key=_number_rank))
    }


def _number_rank(case: TestCase) -> int:
    return 0 if case.outcome in FAILING else 2 if case.outcome == "passed" else 1


def failing_cases(result: CommandResult) -> list[TestCase]:
    """Return the cases of a result that failed or broke off with an error."""
    return [case for case in result.cases if case.outcome in FAILING]


def compare_with_base(report: TestReport, baseline: TestReport, base_name: str) -> TestReport:
    """Return the report with each failure marked as new or known, by comparison with the same commands on the base
    commit.

    baseline   the report of the base commit
    base_name  the base's name, for people

    A failing test that the base does not have is new. A command is excused (`since` is KNOWN) only when all its failing
    tests are known and it ended with the same exit code: one that broke off early has not shown that nothing else
    fails. Commands that did not pass come first, of these the required ones with new failures; `fixed` names what
    failed on the base and passes now.
    """
    base_results = results_by_command(baseline)
    commands = [mark_failures(result, base_results.get(command_key(result))) for result in report.commands]
    commands.sort(
        key=lambda result: (result.since is None, result.since is not BaseComparison.NEW or not result.required)
    )
    fixed = tuple(name for result in commands for name in _fixed_names(result, base_results.get(command_key(result))))
    return report.model_copy(update={"base": base_name, "commands": tuple(commands), "fixed": fixed})


def command_key(result: CommandResult | TestCommand) -> tuple[str, str]:
    """Return what makes a command the same one in two reports: its name and its text."""
    return result.name, result.command


def results_by_command(report: TestReport) -> dict[tuple[str, str], CommandResult]:
    """Return the results of a report by command_key."""
    return {command_key(result): result for result in report.commands}


def mark_failures(result: CommandResult, base_result: CommandResult | None) -> CommandResult:
    """Return a command's result with each failing case marked as known or new, and `since` set; failing cases come
    first.

    A failing case is known where the base has a failing case of the same key that no other case has been matched with.
    `base_result` None: every failure is new. `since` is None where the command passed.
    """
    unmatched = Counter(map(case_key, failing_cases(base_result))) if base_result is not None else Counter[CaseKey]()
    cases = []
    for case in result.cases:
        known = case.outcome in FAILING and unmatched[case_key(case)] > 0
        unmatched[case_key(case)] -= known
        cases.append(case if case.known == known else case.model_copy(update={"known": known}))
    cases.sort(key=_severity_rank)
    marked = result.model_copy(update={"cases": tuple(cases), "since": None})
    return (
        marked
        if result.verdict == "passed"
        else marked.model_copy(update={"since": _decide_since(marked, base_result)})
    )


def _decide_since(result: CommandResult, base_result: CommandResult | None) -> BaseComparison:
    """Decide what the base's result says about a command that did not pass, its cases already marked.

    NEW: there is no result of the base or it passed, a failing case is new, the command ended otherwise than on the
    base, or its report names no failing test and that of the base did. KNOWN: it failed on the base in the same way.
    UNDECIDABLE: it was red there and here, and it stops at its first failure or its report names no failing test.
    """
    failures = failing_cases(result)
    if base_result is None or base_result.verdict == "passed" or any(not case.known for case in failures):
        return BaseComparison.NEW
    if (result.verdict, result.exit_code) != (base_result.verdict, base_result.exit_code):
        return BaseComparison.NEW
    if failures and not result.partial:
        return BaseComparison.KNOWN
    if failures:
        return BaseComparison.UNDECIDABLE
    return BaseComparison.NEW if failing_cases(base_result) else BaseComparison.UNDECIDABLE


def _fixed_names(result: CommandResult, base_result: CommandResult | None) -> list[str]:
    """Return the names of the tests that failed on the base and pass now, and the command's own name where it was red
    there without a failing test in its report and passes now.

    What is flaky now is not fixed. Empty without a result of the base, and for a command that is not required.
    """
    if base_result is None or not result.required:
        return []
    passed = {case_key(case) for case in result.cases if case.outcome == "passed" and not case.flaky}
    still = set(map(case_key, failing_cases(result)))
    names = [case.name for case in failing_cases(base_result) if case_key(case) in passed - still]
    is_command_fixed = (
        result.verdict == "passed"
        and base_result.verdict != "passed"
        and not failing_cases(base_result)
        and not result.flaky
    )
    return [*dict.fromkeys(names), *([result.name] if is_command_fixed else [])]


def _severity_rank(case: TestCase) -> int:
    """Return a case's place in the order for readers: 0 for new failures, 1 for known ones, 2 for flaky tests, 3 for
    the rest."""
    if case.outcome in FAILING:
        return 1 if case.known else 0
    return 2 if case.flaky else 3


def is_complete(report: TestReport) -> bool:
    """Return whether a report is worth keeping: it has commands, and each passed, or failed by an exit code of its own
    (1 to 128).

    A command that was killed, ended because of too much output, or never began may do better next time.
    """
    return bool(report.commands) and all(
        result.verdict == "passed"
        or (result.verdict == "failed" and 0 < (result.exit_code or 0) <= 128 and result.reason != flood_reason())
        for result in report.commands
    )


def environment_key(tree: str, commands: Sequence[TestCommand], *environment: str) -> str:
    """Return the hash of everything that a result on `tree` depends on: Perdure's version, the commands and
    `environment` (setup, search path, grade of the sandbox …)."""
    commands_json = json.dumps([command.model_dump(mode="json") for command in commands])
    return digest(__version__, tree, commands_json, *environment)


def without_comparison(report: TestReport) -> TestReport:
    """Return the report as it would be of a base: commit, tree and results alone, no failure marked as known, no
    `since`."""
    commands = tuple(
        result.model_copy(
            update={"since": None, "cases": tuple(case.model_copy(update={"known": False}) for case in result.cases)}
        )
        for result in report.commands
    )
    return TestReport(commit=report.commit, tree=report.tree, commands=commands)


def load_baseline(store: KeyedStore, key: str) -> TestReport | None:
    """Return the report that is stored under this key, and mark it as used; None when there is none, or it is
    damaged."""
    with store.use_newest(key) as kept:
        try:
            return TestReport.model_validate_json((kept / _REPORT).read_bytes()) if kept else None
        except (OSError, ValidationError):
            return None


def store_baseline(store: KeyedStore, key: str, report: TestReport) -> bool:
    """Store a report under this key, in the place of what was stored there, and return whether it is stored: False for
    one that is not complete (see is_complete), and when the disk refuses it."""
    if not is_complete(report):
        return False
    with suppress(OSError), store.stage_entry(key) as staging:
        write_whole(staging / _REPORT, report.to_json())
        return True
    return False


Rerun: TypeAlias = Callable[[TestCase | None], Awaitable[CommandResult | None]]
"""Runs a command once more, for one test alone or (None) as a whole. Its result is None where the runner cannot select
that test, or the time for reruns is over."""


async def rerun_new_failures(result: CommandResult, base_result: CommandResult | None, rerun: Rerun) -> CommandResult:
    """Compare a result with the base, run its new failures once more, and return it with those that did not fail again
    marked flaky.

    base_result  the same command's on the base commit; None: all failures are new

    Each failing test is run alone; where the runner cannot select one, or the report names no new failing test, the
    whole command is run again instead. A flaky test counts as passed, and keeps its message. What could not be run
    again stays failed. Nothing is run again where no failure is new, the command did not end by itself, or too many
    tests fail. Raises what `rerun` raises.
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

    False for failures that are known, for a command that could not start, did not end by itself, was killed
    twice or printed too much, and for more than RERUN_TESTS_MOST new failing tests, which are no accident.
    """
    if result.since is not BaseComparison.NEW or result.verdict not in ("failed", "contradicted"):
        return False
    if result.killed_runs and result.exit_code in KILLED_EXIT_CODES:
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
    """Return the result with these cases as passed and flaky; where no other case fails, the command's verdict is
    passed."""
    names = set(map(case_key, flaky))
    cases = tuple(
        case.model_copy(update={"outcome": "passed", "flaky": True}) if case_key(case) in names else case
        for case in result.cases
    )
    changed = result.model_copy(update={"cases": cases})
    if flaky and not failing_cases(changed):
        return changed.model_copy(update={"verdict": "passed", "since": None})
    return changed
