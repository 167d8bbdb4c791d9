"""The meaning of a test report: the verdict that is kept, with its one line for people; the note for the agent that
mends failures; required commands that could not even start; and writes to the read-only test side that made a command
fail, with the setting that allows them. Nothing is run here. Used by the activities that test, by `perdure init`, and
by the modules that run tests and experiments."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.checks.baseline import FAILING
from perdure.adapters.system.output import last_lines, missing_command
from perdure.models.checks.report import (
    BaseComparison,
    CommandResult,
    TamperingHit,
    TestCase,
    TestReport,
    killed_runs_text,
)
from perdure.models.checks.verdict_text import TamperingFault, find_faults, join_short_names, promises_by_label
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.work import TestVerdict
from perdure.models.errors import SetupFailed
from perdure.models.ids import digest
from perdure.text import format_count, shorten

FAILURES_NAMED = 10
"""Failing tests named in a verdict; the others are in the report."""


_NAME_CHARS = 200
_SUMMARY_CHARS = 300
_HITS_IN_SUMMARY = 2
_PROMISES_NAMED = 5
"""Changed promises named in a verdict, for the gate; the report has them all."""
_VARYING = re.compile(r"0x[0-9a-f]+|reports-[\w-]+|\d+")


@dataclass(frozen=True)
class NotStarted:
    """A required test command that could not start: found by preflight, before any money is spent."""

    name: str
    command: str
    reason: str
    tail: str

    @property
    def may_be_added(self) -> bool:
        """Return whether the change could still add what is missing.

        False when a program of the host is missing; a file of the repository, or a target in one, can be written.
        """
        missing = missing_command(self.tail)
        return not missing or "/" in missing

    def to_error(self, base: str, where: str) -> SetupFailed:
        """Return the error that ends the delivery, with what is missing and how to mend it.

        base   the base branch
        where  file, line and key of the command
        """
        missing = missing_command(self.tail)
        problem = f"{missing}: command not found" if missing else f"{self.reason}\n{last_lines(self.tail)}".rstrip()
        alternative = "set a command that runs here in perdure.toml"
        fix = f"install {missing}, or {alternative}" if missing else f"let [setup] install it, or {alternative}"
        return SetupFailed(f"`{self.command}` could not start on {base}: {problem}", where=where, fix=fix)


def verdict_of(report: TestReport) -> TestVerdict:
    """Return the verdict that a report's required commands make: red or green, with counts, names of failures and one
    line for people.

    Status is `none` where no command is required: nothing was shown about the tree. Failures that the base has, too, do
    not count against it; without a comparison with a base every failure counts, and the numbers of new, known and fixed
    ones are None. It is `undecidable`, and the number of new ones None, where the only red commands were red on the
    base and cannot be compared with it.

    It is red, too, whatever the commands report, where tests of the base are gone or weakened
    (perdure.adapters.checks.tamper), unless the request allows that; and where an experiment shows that tests do not
    pass because the product is right (perdure.adapters.checks.experiment).
    """
    required = [result for result in report.commands if result.required]
    if not required:
        return TestVerdict(status=TestsStatus.NONE, tree=report.tree, summary="no required test command")
    findings = _RequiredFindings(required, report)
    tampered = () if report.allowed else report.tampering
    tricks, experiment = find_faults(report), report.experiment
    is_red = bool(findings.red_commands or tampered or tricks)
    names = [*(hit.title for hit in tampered), *(name for fault in tricks for name in fault.failures)]
    names += [
        *dict.fromkeys(case.name for case in findings.new_cases),
        *(result.name for result in findings.unexplained),
    ]
    is_compared = bool(report.base)
    is_honest = not (tampered or tricks)
    undecidable = (
        bool(findings.red_commands)
        and is_honest
        and all(red_command.since is BaseComparison.UNDECIDABLE for red_command in findings.red_commands)
    )
    return TestVerdict(
        status=TestsStatus.RED if is_red else TestsStatus.GREEN,
        tree=report.tree,
        passed=_passed_count(findings.cases) if findings.cases else None,
        failed=len(_select_counted([*findings.new_cases, *findings.known_cases])) if findings.cases else None,
        failures=tuple(name[:_NAME_CHARS] for name in names[:FAILURES_NAMED]),
        summary=shorten(_summary_line(findings, report), _SUMMARY_CHARS),
        new_failures=len(_select_counted(findings.new_cases)) + len(findings.new_red_commands)
        if is_compared and not undecidable
        else None,
        known_failures=len(findings.known_cases) if is_compared else None,
        fixed=len(report.fixed) if is_compared else None,
        flaky=len(findings.flaky),
        killed_runs=findings.killed_runs,
        undecidable=undecidable,
        tampered=len(tampered) + len(tricks),
        fingerprint=_failure_fingerprint(findings, tampered, tricks) if is_red else "",
        experiment=shorten(experiment.summary_line, _SUMMARY_CHARS) if experiment is not None else "",
        promises=len(experiment.changed_promises) if experiment is not None else 0,
        promised=tuple(
            red_command[:_NAME_CHARS]
            for red_command in list(promises_by_label(experiment.changed_promises))[:_PROMISES_NAMED]
        )
        if experiment
        else (),
    )


class _RequiredFindings:
    """The evidence of a report's required commands.

    red_commands            commands that decide against the tree
    new_cases, known_cases  failing tests
    unexplained             of `red_commands`, those for which no new failing test stands
    new_red_commands        of `unexplained`, all but the undecidable ones
    flaky                   names of tests and commands
    killed_runs             their number, in experiments too
    """

    def __init__(self, required: Sequence[CommandResult], report: TestReport) -> None:
        self.required, self.base, self.fixed = required, report.base, report.fixed
        self.cases = [case for result in required for case in result.cases]
        failing = [case for case in self.cases if case.outcome in FAILING]
        self.new_cases = [case for case in failing if not case.known]
        self.known_cases = [case for case in failing if case.known]
        self.red_commands = [
            result for result in required if result.verdict != "passed" and result.since is not BaseComparison.KNOWN
        ]
        self.unexplained = [
            r for r in self.red_commands if not any(c.outcome in FAILING and not c.known for c in r.cases)
        ]
        self.new_red_commands = [
            result for result in self.unexplained if result.since is not BaseComparison.UNDECIDABLE
        ]
        flaky = [case.name for case in self.cases if case.flaky]
        self.flaky = [*dict.fromkeys(flaky), *(result.name for result in required if result.flaky)]
        trials = report.experiment.commands if report.experiment else ()
        self.killed_runs = sum(result.killed_runs for result in required) + sum(trial.killed_runs for trial in trials)


def fix_note(report: TestReport) -> str:
    """Return one line that tells the agent, who reads the whole report, which failures to mend and which to leave;
    empty where no required command is red."""
    findings = _RequiredFindings([result for result in report.commands if result.required], report)
    sentences = [
        f'Mend the failures with known=false ({len(findings.new_cases)}) and every command whose `since` is "new".'
    ]
    if findings.known_cases:
        sentences.append(
            f"Failures with known=true ({len(findings.known_cases)}) were there on {report.base} before: leave them."
        )
    if findings.flaky:
        sentences.append("Tests with flaky=true passed when they were run again: leave them.")
    return " ".join(sentences) if findings.red_commands else ""


def find_not_started(report: TestReport) -> NotStarted | None:
    """Find the first required command that could not start; None where all could."""
    for result in report.commands:
        if result.required and result.verdict == "not_started":
            return NotStarted(result.name, result.command, result.reason, result.tail)
    return None


def result_line(result: CommandResult) -> str:
    """Return one command's result in a few words: `44 green`, `2 of 44 fail: test_negative, test_zero`, `exit code 1`.

    Names are given only where the verdict is `failed` and the report has failing cases; else the reason.
    """
    failing = [case for case in result.cases if case.outcome in FAILING]
    if result.verdict == "passed":
        flaky = sum(case.flaky for case in result.cases) + result.flaky
        parts = [f"{_passed_count(result.cases)} green" if result.cases else "green"]
        parts += [f"{flaky} flaky"] if flaky else []
        parts += [killed_runs_text(result.killed_runs)] if result.killed_runs else []
        return ", ".join(parts)
    return _failures_line(failing, result.cases) if failing and result.verdict == "failed" else result.reason


def _summary_line(findings: _RequiredFindings, report: TestReport) -> str:
    """Return a verdict's one line for people: tampering, new failures and red commands, or what is green; then known,
    fixed and flaky tests, and runs that were killed.

    Without tampering, what the experiment has shown and what it did not ask comes last.
    """
    parts = []
    tampered = [] if report.allowed else [hit.title for hit in report.tampering]
    tampered += [fault.title for fault in find_faults(report)]
    if tampered:
        more = f", and {len(tampered) - _HITS_IN_SUMMARY} more" if len(tampered) > _HITS_IN_SUMMARY else ""
        parts.append(f"tampered: {', '.join(tampered[:_HITS_IN_SUMMARY])}{more}")
    if findings.new_cases:
        parts.append(_failures_line(findings.new_cases, findings.cases))
    parts += [_command_failure(result, report.base) for result in findings.unexplained]
    if not findings.new_cases and not findings.unexplained:
        names = ", ".join(result.name for result in findings.required)
        parts.append(f"{_passed_count(findings.cases)} green" if findings.cases else f"{names} green")
    joiner = "; " if findings.red_commands or tampered else ", "
    if findings.known_cases:
        parts.append(f"{len(findings.known_cases)} failed before on {report.base} too: {_names(findings.known_cases)}")
    if report.fixed:
        parts.append(f"{len(report.fixed)} fixed: {join_short_names(report.fixed)}")
    if findings.flaky:
        parts.append(f"{len(findings.flaky)} flaky: {join_short_names(findings.flaky)}")
    if findings.killed_runs:
        parts.append(killed_runs_text(findings.killed_runs))
    text = parts[0] + "".join(f"{joiner if n == 1 else '; '}{part}" for n, part in enumerate(parts[1:], start=1))
    experiment = report.experiment
    if experiment is None or tampered:
        return text
    not_asked = f"not asked: {'; '.join(experiment.unasked_reasons)}" if experiment.unasked_reasons else ""
    return " · ".join(part for part in (text, experiment.summary_line, not_asked) if part)


def _command_failure(result: CommandResult, base: str) -> str:
    """Return a line about a red command that no new failing test explains: its name and reason, and where the base was
    red, too, why the two cannot be compared."""
    if result.since is BaseComparison.UNDECIDABLE:
        cause = "it did not run to its end" if result.partial else "only exit codes exist"
        return f"{result.name}: {result.reason}; {base} was red before and {cause}"
    return f"{result.name}: {result.reason}"


def _failure_fingerprint(
    findings: _RequiredFindings, tampered: Sequence[TamperingHit], tricks: Sequence[TamperingFault]
) -> str:
    """Return a hash of what failed, by which a loop sees that a fix has changed nothing. How it is worded this time
    does not count: numbers, addresses and names of report directories are left out."""
    tests = sorted(f"{case.file}\0{case.name}" for case in findings.new_cases)
    commands = [f"{r.name}\0{r.verdict}\0{r.exit_code}\0{_VARYING.sub('', r.tail)}" for r in findings.unexplained]
    places = [f"{hit.rule}\0{hit.file}\0{hit.title}" for hit in tampered]
    return digest(*tests, *commands, *places, *(f"{fault.title}\0{fault.names}" for fault in tricks))[:16]


def _failures_line(failing: Sequence[TestCase], cases: Sequence[TestCase]) -> str:
    """Return how many of the tests fail and which: `2 of 44 fail: test_negative, test_zero`; skipped tests do not
    count, and programs that did not run to their end are told behind it."""
    test_count = _passed_count(cases) + sum(case.outcome in FAILING and not case.is_program for case in cases)
    tests, programs = ([case for case in failing if case.is_program is is_program] for is_program in (False, True))
    parts = [f"{len(tests)} of {test_count} fail{'s' if test_count == 1 else ''}: {_names(tests)}"] if tests else []
    if programs:
        ends = "program did not run to its end", "programs did not run to their end"
        names = join_short_names([case.file or case.name for case in programs])
        parts.append(f"{format_count(len(programs), *ends)}: {names}")
    return "; ".join(parts)


def _select_counted(failing: Sequence[TestCase]) -> Sequence[TestCase]:
    """Return the failing cases that a number of failures counts: the tests, or the programs where no test failed."""
    return [case for case in failing if not case.is_program] or failing


def _names(cases: Sequence[TestCase]) -> str:
    return join_short_names([case.name for case in cases])


def _passed_count(cases: Sequence[TestCase]) -> int:
    return sum(case.outcome == "passed" for case in cases)


_REFUSED = re.compile(r"read-only file system|EROFS|device or resource busy|EBUSY", re.IGNORECASE)
_WORD = re.compile(r"[^\s'\"`:,;()\[\]<>]+")
_PATHS_NAMED = 4


def find_refused_writes(
    result: CommandResult, read_only_paths: Sequence[str], repository_path: Path
) -> tuple[str, ...]:
    """Return the paths that a command could not write because they are read-only, as its output and its tests' messages
    name them; relative to the repository's top.

    read_only_paths  paths of the test side that were shown read-only
    repository_path  where the command saw the repository's top

    Only lines count that quote the kernel's refusal; of each, the last path at or below a read-only one is taken:
    behind the refusal, as Python and node name it, else before it.
    """
    refused_paths = dict[str, None]()
    for text in (result.tail, *(case.message for case in result.cases)):
        for line in text.splitlines():
            if (match := _REFUSED.search(line)) is None:
                continue
            for fragment in (
                line[match.end() :],
                line[: match.start()],
            ):  # Python and node name it behind, others before
                candidates = (
                    _path_in_repository(word, result.directory, str(repository_path))
                    for word in _WORD.findall(fragment)
                )
                matches = [word for word in candidates if any(_is_below(word, path) for path in read_only_paths)]
                if matches:
                    refused_paths[matches[-1]] = None
                    break
    return tuple(refused_paths)


def refused_writes_message(paths: Iterable[str]) -> str:
    """Return the reason for people, with the first four paths: `the test side is read-only: tests/output; [[test]]
    writes = ["tests/output"]`."""
    named_paths = list(paths)[:_PATHS_NAMED]
    return f"the test side is read-only: {', '.join(named_paths)}; {writes_setting(named_paths)}"


def writes_setting(paths: Iterable[str]) -> str:
    """Return the line of perdure.toml that allows a command to write to the first four of these paths."""
    return f"[[test]] writes = {json.dumps(list(paths)[:_PATHS_NAMED], ensure_ascii=False)}"


def _path_in_repository(word: str, directory: str, repository_path: str) -> str:
    """Return a word of the output as a path relative to the repository's top; empty for what is elsewhere."""
    path = posixpath.normpath(word if word.startswith("/") else posixpath.join(repository_path, directory, word))
    return path.removeprefix(f"{repository_path}/") if path.startswith(f"{repository_path}/") else ""


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top}/")
