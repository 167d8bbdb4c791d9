"""What planning, testing and reviewing wrote down, read back from the vault by hash."""

from __future__ import annotations

from perdure.adapters.git.vault import Vault
from perdure.models.report import Plan, Review, TestReport


def read_plan(vault: Vault, delivery: str, artifact: str) -> Plan | None:
    """None without one, and for a plan in the submitter's own words, which has no sections to show."""
    if not artifact:
        return None
    try:
        return Plan.model_validate_json(vault.get_artifact(delivery, artifact))
    except ValueError:
        return None


def read_review(vault: Vault, delivery: str, artifact: str) -> Review | None:
    return Review.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None


def read_report(vault: Vault, delivery: str, artifact: str) -> TestReport | None:
    return TestReport.model_validate_json(vault.get_artifact(delivery, artifact)) if artifact else None
