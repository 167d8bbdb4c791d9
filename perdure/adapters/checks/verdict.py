"""The meaning of a test report: the verdict that is kept, its one line, and what could not even start."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perdure.adapters.checks.baseline import FAILING
from perdure.adapters.system.output import last_lines, missing_command
from perdure.models.bent import Trick, faults, shown
from perdure.models.errors import SetupFailed
from perdure.models.ids import digest
from perdure.models.promised import labels
from perdure.models.report import CommandResult, Hit, Since, TestCase, TestReport
from perdure.models.result import TestsStatus
from perdure.models.work import TestVerdict

FAILURES_NAMED = 10
"""Failing tests named in a verdict; the others are in the report."""


_NAME_CHARS = 200
_SUMMARY_CHARS = 300
_HITS_IN_SUMMARY = 2
_PROMISES = 5
"""Named in a verdict, for the gate; the report has them all."""
_VARYING = re.compile(r"0x[0-9a-f]+|reports-[\w-]+|\d+")


@dataclass(frozen=True)
class NotStarted:
    """A required test command that could not start: found by preflight, before any money is spent."""

    name: str
    command: str
    reason: str
    tail: str

    @property
    def may_come(self) -> bool:
        """False when a program of the host is missing; a file of the repository, or a target in one, can be written."""
        missing = missing_command(self.tail)
        return not missing or "/" in missing

    def error(self, base: str, where: str) -> SetupFailed:
        """The error that ends the delivery. `base`: the branch; `where`: file, line and key of the command."""
        missing = missing_command(self.tail)
        said = f"{missing}: command not found" if missing else f"{self.reason}\n{last_lines(self.tail)}".rstrip()
        instead = "set a command that runs here in perdure.toml"
        fix = f"install {missing}, or {instead}" if missing else f"let [setup] install it, or {instead}"
        return SetupFailed(f"`{self.command}` could not start on {base}: {said}", where=where, fix=fix)


def verdict(report: TestReport) -> TestVerdict:
    """Required commands decide, and of these only what is new. None of them at all is status `none`: nothing was shown
    about the tree. A report that was compared with no base has nothing but new failures, and counts none of them so.
    A change that makes the tests say less than on the base is red, whatever they say (perdure.adapters.checks.tamper),
    and so is one whose tests do not pass by the product being right (perdure.adapters.checks.experiment).
    """
    required = [result for result in report.commands if result.required]
    if not required:
        return TestVerdict(status=TestsStatus.NONE, tree=report.tree, summary="no required test command")
    found = _Found(required, report)
    tampered = () if report.allowed else report.tampering
    bent, tried = faults(report), report.experiment
    red = bool(found.red or tampered or bent)
    names = [*(hit.title for hit in tampered), *(name for fault in bent for name in fault.failures)]
    names += [*dict.fromkeys(case.name for case in found.new), *(result.name for result in found.unexplained)]
    compared = bool(report.base)
    honest = not (tampered or bent)
    undecidable = bool(found.red) and honest and all(one.since is Since.UNDECIDABLE for one in found.red)
    return TestVerdict(
        status=TestsStatus.RED if red else TestsStatus.GREEN,
        tree=report.tree,
        passed=_passed(found.cases) if found.cases else None,
        failed=len(found.new) + len(found.known) if found.cases else None,
        failures=tuple(name[:_NAME_CHARS] for name in names[:FAILURES_NAMED]),
        summary=_summary(found, report)[:_SUMMARY_CHARS],
        new_failures=len(found.new) + len(found.whole) if compared and not undecidable else None,
        known_failures=len(found.known) if compared else None,
        fixed=len(report.fixed) if compared else None,
        flaky=len(found.flaky),
        undecidable=undecidable,
        tampered=len(tampered) + len(bent),
        fingerprint=_fingerprint(found, tampered, bent) if red else "",
        experiment=tried.line[:_SUMMARY_CHARS] if tried is not None else "",
        promises=len(tried.promises) if tried is not None else 0,
        promised=tuple(one[:_NAME_CHARS] for one in list(labels(tried.promises))[:_PROMISES]) if tried else (),
    )


class _Found:
    """The findings of a report's required commands.

    red          commands that decide against the tree
    new, known   failing tests; unexplained: of `red`, those no new failing test stands for; whole: the new ones of them
    flaky        names of tests and commands
    """

    def __init__(self, required: Sequence[CommandResult], report: TestReport) -> None:
        self.required, self.base, self.fixed = required, report.base, report.fixed
        self.cases = [case for result in required for case in result.cases]
        failing = [case for case in self.cases if case.outcome in FAILING]
        self.new = [case for case in failing if not case.known]
        self.known = [case for case in failing if case.known]
        self.red = [result for result in required if result.verdict != "passed" and result.since is not Since.KNOWN]
        self.unexplained = [r for r in self.red if not any(c.outcome in FAILING and not c.known for c in r.cases)]
        self.whole = [result for result in self.unexplained if result.since is not Since.UNDECIDABLE]
        flaky = [case.name for case in self.cases if case.flaky]
        self.flaky = [*dict.fromkeys(flaky), *(result.name for result in required if result.flaky)]


def note(report: TestReport) -> str:
    """Say in one line what is to be mended and what is not, for whoever reads the whole report."""
    found = _Found([result for result in report.commands if result.required], report)
    told = [f'Mend the failures with known=false ({len(found.new)}) and every command whose `since` is "new".']
    if found.known:
        told.append(f"Failures with known=true ({len(found.known)}) were there on {report.base} before: leave them.")
    if found.flaky:
        told.append("Tests with flaky=true passed when they were run again: leave them.")
    return " ".join(told) if found.red else ""


def not_started(report: TestReport) -> NotStarted | None:
    """The first required command that could not start."""
    for result in report.commands:
        if result.required and result.verdict == "not_started":
            return NotStarted(result.name, result.command, result.reason, result.tail)
    return None


def line(result: CommandResult) -> str:
    """One command in a few words: `44 green`, `2 of 44 fail: test_negative, test_zero`, `exit code 1`."""
    failing = [case for case in result.cases if case.outcome in FAILING]
    if result.verdict == "passed":
        flaky = sum(case.flaky for case in result.cases) + result.flaky
        green = f"{_passed(result.cases)} green" if result.cases else "green"
        return f"{green}, {flaky} flaky" if flaky else green
    return _failures(failing, result.cases) if failing and result.verdict == "failed" else result.reason


def _summary(found: _Found, report: TestReport) -> str:
    parts = []
    tampered = [] if report.allowed else [hit.title for hit in report.tampering]
    tampered += [fault.title for fault in faults(report)]
    if tampered:
        more = f", and {len(tampered) - _HITS_IN_SUMMARY} more" if len(tampered) > _HITS_IN_SUMMARY else ""
        parts.append(f"tampered: {', '.join(tampered[:_HITS_IN_SUMMARY])}{more}")
    if found.new:
        parts.append(_failures(found.new, found.cases))
    parts += [_whole(result, report.base) for result in found.unexplained]
    if not found.new and not found.unexplained:
        names = ", ".join(result.name for result in found.required)
        parts.append(f"{_passed(found.cases)} green" if found.cases else f"{names} green")
    joint = "; " if found.red or tampered else ", "
    if found.known:
        parts.append(f"{len(found.known)} failed before on {report.base} too: {_names(found.known)}")
    if report.fixed:
        parts.append(f"{len(report.fixed)} fixed: {shown(report.fixed)}")
    if found.flaky:
        parts.append(f"{len(found.flaky)} flaky: {shown(found.flaky)}")
    said = parts[0] + "".join(f"{joint if n == 1 else '; '}{part}" for n, part in enumerate(parts[1:], start=1))
    tried = report.experiment
    if tried is None or tampered:
        return said
    unasked = f"not asked: {'; '.join(tried.unasked)}" if tried.unasked else ""
    return " · ".join(part for part in (said, tried.line, unasked) if part)


def _whole(result: CommandResult, base: str) -> str:
    if result.since is Since.UNDECIDABLE:
        why = "it did not run to its end" if result.partial else "only exit codes exist"
        return f"{result.name}: {result.reason}; {base} was red before and {why}"
    return f"{result.name}: {result.reason}"


def _fingerprint(found: _Found, tampered: Sequence[Hit], bent: Sequence[Trick]) -> str:
    """Of what failed, not of how it is worded this time: numbers, addresses and our own directories left out."""
    tests = sorted(f"{case.file}\0{case.name}" for case in found.new)
    commands = [f"{r.name}\0{r.verdict}\0{r.exit_code}\0{_VARYING.sub('', r.tail)}" for r in found.unexplained]
    places = [f"{hit.rule}\0{hit.file}\0{hit.title}" for hit in tampered]
    return digest(*tests, *commands, *places, *(f"{fault.title}\0{fault.names}" for fault in bent))[:16]


def _failures(failing: Sequence[TestCase], cases: Sequence[TestCase]) -> str:
    ran = _passed(cases) + sum(case.outcome in FAILING for case in cases)
    return f"{len(failing)} of {ran} fail{'s' if ran == 1 else ''}: {_names(failing)}"


def _names(cases: Sequence[TestCase]) -> str:
    return shown([case.name for case in cases])


def _passed(cases: Sequence[TestCase]) -> int:
    return sum(case.outcome == "passed" for case in cases)
