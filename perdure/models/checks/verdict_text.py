"""The facts of test reports and reviews as texts that every rendering shares: changed promises, faults that experiments
find in a change, with instructions for whoever has to undo them, test cases and review points. Pure functions."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.models.checks.report import (
    CommandResult,
    Experiment,
    Findings,
    Justification,
    Promise,
    Review,
    Severity,
    TestCase,
    TestReport,
    killed_runs_text,
)
from perdure.text import format_count, one_line, shorten

_NAMES_FOR_PEOPLE, _NAMES_IN_PROMPT = 4, 20
_NAME_CHARS = 200


@dataclass(frozen=True)
class TamperingFault:
    """One way in which the tests of a change pass without the product being right.

    title   one line for people
    names   what is at fault: tests, files
    remedy  what has to be done about it
    """

    title: str
    names: tuple[str, ...]
    remedy: str

    @property
    def failures(self) -> tuple[str, ...]:
        """Return the names of the tests and files at fault; where there are none, the title."""
        return self.names or (self.title,)


def find_faults(report: TestReport) -> list[TamperingFault]:
    """Return the faults that the report's experiment shows; empty when it shows none, or no experiment was made.

    Canaries are not named in them: they are others each time, and the faults of two verdicts are compared.
    """
    experiment = report.experiment
    return _faults_of(experiment, report) if experiment is not None and experiment.is_tampered else []


def with_experiment(report: TestReport, experiment: Experiment) -> TestReport:
    """Return a copy of the report with the experiment in it, and in its note, before what stands there, how to undo
    each fault that the experiment shows."""
    report = report.model_copy(update={"experiment": experiment})
    remedies = [fault.remedy for fault in find_faults(report)]
    return report.model_copy(update={"note": " ".join([*remedies, *([report.note] if report.note else [])])})


def _faults_of(experiment: Experiment, report: TestReport) -> list[TamperingFault]:
    """Return the faults of tampering: one for tests of the base removed or skipped while they fail, one for tests that
    fail when the test side is read-only, one for each command that did not report its canaries, and one for files of
    the test side that tests wrote."""
    base, commit = experiment.branch or "the base", experiment.base[:12]
    removed, written_files = experiment.removed_tests, _unique_names(command.written for command in experiment.commands)
    contradicted = _unique_names(command.contradicted for command in experiment.commands)
    faults = []
    if removed:
        removal = _removal_text(removed, report)
        title = (
            f"{_failing_tests_text(removed, base)} and {'is' if len(removed) == 1 else 'are'} "
            f"{removal}: {join_short_names(removed)}"
        )
        remedy = (
            f"Tests of {base} fail on the change, and are {removal} in it: "
            f"{_join_for_prompt(removed)}. Put them back as they are "
            f"on {base} (`git show {commit}:FILE`) and make the product pass them."
        )
        faults.append(TamperingFault(title, removed, remedy))
    if contradicted:
        title = (
            f"{_failing_tests_text(contradicted, base)} where nobody can write to the tests: "
            f"{join_short_names(contradicted)}"
        )
        remedy = (
            f"These tests of {base} fail on the change where tests and their settings are read-only, as they are in "
            f"every verdict: {_join_for_prompt(contradicted)}. Make the product pass them as they are on {base}."
        )
        faults.append(TamperingFault(title, contradicted, remedy))
    for command in experiment.commands:
        if command.missed:
            number = len(command.missed)
            title = f"{command.name}: {'a canary was' if number == 1 else f'{number} canaries were'} not reported"
            remedy = (
                f"Tests that always fail were put among those of `{command.command}`, and were not "
                "reported as failing. "
                "Something in the change hides failures: a patched assertion, hook or runner, a rewritten report, "
                "an early exit. Find it and take it out."
            )
            faults.append(TamperingFault(title, (), remedy))
        if command.replaced:
            title = f"{command.name}: the change replaces what tests rely on: {join_short_names(command.replaced)}"
            remedy = (
                f"While the tests of `{command.command}` run, the change replaces parts of libraries or of the "
                f"process: {_join_for_prompt(command.replaced)}. Leave them as they are."
            )
            faults.append(TamperingFault(title, command.replaced, remedy))
    if written_files:
        title = f"files of the test side are written while the tests run: {join_short_names(written_files)}"
        remedy = (
            "Nothing may write to tests and their data while they run, and the change does: "
            f"{_join_for_prompt(written_files)}."
        )
        faults.append(TamperingFault(title, written_files, remedy))
    return faults


def join_short_names(names: Sequence[str]) -> str:
    """Return the first four distinct names joined by commas, each without what stands before `::`, and "…" when there
    are more."""
    short = list(dict.fromkeys(shorten(name.rsplit("::", 1)[-1], _NAME_CHARS) for name in names))
    return ", ".join(short[:_NAMES_FOR_PEOPLE]) + (", …" if len(short) > _NAMES_FOR_PEOPLE else "")


def _join_for_prompt(names: Sequence[str]) -> str:
    """Return the first 20 names joined by commas, each cut to 200 characters, and the number of the others: for a
    prompt."""
    more = f" and {len(names) - _NAMES_IN_PROMPT} more" if len(names) > _NAMES_IN_PROMPT else ""
    return ", ".join(shorten(name, _NAME_CHARS) for name in names[:_NAMES_IN_PROMPT]) + more


def _failing_tests_text(names: Sequence[str], base: str) -> str:
    """Return the beginning of a sentence such as `2 tests of main fail`."""
    return f"{format_count(len(names), 'test')} of {base} fail{'s' if len(names) == 1 else ''}"


def _removal_text(removed: Sequence[str], report: TestReport) -> str:
    """Return "gone" when none of the tests is in the report, "skipped" when all are, else "gone or skipped"."""
    reported = {case.name for result in report.commands for case in result.cases}
    skipped = [name for name in removed if name in reported]
    return "gone" if not skipped else "skipped" if len(skipped) == len(removed) else "gone or skipped"


def _unique_names(name_lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names of all lists, each once, in order."""
    return tuple(dict.fromkeys(name for names in name_lists for name in names))


PROMISE_NAME_CHARS = 200
"""Of a test's name when a review is asked about it: the name that comes back is compared with this."""

EXPERIMENT_LINES = 60
"""Of the difference between both versions of one test: what a person reads beside a decision."""

NAMES_SHOWN = 8
"""Names of tests in one line about an experiment; its report has them all."""


_SAME = "the test is the same: what it uses has changed"
_ABOVE = "  both versions are above"


@dataclass(frozen=True)
class ChangedPromise:
    """One changed promise as people see it: a test of the base that fails on the change.

    name      as it is shown
    versions  the test on the base and on the change: lines that begin with `-`, `+` or a blank
    answer    the reviewer's; None: none was asked. Its quote is empty where nothing in the request asks for the change
    """

    name: str
    promise: Promise
    versions: tuple[str, ...]
    answer: Justification | None = None

    @property
    def justification(self) -> str:
        """Return, in one line, the words of the request that the reviewer quoted as asking for the change, and the
        reason; that nothing asks for it; or that it was not reviewed."""
        if self.answer is None:
            return "not reviewed"
        reason = f" ({' '.join(self.answer.reason.split())})" if self.answer.reason.strip() else ""
        if not self.answer.quote.strip():
            return f"nothing in the request asks for it{reason}"
        return f"the request says “{' '.join(self.answer.quote.split())}”{reason}"

    @property
    def justified(self) -> bool:
        """Return True when the reviewer quoted words of the request that ask for the change."""
        return self.answer is not None and bool(self.answer.quote.strip())


def changed_promises(report: TestReport | None, review: Review | None = None) -> tuple[ChangedPromise, ...]:
    """Return all changed promises of a report, base tests that fail on the change, with the answers of the review that
    was shown them.

    Versions that equal those of an earlier promise are replaced by a line that says so. Empty without a report or
    experiment.
    """
    if report is None or report.experiment is None:
        return ()
    answers = {answer.test: answer for answer in review.promises} if review is not None else {}
    promises, seen = list[ChangedPromise](), set[tuple[str, ...]]()
    for name, promise in promises_by_label(report.experiment.changed_promises).items():
        versions = diff_lines(promise)
        promises.append(
            ChangedPromise(name, promise, versions if versions not in seen else (_ABOVE,), answers.get(name))
        )
        seen.add(versions)
    return tuple(promises)


def promises_by_label(promises: Iterable[Promise]) -> dict[str, Promise]:
    """Return each promise once, by the unique label under which its test is shown and answered: the test's name on one
    line, or `name (2)` when another one has that."""
    labelled: dict[str, Promise] = {}
    for promise in {(promise.file, promise.name): promise for promise in promises}.values():
        name = label_of(promise.name) or "(no name)"
        label, number = name, 1
        while label in labelled:
            label, number = f"{name} ({number + 1})", number + 1
        labelled[label] = promise
    return labelled


def label_of(name: str) -> str:
    """Return a test's name on one line, of at most PROMISE_NAME_CHARS."""
    return one_line(name, PROMISE_NAME_CHARS)


def experiment_notes(experiment: Experiment) -> tuple[str, ...]:
    """Return the findings of an experiment that decide nothing but that people should know, one line each.

    They are: tests taken away when that is allowed, tests of the base that are gone, settings of the change without
    which the base's tests do not start, tests that fail without the change, and what could not be asked.
    """
    base, lines = experiment.branch or "the base", list[str]()
    if experiment.allowed and (removed := [name for command in experiment.commands for name in command.taken]):
        lines.append(f"taken away, as the request allows: {join_names(removed)}")
    if lost := [name for command in experiment.commands for name in command.lost]:
        lines.append(f"tests of {base} that would pass, and are gone: {join_names(lost)}")
    if steered := dict.fromkeys(path for command in experiment.commands for path in command.steered):
        lines.append(f"{base}'s tests start only with the change's own settings: {join_names(tuple(steered))}")
    if proving := [name for command in experiment.commands for name in command.proving or ()]:
        lines.append(f"fail without the change: {join_names(label_of(name) for name in proving)}")
    if unbuilt := [name for command in experiment.commands for name in command.unbuilt]:
        lines.append(f"do not build without the change: {join_names(label_of(name) for name in unbuilt)}")
    if hollow := [name for command in experiment.commands for name in command.hollow]:
        lines.append(f"pass with the new functions stubbed: {join_names(label_of(name) for name in hollow)}")
    return (*lines, *(f"not asked: {reason}" for reason in experiment.unasked_reasons))


def diff_lines(promise: Promise) -> tuple[str, ...]:
    """Return both versions of the test as lines that begin with `-`, `+` or a blank, at most EXPERIMENT_LINES and one
    that counts the others.

    One line that says so when both are the same; empty when the versions are not known.
    """
    before, after = promise.before.splitlines(), promise.after.splitlines()
    if before == after:
        remark = f"fails {promise.condition}" if promise.condition else _SAME
        return (f"  {remark}",) if before or promise.condition else ()
    lines = list(difflib.unified_diff(before, after, n=2, lineterm=""))[2:]
    diff = [f"{line[0]} {line[1:]}" if line[0] in "+- " else "…" for line in lines]
    shown = diff[1:] if diff[:1] == ["…"] else diff
    more = [f"… {len(shown) - EXPERIMENT_LINES} more lines"] if len(shown) > EXPERIMENT_LINES else []
    return (*shown[:EXPERIMENT_LINES], *more)


def join_names(names: Iterable[str]) -> str:
    """Return the first NAMES_SHOWN names joined by commas, and how many more there are, if any."""
    all_names = list(names)
    more = f" and {len(all_names) - NAMES_SHOWN} more" if len(all_names) > NAMES_SHOWN else ""
    return ", ".join(all_names[:NAMES_SHOWN]) + more


VERDICTS = {
    "passed": "passed",
    "failed": "failed",
    "timed_out": "took too long and was ended",
    "not_started": "could not start",
    "contradicted": "its report and its exit code disagree",
}
SINCE = {"new": "new", "known": "as on the base", "undecidable": "new or not: cannot be told"}


@dataclass(frozen=True)
class ReviewPoint:
    """Something that the reviewer or the engine found in a change. `source`: `reviewer` or `engine`."""

    severity: Severity
    title: str
    description: str
    file: str
    line: int | None
    suggestion: str
    source: str
    screenshots: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Return its place, `file:line`, or the file alone; empty: it is about no file."""
        return f"{self.file}:{self.line}" if self.file and self.line else self.file


@dataclass(frozen=True)
class CaseGroups:
    """The tests of one command, sorted into what a person looks for."""

    failed: tuple[TestCase, ...]
    flaky: tuple[TestCase, ...]
    skipped: tuple[TestCase, ...]
    passed: tuple[TestCase, ...]


def review_points(review: Review | None, findings: Findings | None) -> list[ReviewPoint]:
    """Return the findings of reviewer and engine in one list, the worst first; of the same severity the engine's first,
    for they are certain."""
    all_points = [
        ReviewPoint(f.severity, f.title, f.description, f.file, f.line, f.suggestion, "engine")
        for f in (findings.findings if findings else ())
    ]
    all_points += [
        ReviewPoint(i.severity, i.title, i.description, i.file, i.line, i.suggestion, "reviewer", tuple(i.screenshots))
        for i in (review.issues if review else ())
    ]
    order = list(Severity)
    return sorted(all_points, key=lambda point: order.index(point.severity))


def cases_of(command: CommandResult) -> CaseGroups:
    """Return a command's tests in groups: a flaky test is only in `flaky`, and `failed` has those with errors, too."""
    red = ("failed", "errored")
    flaky = tuple(case for case in command.cases if case.flaky)
    rest = [case for case in command.cases if not case.flaky]
    return CaseGroups(
        failed=tuple(case for case in rest if case.outcome in red),
        flaky=flaky,
        skipped=tuple(case for case in rest if case.outcome == "skipped"),
        passed=tuple(case for case in rest if case.outcome not in (*red, "skipped")),
    )


def verdict_of(command: CommandResult) -> str:
    """Return a command's verdict in one line for people: `failed, exit code 1, new`; also whether it is flaky, was
    killed, stops at its first failure, or does not decide."""
    parts = [VERDICTS.get(command.verdict, command.verdict)]
    is_bad = command.verdict != "passed"
    parts += [f"exit code {command.exit_code}"] if is_bad and command.exit_code is not None else []
    parts += [SINCE[command.since]] if command.since else []
    parts += ["passed when it was run once more"] if command.flaky else []
    parts += [killed_runs_text(command.killed_runs)] if command.killed_runs else []
    parts += ["stops at its first failure"] if command.partial else []
    parts += [] if command.required else ["does not decide"]
    return ", ".join(parts)


def count_outcomes(cases: Iterable[TestCase]) -> str:
    """Return how many tests had each outcome, `44 passed, 1 skipped`, without outcomes that none had."""
    counts = Counter(case.outcome for case in cases)
    outcomes = ("passed", "failed", "errored", "skipped")
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in outcomes if counts[outcome])


def case_name(case: TestCase) -> str:
    """Return the test's name, with its file before it unless the name has that already."""
    return f"{case.file}: {case.name}" if case.file and case.file not in case.name else case.name
