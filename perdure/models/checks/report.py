"""The published reports of test commands, experiments, reviewers and the engine's own inspection, kept whole as
artifacts; and the answers that steps `classify` and `review` have to give. The experiments: the base's tests on the
change, tests that must fail (canaries), the change's tests on the base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from pydantic import Field

from perdure.models.base import PublishedModel, UserInputModel
from perdure.models.phases import Kind
from perdure.text import format_count


class CanaryOutcome(StrEnum):
    """Of canaries, tests that always fail: each was reported red; one was not; nobody could be asked."""

    CAUGHT = "caught"
    MISSED = "missed"
    NOT_ASKED = "not_asked"


class Promise(PublishedModel):
    """A test of the base that fails on the change, where a test of its name passes with the change's own tests.

    before, after  the test on the base and on the change, cut; equal ones: only what it uses has changed
    condition      `under …`: what it fails under, where it passes on the change otherwise; empty: it fails in any run
    """

    name: str
    file: str = ""
    message: str = ""
    before: str = ""
    after: str = ""
    condition: str = ""


class UnaskedTests(PublishedModel):
    """Tests that were green on the base and that no run asked about the change. `reason`: in a few words."""

    number: int
    reason: str


class CommandExperiment(PublishedModel):
    """One test command in all experiments.

    base_tests, base_passed  tests that were green on the base, and of these green on the change (PASS_TO_PASS); None:
                             not asked, the change leaves the test side alone, or the runner knows only exit codes
    promises  tests of the base that fail on the change, and passed there as the change has them
    taken     tests of the base that fail on the change, and are gone from it or skipped in it
    lost      tests of the base that would pass on the change, and are gone from it or skipped in it
    contradicted  tests of the base that fail on the change, in versions that the change has not made green either:
                  they were while somebody could write to the test side
    canaries  see CanaryOutcome; missed: those that were not reported red, though on the base they were
    replaced  what canaries saw replaced in library modules, such as `json.dumps`, or in the process; not on the base
    not_asked tests that were green on the base and are not in `base_tests`
    proving   tests that are new or changed, pass on the change, and fail without its product files (FAIL_TO_PASS);
              None: not asked
    unbuilt   tests that are new or changed and pass on the change, and whose file does not load or build without its
              product files: a weaker proof, it is one of what they name alone
    hollow    tests that are new or changed, and pass with the bodies of all new functions taken out
    proving_unnamed, unbuilt_unnamed  how many more there are than are named
    written   files of the test side that this command wrote on the change and not on the base
    steered   shared settings of the change without which the base's tests do not even start on it
    unasked   for people: what could not be asked, and why
    killed_runs  as in CommandResult
    """

    name: str
    command: str
    base_tests: int | None = None
    base_passed: int | None = None
    promises: tuple[Promise, ...] = ()
    taken: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    canaries: CanaryOutcome = CanaryOutcome.NOT_ASKED
    missed: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    not_asked: tuple[UnaskedTests, ...] = ()
    proving: tuple[str, ...] | None = None
    proving_unnamed: int = 0
    unbuilt: tuple[str, ...] = ()
    unbuilt_unnamed: int = 0
    hollow: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    steered: tuple[str, ...] = ()
    unasked: tuple[str, ...] = ()
    killed_runs: int = 0


class Experiment(PublishedModel):
    """The findings of running the change from `base` to `change`, beside its own green tests.

    branch   the name of the base, for people
    touched  paths of the test side that differ
    allowed  the request itself is about tests: tests of the base may be taken away
    removes  the request asks for something to be removed: tests of the base that went with it are changed promises,
             for the reviewer to justify with its words
    skipped  why nothing was tried at all; empty: it was
    """

    base: str
    change: str
    branch: str = ""
    touched: tuple[str, ...] = ()
    allowed: bool = False
    removes: bool = False
    skipped: str = ""
    commands: tuple[CommandExperiment, ...] = ()

    @property
    def is_tampered(self) -> bool:
        """Return True when the tests pass without the product doing what the base's tests demand: a canary (a test made
        to fail) was not reported, library modules are changed under them, tests wrote to the test side, tests fail
        once it is read-only, or failing tests were removed without being asked for."""
        has_faults = any(
            command.missed or command.replaced or command.written or command.contradicted for command in self.commands
        )
        return has_faults or bool(self.removed_tests)

    @property
    def removed_tests(self) -> tuple[str, ...]:
        """Return the names of tests of the base that fail on the change and were removed or skipped in it, for all
        commands.

        Empty when the request is about tests or asks for something to be removed.
        """
        return (
            () if self.allowed or self.removes else tuple(name for command in self.commands for name in command.taken)
        )

    @property
    def changed_promises(self) -> tuple[Promise, ...]:
        """Return all changed promises, for all commands: base tests that fail on the change while its own version of
        them passes.

        When the request asks for something to be removed, the tests that went with it are among them.
        """
        promises = [promise for command in self.commands for promise in command.promises]
        if self.removes and not self.allowed:
            promises += [Promise(name=name) for command in self.commands for name in command.taken]
        return tuple(promises)

    @property
    def summary_line(self) -> str:
        """Return `455/455 of main's own tests pass on the change · 3 new tests fail without it · canaries caught`.

        Behind the first part stands how many tests were not asked, and why. A part that no command has facts for is
        left out; empty when there is none.
        """
        passed, total = (
            sum(command.base_passed or 0 for command in self.commands),
            sum(command.base_tests or 0 for command in self.commands),
        )
        not_asked = Counter[str]()
        for tests in (tests for command in self.commands for tests in command.not_asked):
            not_asked[tests.reason] += tests.number
        parts = list[str]()
        if total or (not not_asked and any(command.base_tests is not None for command in self.commands)):
            parts.append(f"{passed}/{total} of {self.branch or 'the base'}'s own tests pass on the change")
        conditions = Counter(promise.condition for promise in self.changed_promises if promise.condition)
        noun = "of them" if total else "command"
        parts += [
            f"{format_count(number, f'{noun} fails', f'{noun} fail')} {condition}"
            for condition, number in conditions.items()
        ]
        parts += [f"{number} not asked: {reason}" for reason, number in not_asked.items()]
        parts += self._proof_texts()
        if canaries_text := _canaries_text(command.canaries for command in self.commands):
            parts.append(canaries_text)
        return " · ".join(parts)

    def _proof_texts(self) -> list[str]:
        """Return what is said of tests that are new or changed: how many fail, and do not build, without the change;
        empty where no command was asked."""
        asked = [command for command in self.commands if command.proving is not None]
        failing = sum(len(command.proving or ()) + command.proving_unnamed for command in asked)
        unbuilt = sum(len(command.unbuilt) + command.unbuilt_unnamed for command in asked)
        texts = []
        hollow = sum(len(command.hollow) for command in asked)
        if failing or (asked and not unbuilt and not hollow):
            count = format_count(failing, "new test fails", "new tests fail") if failing else "no new tests fail"
            texts.append(f"{count} without it")
        if unbuilt:
            texts.append(f"{format_count(unbuilt, 'new test does', 'new tests do')} not build without it")
        if hollow:
            stubbed = format_count(hollow, "new test passes", "new tests pass")
            texts.append(f"{stubbed} with the new functions stubbed")
        return texts

    @property
    def unasked_reasons(self) -> tuple[str, ...]:
        """Return, for people, what could not be tried and why, each reason once.

        When all was skipped, the reason for that comes first. When there are several commands, a command's name stands
        before its reason.
        """
        is_single = len(self.commands) == 1
        reasons = [
            reason if is_single else f"{command.name}: {reason}"
            for command in self.commands
            for reason in command.unasked
        ]
        return (self.skipped, *reasons) if self.skipped else tuple(dict.fromkeys(reasons))


def _canaries_text(outcomes: Iterable[CanaryOutcome]) -> str:
    """Return "canaries missed" when any command missed one, else "canaries caught" when any caught them, else an empty
    text."""
    outcomes = set(outcomes)
    if CanaryOutcome.MISSED in outcomes:
        return "canaries missed"
    return "canaries caught" if CanaryOutcome.CAUGHT in outcomes else ""


def killed_runs_text(number: int) -> str:
    """Return how many runs of tests were ended by a signal that somebody had sent, `1 run killed and done again`."""
    return f"{format_count(number, 'run')} killed and done again"


class TestCase(PublishedModel):
    """One test as its runner reported it (docs/testing.md).

    outcome  passed, failed, errored or skipped
    message  trimmed; of a flaky test, how it failed the first time
    command  reproduces it alone, in the worktree; empty where its runner cannot
    known    it failed on the base commit too
    flaky    it failed, and passed when it was run once more, alone
    is_program  it is no test, but a program of tests (a file, a Go package) that was not built or did not run to its
                end; the tests that it has not reached are not among the cases
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
    is_program: bool = False


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
    killed_runs  runs that a signal ended which somebody had sent, and that were done again: they show nothing
    cases    failed first, of these the new ones before the known ones
    """

    name: str
    command: str
    directory: str = ""
    required: bool = True
    verdict: str
    since: BaseComparison | None = None
    flaky: bool = False
    killed_runs: int = 0
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
    FILTER = "filter"
    LEFTOVER = "leftover"


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
