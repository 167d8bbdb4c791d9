"""The documents of planning, testing, reviewing and looking, read back from the vault by hash."""

from __future__ import annotations

from pydantic import ValidationError

from perdure.adapters.git.vault import Vault
from perdure.models.decisions import CheckedPlan
from perdure.models.decomposition import Decomposition, Part
from perdure.models.errors import WorkspaceLost
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.plan import Plan, Task
from perdure.models.report import Findings, Review, Screenshot, Screenshots, TestReport
from perdure.models.request import explain
from perdure.models.touches import learnt


def read_plan(vault: Vault, delivery: str, artifact: str) -> Plan | None:
    """None without one, and for a plan in the submitter's own words, which has no sections to show."""
    if not artifact:
        return None
    try:
        return Plan.model_validate_json(vault.get_artifact(delivery, artifact))
    except ValueError:
        return None


def check_plan(vault: Vault, delivery: str, artifact: str, *, items: bool = False) -> CheckedPlan:
    """See whether agents could work by it: a Plan as the plan step answers it, or words of somebody's own; a
    Decomposition, where items are wanted."""
    try:
        text = vault.get_artifact(delivery, artifact).decode(errors="replace")
    except WorkspaceLost:
        return CheckedPlan(problem="no artifact of this delivery has that hash; perdure approve --edit stores one")
    if items:
        return _checked_items(text)
    if not text.lstrip().startswith("{"):
        return CheckedPlan(words=text[: PLAN_SHOWN_BYTES // 4]) if text.strip() else CheckedPlan(problem="it is empty")
    try:
        plan = Plan.model_validate_json(text)
    except ValidationError as error:
        return CheckedPlan(problem=explain(error, (*Plan.model_fields, *Task.model_fields)))
    problem = f"{empty}: is empty" if (empty := plan.empty()) else ""
    shown, touches = plan.words(PLAN_SHOWN_BYTES), learnt(plan.relevant_files, *(task.files for task in plan.tasks))
    return CheckedPlan(title=plan.title[:200], words=shown, problem=problem, touches=touches)


def _checked_items(text: str) -> CheckedPlan:
    try:
        found = Decomposition.model_validate_json(text)
    except ValidationError as error:
        return CheckedPlan(problem=explain(error, (*Decomposition.model_fields, *Part.model_fields))[:300])
    return CheckedPlan(title=found.title[:200], words=found.words(PLAN_SHOWN_BYTES), items=found.parsed())


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
