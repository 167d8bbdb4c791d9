"""What test commands and reviewers found: whole reports, kept as artifacts."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.models.base import Published, Written
from perdure.models.phases import Kind


class TestCase(Published):
    """One test as its runner reported it; `outcome` is passed, failed, errored or skipped; `message` is trimmed."""

    __test__ = False

    name: str
    file: str = ""
    outcome: str
    message: str = ""
    duration_s: float = 0.0


class CommandResult(Published):
    """One test command. `verdict`: passed, failed, timed_out, not_started, contradicted (report against exit code)."""

    name: str
    command: str
    required: bool = True
    verdict: str
    exit_code: int | None = None
    duration_s: float = 0.0
    tail: str = ""
    reason: str = ""
    cases: tuple[TestCase, ...] = ()


class TestReport(Published):
    __test__ = False

    commit: str
    tree: str
    commands: tuple[CommandResult, ...] = ()


class Classification(Written):
    """What the classify step answers."""

    kind: Kind
    reason: str = Field(description="one sentence")


class Task(Written):
    title: str
    details: str
    files: list[str] = Field(description="paths that will probably change")


class Plan(Written):
    """What the plan step answers: fixed sections, kept as an artifact and shown in the pull request."""

    title: str = Field(
        description="imperative, at most 60 characters, no prefix; becomes commit and pull request title"
    )
    problem: str
    solution: str
    relevant_files: list[str]
    tasks: list[Task]
    validation: list[str] = Field(description="how a person can check the result, one item each")


class Severity(StrEnum):
    BLOCKER = "blocker"
    TECH_DEBT = "tech_debt"
    SKIPPABLE = "skippable"


class Issue(Written):
    title: str
    description: str
    severity: Severity
    file: str = Field(description="path in the diff, or empty")
    line: int | None = Field(description="line in the new file, or null")
    suggestion: str


class Review(Written):
    """What the review step answers. Only blockers block."""

    summary: str
    issues: list[Issue]
