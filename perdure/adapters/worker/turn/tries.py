"""The fixes before this one, as it is told of them: what each was to mend, what it changed, and what it left."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from perdure.adapters.git import patch
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.turn.written import read_findings, read_report, read_review
from perdure.models.phases import Step
from perdure.models.report import Severity
from perdure.models.turn import TRY_FOUND, Try
from perdure.text import one_line

TRIES_BYTES = 8_000
"""Of all tries in a prompt, some 2,500 tokens; the oldest ones are left out first."""

_NAMES, _NAME_CHARS, _FILES = 12, 200, 12
_TRIES = TypeAdapter(tuple[Try, ...])


def told_of(vault: Vault, delivery: str, materials: Mapping[str, str]) -> str:
    """The tries of these materials; what the newest one left is what this fix was given.

    Raises WorkspaceLost where one of their artifacts is gone.
    """
    tries = _TRIES.validate_json(materials["tries"])
    wrong = [_wrong(vault, delivery, one.found) for one in tries]
    wrong.append(_wrong(vault, delivery, {name: materials[name] for name in TRY_FOUND if name in materials}))
    # A review's fix has no report of its own; whoever was given one mends tests.
    reported = [*("report" in one.found for one in tries), "report" in materials]
    told = list[str]()
    for at, one in enumerate(tries):
        lines = [f"{one.step} {one.attempt}, to mend: {_listed(wrong[at]) or 'what a person said'}"]
        lines.append(f"  changed: {_changed(vault, one)}")
        lines += [f"  {line}" for line in _left(one, wrong[at], wrong[at + 1], red=reported[at + 1])]
        told.append("\n".join(lines))
    left_out, size = 0, sum(len(text.encode()) + 1 for text in told)
    while told[1:] and size > TRIES_BYTES:
        size -= len(told.pop(0).encode()) + 1
        left_out += 1
    return "\n".join([*([f"({left_out} fixes before these are not shown)"] if left_out else []), *told])


def _left(one: Try, before: dict[str, str], after: dict[str, str], *, red: bool) -> list[str]:
    """The difference between what it was to mend and what was found after it. `red`: that was by tests."""
    if not red and one.step is Step.FIX_TESTS:
        return ["after it: no test failed any more"]
    if red and one.step is Step.FIX_REVIEW:
        return [f"after it these failed: {_listed(after)}"]
    kinds = (
        ("still there", [name for name in after if name in before]),
        ("new", [name for name in after if name not in before]),
        ("mended", [name for name in before if name not in after]),
    )
    return [
        f"after it, {kind}: {_listed({name: after.get(name, '') for name in names})}" for kind, names in kinds if names
    ]


def _wrong(vault: Vault, delivery: str, found: Mapping[str, str]) -> dict[str, str]:
    """Name → why, of all that failed or blocked."""
    wrong = dict[str, str]()
    report = read_report(vault, delivery, found.get("report", ""))
    for command in report.commands if report is not None else ():
        failed = [case for case in command.cases if case.outcome in ("failed", "errored") and not case.known]
        wrong |= {case.name: case.message for case in failed}
        if not failed and command.required and command.verdict != "passed":
            wrong[command.name] = command.reason or command.verdict
    for hit in report.tampering if report is not None else ():
        wrong[hit.title] = hit.file
    review = read_review(vault, delivery, found.get("review", ""))
    for issue in review.issues if review is not None else ():
        if issue.severity is Severity.BLOCKER:
            wrong[issue.title] = f"{issue.file}:{issue.line}" if issue.line else issue.file
    own = read_findings(vault, delivery, found.get("findings", ""))
    for finding in own.findings if own is not None else ():
        if finding.severity is Severity.BLOCKER:
            wrong[finding.title] = finding.file
    return wrong


def _listed(wrong: Mapping[str, str]) -> str:
    """`test_a (assert 3 == 4), test_b, 3 more`."""
    shown = [one_line(f"{name} ({why})" if why else name, _NAME_CHARS) for name, why in list(wrong.items())[:_NAMES]]
    return ", ".join([*shown, *([f"{len(wrong) - _NAMES} more"] if len(wrong) > _NAMES else [])])


def _changed(vault: Vault, one: Try) -> str:
    """`src/a.py (+3 -1), docs/b.md (+1 -0)`."""
    files = patch.counted(vault, one.before, one.after) if one.before != one.after else []
    shown = [f"{one_line(path, _NAME_CHARS)} (+{added} -{gone})" for path, added, gone in files[:_FILES]]
    more = [f"{len(files) - _FILES} more files"] if len(files) > _FILES else []
    return ", ".join([*shown, *more]) or "nothing"
