"""The documents that steps leave in the vault as artifacts (plan, test report, review, findings, screenshots), read
back by their hash for later steps; the check of a plan that a person edited; and earlier fixes as text for the next
fix. Used by `materials` and by the activities that check, test, ship or show a delivery."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from perdure.adapters.git import patch
from perdure.adapters.git.vault import Vault
from perdure.models.backlog.touches import patterns_of_paths
from perdure.models.checks.report import Findings, Review, Screenshot, Screenshots, Severity, TestReport
from perdure.models.delivery.decisions import CheckPlanResult
from perdure.models.delivery.request import describe_invalid_field
from perdure.models.delivery.steps import Decomposition, Part, Plan, Task
from perdure.models.delivery.turn import FIX_CAUSES, FixAttempt
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import Step
from perdure.text import escape_path, one_line, shorten


def read_plan(vault: Vault, delivery: str, artifact: str) -> Plan | None:
    """Read a plan from its artifact; None without one, and for a plan in the submitter's own words, which has no
    sections to show. Raises WorkspaceLost when the artifact is gone."""
    if not artifact:
        return None
    try:
        return Plan.model_validate_json(vault.get_artifact(delivery, artifact))
    except ValueError:
        return None


def check_plan(vault: Vault, delivery: str, artifact: str, *, items: bool = False) -> CheckPlanResult:
    """Check whether agents could work by a plan, and return what people see of it, cut to what fits, or its problem, as
    for an artifact that is not there. It may be a Plan as the plan step answers it, or words of somebody's own; with
    `items` it has to be a Decomposition, and InvalidRequest is raised where its items are not those of a backlog."""
    try:
        text = vault.get_artifact(delivery, artifact).decode(errors="replace")
    except WorkspaceLost:
        return CheckPlanResult(problem="no artifact of this delivery has that hash; perdure approve --edit stores one")
    if items:
        return _check_items(text)
    if not text.lstrip().startswith("{"):
        return (
            CheckPlanResult(plan_text=text[: PLAN_SHOWN_BYTES // 4])
            if text.strip()
            else CheckPlanResult(problem="it is empty")
        )
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        return CheckPlanResult(problem=describe_invalid_field(error, (*Plan.model_fields, *Task.model_fields)))
    problem = f"{empty}: is empty" if (empty := plan.find_empty_field()) else ""
    shown, touches = (
        plan.to_text(PLAN_SHOWN_BYTES),
        patterns_of_paths(plan.relevant_files, *(task.files for task in plan.tasks)),
    )
    return CheckPlanResult(title=shorten(plan.title, 200), plan_text=shown, problem=problem, touches=touches)


def _check_items(text: str) -> CheckPlanResult:
    """Check the text of a Decomposition and return what people see of it, or its problem. Raises InvalidRequest where
    its items are not those of a backlog."""
    try:
        decomposition = Decomposition.model_validate_json(text)
    except ValidationError as error:
        return CheckPlanResult(
            problem=shorten(describe_invalid_field(error, (*Decomposition.model_fields, *Part.model_fields)), 300)
        )
    return CheckPlanResult(
        title=shorten(decomposition.title, 200),
        plan_text=decomposition.to_text(PLAN_SHOWN_BYTES),
        items=decomposition.to_items(),
    )


def read_review(vault: Vault, delivery: str, artifact: str) -> Review | None:
    """Read a review from its artifact; None for no artifact. Raises WorkspaceLost when it is gone."""
    return Review.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_report(vault: Vault, delivery: str, artifact: str) -> TestReport | None:
    """Read a test report from its artifact; None for no artifact. Raises WorkspaceLost when it is gone."""
    return TestReport.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_findings(vault: Vault, delivery: str, artifact: str) -> Findings | None:
    """Read findings from their artifact; None for no artifact. Raises WorkspaceLost when it is gone."""
    return Findings.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_screenshots(vault: Vault, delivery: str, artifact: str) -> Screenshots | None:
    """Read screenshots from their artifact; None for no artifact. Raises WorkspaceLost when it is gone."""
    return Screenshots.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_picture(vault: Vault, delivery: str, shot: Screenshot) -> bytes:
    """Return the PNG of one page; empty when there is none, or no more."""
    try:
        return vault.get_artifact(delivery, shot.artifact) if shot.artifact else b""
    except WorkspaceLost:
        return b""


TRIES_BYTES = 8_000
"""Bytes of all fixes in a prompt, some 2,500 tokens; the oldest ones are left out first."""

_NAMES, _NAME_CHARS, _FILES = 12, 200, 12
_TRIES = TypeAdapter(tuple[FixAttempt, ...])


def describe_fixes(vault: Vault, delivery: str, materials: Mapping[str, str]) -> str:
    """Describe the earlier fixes that the material `tries` lists, as text for a prompt: what each was to mend, changed
    and left; what the newest one left is what this fix was given. Beyond TRIES_BYTES the oldest ones are only counted.

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
    """Return lines about what a fix left: of the problems it was to mend (`before`) and those found after it (`after`),
    which are still there, new, or mended. `by_tests`: the latter were found by tests; where tests and reviews cannot be
    compared, what failed after it, or that no test did."""
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
    """Return everything that failed or blocked in the report, review and findings of these artifacts: name → reason, or
    the file it is in. Known failures, optional commands and issues that do not block are left out."""
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
    """Return problems in one line: `test_a (assert 3 == 4), test_b, 3 more`; at most _NAMES are named. Empty where
    there are none."""
    shown = [one_line(f"{name} ({why})" if why else name, _NAME_CHARS) for name, why in list(problems.items())[:_NAMES]]
    return ", ".join([*shown, *([f"{len(problems) - _NAMES} more"] if len(problems) > _NAMES else [])])


def _list_changes(vault: Vault, fix: FixAttempt) -> str:
    """Return the files that a fix changed in one line: `src/a.py (+3 -1), docs/b.md (+1 -0)`; "nothing" where there is
    none. At most _FILES are named, the rest is counted."""
    files = patch.line_counts(vault, fix.before, fix.after) if fix.before != fix.after else []
    shown = [f"{shorten(escape_path(path), _NAME_CHARS)} (+{new} -{gone})" for path, new, gone in files[:_FILES]]
    more = [f"{len(files) - _FILES} more files"] if len(files) > _FILES else []
    return ", ".join([*shown, *more]) or "nothing"
