"""The documents of planning, testing, reviewing and looking at pages, read back from the vault by hash."""

from __future__ import annotations

from pydantic import ValidationError

from perdure.adapters.git.vault import Vault
from perdure.models.decisions import CheckPlanResult
from perdure.models.decomposition import Decomposition, Part
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.plan import Plan, Task
from perdure.models.report import Findings, Review, Screenshot, Screenshots, TestReport
from perdure.models.request import describe_invalid_field
from perdure.models.touches import patterns_of_paths


def read_plan(vault: Vault, delivery: str, artifact: str) -> Plan | None:
    """Read a plan from its artifact; None without one, and for a plan in the submitter's own words, which has no
    sections to show."""
    if not artifact:
        return None
    try:
        return Plan.model_validate_json(vault.get_artifact(delivery, artifact))
    except ValueError:
        return None


def check_plan(vault: Vault, delivery: str, artifact: str, *, items: bool = False) -> CheckPlanResult:
    """Check whether agents could work by a plan, and return what people see of it, or its problem. It may be a Plan as
    the plan step answers it, or words of somebody's own; with `items` it has to be a Decomposition."""
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
    return CheckPlanResult(title=plan.title[:200], plan_text=shown, problem=problem, touches=touches)


def _check_items(text: str) -> CheckPlanResult:
    """Check the text of a Decomposition and return what people see of it, or its problem. Raises InvalidRequest where
    its items are not those of a backlog."""
    try:
        decomposition = Decomposition.model_validate_json(text)
    except ValidationError as error:
        return CheckPlanResult(
            problem=describe_invalid_field(error, (*Decomposition.model_fields, *Part.model_fields))[:300]
        )
    return CheckPlanResult(
        title=decomposition.title[:200],
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
