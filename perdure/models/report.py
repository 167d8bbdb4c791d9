"""What test commands and reviewers found: whole reports, kept as artifacts."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.models.base import Published, Written
from perdure.models.phases import Kind


class TestCase(Published):
    """One test as its runner reported it (docs/testing.md).

    outcome  passed, failed, errored or skipped
    message  trimmed; of a flaky test, how it failed the first time
    command  reproduces it alone, in the worktree; empty where its runner cannot
    known    it failed on the base commit too
    flaky    it failed, and passed when it was run once more, alone
    """

    __test__ = False

    name: str
    file: str = ""
    outcome: str
    message: str = ""
    duration_s: float = 0.0
    command: str = ""
    known: bool = False
    flaky: bool = False


class Since(StrEnum):
    """Of a command that did not pass: what the base commit says about it."""

    NEW = "new"
    KNOWN = "known"
    UNDECIDABLE = "undecidable"


class CommandResult(Published):
    """One test command.

    verdict  passed, failed, timed_out, not_started, contradicted (report against exit code)
    since    new: something in it did not fail on the base; known: on the base it failed in the same tests and ended in
             the same way; undecidable: red there and here, and no report says in what, or it did not run to its end.
             None: it passed, or no base is known
    partial  it stops at its first failure, or has another part that runs only when the tests pass
    flaky    it failed as a whole, and passed when it was run once more
    cases    failed first, of these the new ones before the known ones
    """

    name: str
    command: str
    required: bool = True
    verdict: str
    since: Since | None = None
    flaky: bool = False
    partial: bool = False
    exit_code: int | None = None
    duration_s: float = 0.0
    tail: str = ""
    reason: str = ""
    cases: tuple[TestCase, ...] = ()


class TestReport(Published):
    """What all test commands said about one tree, those first that decide against it.

    base   the branch it was compared with; empty when its tests are not known
    note   one line for whoever reads the report: what is new and what is not
    fixed  names of tests, and of commands without a report, that failed on the base and passed now
    """

    __test__ = False

    commit: str
    tree: str
    base: str = ""
    note: str = ""
    fixed: tuple[str, ...] = ()
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
