"""The findings of test commands and reviewers: whole reports, kept as artifacts."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.models.base import PublishedModel, UserInputModel
from perdure.models.experiment import Experiment
from perdure.models.phases import Kind


class TestCase(PublishedModel):
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


class BaseComparison(StrEnum):
    """Of a command that did not pass: what the base commit says about it."""

    NEW = "new"
    KNOWN = "known"
    UNDECIDABLE = "undecidable"


class CommandResult(PublishedModel):
    """One test command.

    verdict  passed, failed, timed_out, not_started, contradicted (report against exit code)
    since    new: something in it did not fail on the base; known: it failed there in the same tests and ended so;
             undecidable: red there and here, and no report says in what. None: it passed, or no base is known
    partial  it stops at its first failure, or has another part that runs only when the tests pass
    flaky    it failed as a whole, and passed when it was run once more
    cases    failed first, of these the new ones before the known ones
    """

    name: str
    command: str
    directory: str = ""
    required: bool = True
    verdict: str
    since: BaseComparison | None = None
    flaky: bool = False
    partial: bool = False
    exit_code: int | None = None
    duration_s: float = 0.0
    tail: str = ""
    reason: str = ""
    cases: tuple[TestCase, ...] = ()


class Tampering(StrEnum):
    """A way in which a change can make tests say less than they did."""

    GONE = "gone"
    SKIPPED = "skipped"
    HOLLOW = "hollow"
    CONFIGURATION = "configuration"
    COMMAND = "command"
    REPORT = "report"


class TamperingHit(PublishedModel):
    """One place where the change makes the tests say less (docs/testing.md, perdure.adapters.checks.tamper), or may.

    rule      gone, without a twin; skipped, or expected to fail; hollow: it checks nothing any more. Of hints alone:
              configuration: what is collected, or how; command: it may hide failures; report: product that looks at it
    title     one line for people
    evidence  a few lines: what it was and what it is
    """

    rule: Tampering
    title: str
    file: str = ""
    line: int | None = None
    evidence: str = ""


class ChangedTest(PublishedModel):
    """A test of the base that is still there and checks something else now: for the reviewer, never a verdict."""

    name: str
    file: str
    line: int | None = None
    before: str = ""
    after: str = ""


class TestReport(PublishedModel):
    """The results of all test commands on one tree, those first that decide against it.

    base       the branch it was compared with; empty when its tests are not known
    note       one line for whoever reads the report: what is new and what is not
    fixed      names of tests, and of commands without a report, that failed on the base and passed now
    tampering  where the change makes the tests say less than on the base: each makes the verdict red, unless `allowed`
    allowed    the request itself is about tests (allow_test_changes)
    experiment the change tried beside its own green tests; None: they were not green, or there is no base
    """

    __test__ = False

    commit: str
    tree: str
    base: str = ""
    note: str = ""
    fixed: tuple[str, ...] = ()
    tampering: tuple[TamperingHit, ...] = ()
    allowed: bool = False
    commands: tuple[CommandResult, ...] = ()
    experiment: Experiment | None = None


class Classification(UserInputModel):
    """The answer of the classify step."""

    kind: Kind
    reason: str = Field(description="one sentence")


class Severity(StrEnum):
    BLOCKER = "blocker"
    TECH_DEBT = "tech_debt"
    SKIPPABLE = "skippable"


class ReviewIssue(UserInputModel):
    title: str
    description: str
    severity: Severity
    file: str = Field(description="path in the diff, or empty")
    line: int | None = Field(description="line in the new file, or null")
    suggestion: str
    screenshots: list[str] = Field(
        default=[], description="pages whose screenshots show it, by their address; empty if none"
    )


class Justification(UserInputModel):
    """The reviewer's answer about one changed promise: a test of the base that fails on the change."""

    test: str = Field(description="the name of the test, as it was given")
    quote: str = Field(description="words of the request, exactly as they stand there, that ask for it; empty if none")
    reason: str = Field(description="one sentence")


class Review(UserInputModel):
    """The answer of the review step. Only blockers block.

    promises  one answer for each changed promise that the reviewer was shown
    """

    summary: str
    issues: list[ReviewIssue]
    promises: list[Justification] = Field(default=[], description="one for each changed promise that was shown")


class FindingRule(StrEnum):
    """A thing the engine itself looks for in a change."""

    SECRET = "secret"  # noqa: S105  # a name, not one
    PROTECTED_PATH = "protected_path"
    CONFLICT = "conflict"
    BINARY = "binary"
    SYMLINK = "symlink"
    SIZE = "size"
    TAMPERING = "tampering"
    UNPROVEN = "unproven"
    LOST_TEST = "lost_test"


class Finding(PublishedModel):
    """A finding of the engine itself in a change, beside the reviewer's. Never holds the secret it is about."""

    rule: FindingRule
    severity: Severity
    title: str
    description: str = ""
    file: str = ""
    line: int | None = None
    suggestion: str = ""


class Findings(PublishedModel):
    """Deterministic findings about the change from `base` to `head` (commits), the worst first.

    changed_tests  tests of the base that check something else now: shown to the reviewer
    files, added, deleted   the size of the change: files and lines
    """

    base: str
    head: str
    findings: tuple[Finding, ...] = ()
    changed_tests: tuple[ChangedTest, ...] = ()
    files: int = 0
    added: int = 0
    deleted: int = 0


class Screenshot(PublishedModel):
    """One page as a browser showed it.

    page      as `[app] pages` names it: a path or an address
    artifact  SHA-256 of the PNG in the vault; empty when there is none, and `note` says why
    width, height  in pixels
    """

    page: str
    artifact: str = ""
    width: int = 0
    height: int = 0
    note: str = ""


class Screenshots(PublishedModel):
    """The application at `commit`, page by page. `note`: why there is no picture at all."""

    commit: str
    pictures: tuple[Screenshot, ...] = ()
    note: str = ""
