"""Failures that the base commit had already: compared test by test, and stored for the next delivery on the same
base."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import ValidationError

from perdure import __version__
from perdure.adapters.git.command import GitError
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.output import flood_reason
from perdure.models.config import TestCommand
from perdure.models.ids import digest
from perdure.models.report import BaseComparison, CommandResult, TestCase, TestReport

BASELINE_AGE_S = 7 * 86_400.0
"""Seconds for which stored results of a base commit are used: what setup installs without a lock file changes within
weeks."""


FAILING = ("failed", "errored")

CaseKey: TypeAlias = tuple[str, str]


def case_key(case: TestCase) -> CaseKey:
    """Return what makes a test the same one on two commits: its file and its name. Several tests may share it (node
    names no file)."""
    return case.file, case.name


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
    """Return whether the report has commands, and each passed or failed by an exit code of its own (1 to 128).

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


def load_baseline(vault: Vault, key: str, clock: Callable[[], float] = time.time) -> TestReport | None:
    """Read the report that the vault stores under this key; None when there is none, it is damaged, or it is older than
    BASELINE_AGE_S."""
    try:
        stored = json.loads(vault.git.execute("cat-file", "blob", _baseline_ref(key)).stdout)
        age = clock() - float(stored["found_at"])
        return TestReport.model_validate(stored["report"]) if 0 <= age < BASELINE_AGE_S else None
    except (GitError, ValueError, KeyError, TypeError, ValidationError):
        return None


def store_baseline(vault: Vault, key: str, report: TestReport, clock: Callable[[], float] = time.time) -> bool:
    """Write a complete report into the vault, as a blob under the ref of its key, and return whether it was stored.

    False for an incomplete report, and where another writer holds the ref's lock: a lock that a dead writer left is
    removed. Two writers at once do no harm, for both have found the same.
    """
    if not is_complete(report):
        return False
    stored = json.dumps({"found_at": clock(), "report": report.model_dump(mode="json")})
    blob, ref = vault.objects.write_blob(stored.encode()), _baseline_ref(key)
    try:
        vault.git.execute("update-ref", ref, blob)
    except GitError:  # another writer, alive (git waited for it) or dead: its lock must not stand for ever
        vault.remove_stale_locks(ref)
        return False
    return True


def _baseline_ref(key: str) -> str:
    return f"refs/baselines/{key}"
