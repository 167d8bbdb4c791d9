"""A run in the place of B and C: the base's tests on the change, each made to fail at its end with a random message.

A test that fails with exactly its own message came to its end, and would have passed; the canaries are in the same run.
This counts only where its runner alone calls a test and looks at how it ended, and where nothing new in the product can
look at tests, files, frames or the interpreter. Otherwise, or where a single test of the base says anything else, B is
a run of its own.

A suite that runs one test after another is split into two runs at the same time, each of some of its files; files that
the change has otherwise are in both.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from perdure.adapters.checks.baseline import CaseKey, case_key
from perdure.adapters.checks.experiment.commit_pair import CommitPair
from perdure.adapters.checks.experiment.outcomes import ended_by_itself, green_keys, red_canaries
from perdure.adapters.checks.experiment.runs import ExperimentRun
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.config.repository import TestCommand

HALVED_FROM_S = 1.5
"""The shortest time, in seconds, of tests that are split: to start a runner once more takes some 0.3 s of a
processor."""

HALVED_SHARE = 0.5
"""The smallest share of a command's time that its tests must take: what else it does, both halves do. Over 1.1 it runs
several tests at once."""


def can_combine(
    commits: CommitPair, runner: Runner | None, test: TestCommand, canaries: Canaries, base_result: CommandResult | None
) -> bool:
    """Return whether one run may do for the base's tests on the change (B) and the canaries (C), as far as that is
    known before it. `base_result` None: not yet known."""
    if runner is None or test.report in ("exit", "junit") or not canaries.end_messages:
        return False
    if runner.early_stop and re.search(runner.early_stop, test.command):
        return False
    all_known = all(
        canaries.end_message(*test_key) or not canaries.is_made_to_fail(test_key[1])
        for test_key in green_keys(base_result)
    )
    return all_known and commits.is_change_blind(runner)


def split_canaries(
    canaries: Canaries, runner: Runner | None, base_result: CommandResult | None, altered: Collection[str] | None = ()
) -> tuple[Canaries, ...]:
    """Split canaries into two halves of their files that take as long; return them as they are where that gains
    nothing.

    altered  files of the base's tests that the change has otherwise, for both halves; None: any file may be one
    """
    if runner is None or base_result is None or altered is None or len(os.sched_getaffinity(0)) < 2:
        return (canaries,)
    seconds = defaultdict[str, float](float)
    for case in base_result.cases:
        seconds[case.file] += case.duration_s
    share = sum(seconds.values()) / (base_result.duration_s or 1)
    left_out = {path: runner.text_without_tests(text) for path, text in canaries.files.items()}
    if sum(seconds.values()) < HALVED_FROM_S or not HALVED_SHARE <= share <= 1.1 or not all(left_out.values()):
        return (canaries,)
    both, apart = canaries.files.keys() & set(altered), sorted(canaries.files.keys() - set(altered))
    if both and not all(case.file for case in base_result.cases):  # nothing says in which of them a test is to be
        return (canaries,)
    if len(apart) < 2 or sum(seconds[path] for path in both) > HALVED_SHARE * sum(seconds.values()):
        return (canaries,)
    *rest, last_but_one, last = apart  # two that look at the runner's own code are in different ones (see intact)
    halves = [{last_but_one}, {last}]
    for path in sorted(rest, key=lambda path: -seconds[path]):
        min(halves, key=lambda half: sum(seconds[path_in_half] for path_in_half in half)).add(path)
    return tuple(canaries.for_files(half | both, left_out) for half in halves)


def merge_runs(test_runs: Sequence[ExperimentRun]) -> ExperimentRun:
    """Merge runs into one with all their cases and written paths; it has the verdict of the first that did not fail and
    end by itself, else of the first."""
    odd = next(
        (
            test_run.result
            for test_run in test_runs
            if test_run.result.verdict != "failed" or not ended_by_itself(test_run.result)
        ),
        None,
    )
    result = (odd or test_runs[0].result).model_copy(
        update={
            "cases": tuple(case for test_run in test_runs for case in test_run.result.cases),
            "partial": any(test_run.result.partial for test_run in test_runs),
        }
    )
    return ExperimentRun(result, tuple(sorted({path for test_run in test_runs for path in test_run.written_paths})))


def combined_as_passed(
    runner: Runner, canary_parts: Sequence[Canaries], base_result: CommandResult, test_runs: Sequence[ExperimentRun]
) -> ExperimentRun | None:
    """Return the base's tests on the change as if they had run without canaries, all passed; None where a test or
    canary does not fail as it must in each of its runs."""
    base_green = green_keys(base_result)
    counts = Counter(case_key(case) for test_run in test_runs for case in test_run.result.cases)
    of_no_file = {test_key for test_key in base_green if not test_key[0]} if len(test_runs) > 1 else set[CaseKey]()
    if any(
        counts[test_key] != times
        for test_key, times in Counter(map(case_key, base_result.cases)).items()
        if test_key in of_no_file
    ):
        return None  # nobody knows which of them was to have it
    for canaries, test_run in zip(canary_parts, test_runs, strict=True):
        left_out = canaries.files.keys() - set(canaries.names.values()) if len(canary_parts) > 1 else set[str]()
        reported = {case_key(case) for case in test_run.result.cases} if left_out else base_green
        own = {
            test_key
            for test_key in base_green
            if (test_key[0] not in left_out if test_key[0] else test_key in reported)
        }
        if not _all_came_to_their_ends(runner, canaries, own, test_run):
            return None
    passed = tuple(case for case in base_result.cases if case_key(case) in base_green)
    return ExperimentRun(
        test_runs[0].result.model_copy(update={"verdict": "passed", "exit_code": 0, "cases": passed}), ()
    )


def _all_came_to_their_ends(
    runner: Runner, canaries: Canaries, test_keys: Collection[CaseKey], test_run: ExperimentRun
) -> bool:
    """Return whether all canaries are red in a run that wrote nothing, and each of these tests (at least one) would
    have passed."""
    result = test_run.result
    if result.verdict != "failed" or result.partial or not ended_by_itself(result) or test_run.written_paths:
        return False
    if set(canaries.names) - red_canaries(canaries.names, result, reports_cases=True):
        return False
    cases_by_key = defaultdict[CaseKey, list[TestCase]](list)
    for case in result.cases:
        cases_by_key[case_key(case)].append(case)
    for name, message in canaries.witnesses.items():
        if [runner.failure_text(case.message) for case in result.cases if name in case.name] != [message]:
            return False
    return bool(test_keys) and all(
        _would_pass(runner, canaries, test_key, cases_by_key[test_key]) for test_key in test_keys
    )


def _would_pass(runner: Runner, canaries: Canaries, test_key: CaseKey, cases: list[TestCase]) -> bool:
    """Return whether a test was made to fail and says once that its body ended, or was left as it is and passed."""
    message = canaries.end_message(*test_key)
    if not message:
        return (
            not canaries.is_made_to_fail(test_key[1])
            and bool(cases)
            and all(case.outcome == "passed" for case in cases)
        )
    return [(case.outcome, runner.failure_text(case.message)) for case in cases] == [("failed", message)]
