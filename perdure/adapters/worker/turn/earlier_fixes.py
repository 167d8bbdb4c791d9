"""The fixes before this one, as it is told of them: what each was to mend, what it changed, and what it left."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from perdure.adapters.git import patch
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.turn.documents import read_findings, read_report, read_review
from perdure.models.phases import Step
from perdure.models.report import Severity
from perdure.models.turn import FIX_CAUSES, FixAttempt
from perdure.text import one_line

TRIES_BYTES = 8_000
"""Bytes of all fixes in a prompt, some 2,500 tokens; the oldest ones are left out first."""

_NAMES, _NAME_CHARS, _FILES = 12, 200, 12
_TRIES = TypeAdapter(tuple[FixAttempt, ...])


def describe_fixes(vault: Vault, delivery: str, materials: Mapping[str, str]) -> str:
    """Describe the earlier fixes that these materials name, as text for a prompt; what the newest one left is what this
    fix was given.

    Raises WorkspaceLost where one of their artifacts is gone.
    """
    tries = _TRIES.validate_json(materials["tries"])
    problems = [_problems_in(vault, delivery, fix.causes) for fix in tries]
    problems.append(_problems_in(vault, delivery, {name: materials[name] for name in FIX_CAUSES if name in materials}))
    # A review's fix has no report of its own; whoever was given one mends tests.
    has_report = [*("report" in fix.causes for fix in tries), "report" in materials]
    descriptions = list[str]()
    for index, fix in enumerate(tries):
        lines = [f"{fix.step} {fix.attempt}, to mend: {_list_problems(problems[index]) or 'what a person said'}"]
        lines.append(f"  changed: {_list_changes(vault, fix)}")
        lines += [
            f"  {line}"
            for line in _result_lines(fix, problems[index], problems[index + 1], by_tests=has_report[index + 1])
        ]
        descriptions.append("\n".join(lines))
    omitted, size = 0, sum(len(text.encode()) + 1 for text in descriptions)
    while descriptions[1:] and size > TRIES_BYTES:
        size -= len(descriptions.pop(0).encode()) + 1
        omitted += 1
    return "\n".join([*([f"({omitted} fixes before these are not shown)"] if omitted else []), *descriptions])


def _result_lines(fix: FixAttempt, before: dict[str, str], after: dict[str, str], *, by_tests: bool) -> list[str]:
    """Return lines about what a fix left: of the problems it was to mend and those found after it, which are still
    there, new, or mended. `by_tests`: the latter were found by tests."""
    if not by_tests and fix.step is Step.FIX_TESTS:
        return ["after it: no test failed any more"]
    if by_tests and fix.step is Step.FIX_REVIEW:
        return [f"after it these failed: {_list_problems(after)}"]
    kinds = (
        ("still there", [name for name in after if name in before]),
        ("new", [name for name in after if name not in before]),
        ("mended", [name for name in before if name not in after]),
    )
    return [
        f"after it, {kind}: {_list_problems({name: after.get(name, '') for name in names})}"
        for kind, names in kinds
        if names
    ]


def _problems_in(vault: Vault, delivery: str, artifacts: Mapping[str, str]) -> dict[str, str]:
    """Return everything that failed or blocked in a report, a review and findings: name → reason, or the file it is
    in."""
    problems = dict[str, str]()
    report = read_report(vault, delivery, artifacts.get("report", ""))
    for command in report.commands if report is not None else ():
        failed = [case for case in command.cases if case.outcome in ("failed", "errored") and not case.known]
        problems |= {case.name: case.message for case in failed}
        if not failed and command.required and command.verdict != "passed":
            problems[command.name] = command.reason or command.verdict
    for trick in report.tampering if report is not None else ():
        problems[trick.title] = trick.file
    review = read_review(vault, delivery, artifacts.get("review", ""))
    for issue in review.issues if review is not None else ():
        if issue.severity is Severity.BLOCKER:
            problems[issue.title] = f"{issue.file}:{issue.line}" if issue.line else issue.file
    findings = read_findings(vault, delivery, artifacts.get("findings", ""))
    for finding in findings.findings if findings is not None else ():
        if finding.severity is Severity.BLOCKER:
            problems[finding.title] = finding.file
    return problems


def _list_problems(problems: Mapping[str, str]) -> str:
    """Return problems in one line: `test_a (assert 3 == 4), test_b, 3 more`."""
    shown = [one_line(f"{name} ({why})" if why else name, _NAME_CHARS) for name, why in list(problems.items())[:_NAMES]]
    return ", ".join([*shown, *([f"{len(problems) - _NAMES} more"] if len(problems) > _NAMES else [])])


def _list_changes(vault: Vault, fix: FixAttempt) -> str:
    """Return the files that a fix changed in one line: `src/a.py (+3 -1), docs/b.md (+1 -0)`."""
    files = patch.line_counts(vault, fix.before, fix.after) if fix.before != fix.after else []
    shown = [f"{one_line(path, _NAME_CHARS)} (+{added} -{deleted})" for path, added, deleted in files[:_FILES]]
    more = [f"{len(files) - _FILES} more files"] if len(files) > _FILES else []
    return ", ".join([*shown, *more]) or "nothing"
