"""The documents of planning, testing, reviewing and looking, read back from the vault by hash."""

from __future__ import annotations

from pydantic import ValidationError

from perdure.adapters.git.vault import Vault
from perdure.models.decisions import CheckedPlan
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.report import Findings, Plan, Review, Screenshot, Screenshots, Task, TestReport
from perdure.models.request import explain


def read_plan(vault: Vault, delivery: str, artifact: str) -> Plan | None:
    """None without one, and for a plan in the submitter's own words, which has no sections to show."""
    if not artifact:
        return None
    try:
        return Plan.model_validate_json(vault.get_artifact(delivery, artifact))
    except ValueError:
        return None


def check_plan(vault: Vault, delivery: str, artifact: str) -> CheckedPlan:
    """See whether agents could work by it: a Plan as the plan step answers it, or words of somebody's own."""
    try:
        text = vault.get_artifact(delivery, artifact).decode(errors="replace")
    except WorkspaceLost:
        return CheckedPlan(problem="no artifact of this delivery has that hash; perdure approve --edit stores one")
    if not text.lstrip().startswith("{"):
        return CheckedPlan(words=text[: PLAN_SHOWN_BYTES // 4]) if text.strip() else CheckedPlan(problem="it is empty")
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        return CheckedPlan(problem=explain(error, (*Plan.model_fields, *Task.model_fields)))
    problem = f"{empty}: is empty" if (empty := plan.empty()) else ""
    return CheckedPlan(title=plan.title[:200], words=plan.words(PLAN_SHOWN_BYTES), problem=problem)


def read_review(vault: Vault, delivery: str, artifact: str) -> Review | None:
    return Review.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_report(vault: Vault, delivery: str, artifact: str) -> TestReport | None:
    return TestReport.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_findings(vault: Vault, delivery: str, artifact: str) -> Findings | None:
    return Findings.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_screenshots(vault: Vault, delivery: str, artifact: str) -> Screenshots | None:
    return Screenshots.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_picture(vault: Vault, delivery: str, shot: Screenshot) -> bytes:
    """The PNG of one page; empty when there is none, or no more."""
    try:
        return vault.get_artifact(delivery, shot.artifact) if shot.artifact else b""
    except WorkspaceLost:
        return b""
