"""One run for B and C, where it says as much as the two: tests of the base on the change, each made to fail at its end.

A test that fails with exactly the words of the end of its own body came to that end, and would have passed; those that
must fail are in the same run. This holds where nobody can say these words before, or is another one when they are about
to be said. So a test counts only where its runner alone calls it and looks at how it ended, once, and a change only
where nothing new in its product can look at tests, files, frames or the interpreter. Where any of that is not known, or
a single test of the base says anything else, B is a run of its own.

A suite that runs one test after another is asked in two halves beside each other, each of some of its files, with
canaries of its own: a half says of its tests what the whole would, or both runs are made as a whole. What one test
leaves behind for another of another file was seen in the change's own run, where both are as on the base; files that
the change has otherwise are in both halves, and where it changes what all tests share there are none.

A forger gains nothing by it. The words are random, one for each test, made for this run alone; they stand in the test
file and in the function around the body. Whoever gets at them at run time can tell B from C, or any test run from all
others, and needs nothing else to fool both: such code is for the reviewer in any case, and here has B for itself.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from perdure.adapters.checks.baseline import CaseKey, case_key
from perdure.adapters.checks.experiment.commits import CommitPair
from perdure.adapters.checks.experiment.judge import ended, green, red
from perdure.adapters.checks.experiment.runs import Ran
from perdure.adapters.checks.runners.base import Canaries, Runner
from perdure.models.config import TestCommand
from perdure.models.report import CommandResult, TestCase

HALVED_FROM_S = 1.5
"""Seconds that the tests of a suite took: to start a runner once more takes some 0.3 s of a processor."""

HALVED_SHARE = 0.5
"""Of a command's time, that its tests took: what else it does, both halves do. Over 1.1 it runs several at once."""


def may_be_one(
    commits: CommitPair, runner: Runner | None, test: TestCommand, canaries: Canaries, before: CommandResult | None
) -> bool:
    """True where one run may do, by what is known before it. `before`: the base's own run; None: not yet known."""
    if runner is None or test.report in ("exit", "junit") or not canaries.end_messages:
        return False
    if runner.early_stop and re.search(runner.early_stop, test.command):
        return False
    told = all(canaries.end_message(*one) or not canaries.is_made_to_fail(one[1]) for one in green(before))
    return told and commits.cannot_look(runner)


def parts(
    canaries: Canaries, runner: Runner | None, before: CommandResult | None, altered: Collection[str] | None = ()
) -> tuple[Canaries, ...]:
    """The same canaries in two halves of their files that take as long, or as they are where that gains nothing.

    altered  files of the base's tests that the change's own run had otherwise, for both halves; None: all of them
    """
    if runner is None or before is None or altered is None or len(os.sched_getaffinity(0)) < 2:
        return (canaries,)
    took = defaultdict[str, float](float)
    for case in before.cases:
        took[case.file] += case.duration_s
    share = sum(took.values()) / (before.duration_s or 1)
    left_out = {path: runner.text_without_tests(text) for path, text in canaries.files.items()}
    if sum(took.values()) < HALVED_FROM_S or not HALVED_SHARE <= share <= 1.1 or not all(left_out.values()):
        return (canaries,)
    both, apart = canaries.files.keys() & set(altered), sorted(canaries.files.keys() - set(altered))
    if both and not all(case.file for case in before.cases):  # nothing says in which of them a test is to be
        return (canaries,)
    if len(apart) < 2 or sum(took[path] for path in both) > HALVED_SHARE * sum(took.values()):
        return (canaries,)
    *rest, last_but_one, last = apart  # two that look at the runner's own code are in different ones (see intact)
    halves = [{last_but_one}, {last}]
    for path in sorted(rest, key=lambda path: -took[path]):
        min(halves, key=lambda half: sum(took[one] for one in half)).add(path)
    return tuple(canaries.for_files(half | both, left_out) for half in halves)


def whole(rans: Sequence[Ran]) -> Ran:
    """One run of all that these ran; what is not known of one of them is not known of it."""
    odd = next((ran.result for ran in rans if ran.result.verdict != "failed" or not ended(ran.result)), None)
    result = (odd or rans[0].result).model_copy(
        update={
            "cases": tuple(case for ran in rans for case in ran.result.cases),
            "partial": any(ran.result.partial for ran in rans),
        }
    )
    return Ran(result, tuple(sorted({path for ran in rans for path in ran.written})))


def as_passed(runner: Runner, asked: Sequence[Canaries], before: CommandResult, rans: Sequence[Ran]) -> Ran | None:
    """The base's tests on the change as if they had run by themselves: all that were green came to their ends. None
    where any of them, or of the canaries, says anything else in any of the runs it is asked in."""
    was = green(before)
    said = Counter(case_key(case) for ran in rans for case in ran.result.cases)
    of_no_file = {one for one in was if not one[0]} if len(rans) > 1 else set[CaseKey]()
    if any(said[one] != times for one, times in Counter(map(case_key, before.cases)).items() if one in of_no_file):
        return None  # nobody knows which of them was to have it
    for canaries, ran in zip(asked, rans, strict=True):
        left_out = canaries.files.keys() - set(canaries.names.values()) if len(asked) > 1 else set[str]()
        there = {case_key(case) for case in ran.result.cases} if left_out else was
        own = {one for one in was if (one[0] not in left_out if one[0] else one in there)}
        if not _came_to_their_ends(runner, canaries, own, ran):
            return None
    passed = tuple(case for case in before.cases if case_key(case) in was)
    return Ran(rans[0].result.model_copy(update={"verdict": "passed", "exit_code": 0, "cases": passed}), ())


def _came_to_their_ends(runner: Runner, canaries: Canaries, asked: Collection[CaseKey], ran: Ran) -> bool:
    result = ran.result
    if result.verdict != "failed" or result.partial or not ended(result) or ran.written:
        return False
    if set(canaries.names) - red(canaries.names, result, counts=True):
        return False
    said = defaultdict[CaseKey, list[TestCase]](list)
    for case in result.cases:
        said[case_key(case)].append(case)
    for name, words in canaries.witnesses.items():
        if [runner.failure_text(case.message) for case in result.cases if name in case.name] != [words]:
            return False
    return bool(asked) and all(_would_pass(runner, canaries, one, said[one]) for one in asked)


def _would_pass(runner: Runner, canaries: Canaries, one: CaseKey, cases: list[TestCase]) -> bool:
    """True for a test that was made to fail and says that its body ended, once; or was left as it is, and passed."""
    words = canaries.end_message(*one)
    if not words:
        return not canaries.is_made_to_fail(one[1]) and bool(cases) and all(case.outcome == "passed" for case in cases)
    return [(case.outcome, runner.failure_text(case.message)) for case in cases] == [("failed", words)]
