"""Failures that were on the base commit already: compared by case, kept for the next delivery on the same base."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from pydantic import ValidationError

from perdure import __version__
from perdure.adapters.git.door import GitError
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.output import flooded
from perdure.models.config import TestCommand
from perdure.models.ids import digest
from perdure.models.report import CommandResult, Since, TestCase, TestReport

BASELINE_AGE_S = 7 * 86_400.0
"""The life of the base commit's results: what setup installs without a lock file moves on within weeks."""


FAILING = ("failed", "errored")

Key: TypeAlias = tuple[str, str]


def key(case: TestCase) -> Key:
    """Return what makes a test the same one on two commits; several may share it (node names no file)."""
    return case.file, case.name


def failing(result: CommandResult) -> list[TestCase]:
    return [case for case in result.cases if case.outcome in FAILING]


def compared(report: TestReport, baseline: TestReport, base: str) -> TestReport:
    """The report with every failure marked as new or known, against the same commands on the base commit.

    base  its name, for people

    A test that is not on the base and fails is new. A command is excused only when all its failing tests are known and
    it ended with the same exit code: one that broke off early has not shown that nothing else fails.
    """
    before = by_command(baseline)
    commands = [against(result, before.get(command(result))) for result in report.commands]
    commands.sort(key=lambda result: (result.since is None, result.since is not Since.NEW or not result.required))
    fixed = tuple(name for result in commands for name in _fixed(result, before.get(command(result))))
    return report.model_copy(update={"base": base, "commands": tuple(commands), "fixed": fixed})


def command(result: CommandResult | TestCommand) -> tuple[str, str]:
    """Return what makes a command the same one in two reports."""
    return result.name, result.command


def by_command(report: TestReport) -> dict[tuple[str, str], CommandResult]:
    return {command(result): result for result in report.commands}


def against(now: CommandResult, base: CommandResult | None) -> CommandResult:
    """One command's result with its failures marked; `base` None: all of it is new. Failed cases come first."""
    left = Counter(map(key, failing(base))) if base is not None else Counter[Key]()
    cases = []
    for case in now.cases:
        known = case.outcome in FAILING and left[key(case)] > 0
        left[key(case)] -= known
        cases.append(case if case.known == known else case.model_copy(update={"known": known}))
    cases.sort(key=_worst_first)
    marked = now.model_copy(update={"cases": tuple(cases), "since": None})
    return marked if now.verdict == "passed" else marked.model_copy(update={"since": _since(marked, base)})


def _since(now: CommandResult, base: CommandResult | None) -> Since:
    red = failing(now)
    if base is None or base.verdict == "passed" or any(not case.known for case in red):
        return Since.NEW
    if (now.verdict, now.exit_code) != (base.verdict, base.exit_code):
        return Since.NEW
    if red and not now.partial:
        return Since.KNOWN
    if red:
        return Since.UNDECIDABLE
    return Since.NEW if failing(base) else Since.UNDECIDABLE


def _fixed(now: CommandResult, base: CommandResult | None) -> list[str]:
    if base is None or not now.required:
        return []
    passed = {key(case) for case in now.cases if case.outcome == "passed" and not case.flaky}
    still = set(map(key, failing(now)))
    names = [case.name for case in failing(base) if key(case) in passed - still]
    whole = now.verdict == "passed" and base.verdict != "passed" and not failing(base) and not now.flaky
    return [*dict.fromkeys(names), *([now.name] if whole else [])]


def _worst_first(case: TestCase) -> int:
    """New failures before known ones, then the flaky ones, then what a reader can do without."""
    if case.outcome in FAILING:
        return 1 if case.known else 0
    return 2 if case.flaky else 3


def complete(report: TestReport) -> bool:
    """True where every command came to an end of its own: one killed, or never begun, may do better next time."""
    return bool(report.commands) and all(
        result.verdict == "passed"
        or (result.verdict == "failed" and 0 < (result.exit_code or 0) <= 128 and result.reason != flooded())
        for result in report.commands
    )


def environment_key(tree: str, commands: Sequence[TestCommand], *environment: str) -> str:
    """Of everything a result on `tree` depends on. `environment`: setup, search path, grade of the sandbox…"""
    asked = json.dumps([command.model_dump(mode="json") for command in commands])
    return digest(__version__, tree, asked, *environment)


def on_its_own(report: TestReport) -> TestReport:
    """The report without any comparison: as it would be of a base."""
    commands = tuple(
        one.model_copy(
            update={"since": None, "cases": tuple(case.model_copy(update={"known": False}) for case in one.cases)}
        )
        for one in report.commands
    )
    return TestReport(commit=report.commit, tree=report.tree, commands=commands)


def recall(vault: Vault, key: str, now: Callable[[], float] = time.time) -> TestReport | None:
    """Return the report found before; None when there is none, it is damaged, or too old."""
    try:
        kept = json.loads(vault.git.run("cat-file", "blob", _ref(key)).stdout)
        age = now() - float(kept["found_at"])
        return TestReport.model_validate(kept["report"]) if 0 <= age < BASELINE_AGE_S else None
    except (GitError, ValueError, KeyError, TypeError, ValidationError):
        return None


def remember(vault: Vault, key: str, report: TestReport, now: Callable[[], float] = time.time) -> bool:
    """Keep a complete report; whether it was kept. Two at once are fine: they found the same."""
    if not complete(report):
        return False
    kept = json.dumps({"found_at": now(), "report": report.model_dump(mode="json")})
    blob, ref = vault.objects.blob(kept.encode()), _ref(key)
    try:
        vault.git.run("update-ref", ref, blob)
    except GitError:  # another writer, alive (git waited for it) or dead: its lock must not stand for ever
        vault.remove_stale_locks(ref)
        return False
    return True


def _ref(key: str) -> str:
    return f"refs/baselines/{key}"
