"""Inputs and results of the activities that are not turns: prepare, commit, run_tests, inspect_change, close, and
attempts that are taken over by their delivery. Of prepare's result, the settings by which the workflow decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.models.base import ContractHash, HistoryModel, SignalModel
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.checks.report import Severity
from perdure.models.delivery.decisions import Gate
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import AttemptResult, Receipt, ReviewResult, ReviewStatus, TestsStatus
from perdure.models.phases import Phase


class PrepareInput(HistoryModel):
    """Prepare a delivery's workspace.

    previous, checkpoint  where a retried delivery goes on; unset for a new one
    approved_retries      see TestInput
    """

    delivery: str
    request: DeliveryRequest
    previous: PreparedWorkspace | None = None
    checkpoint: str = ""
    approved_retries: int = 0


class EscalationSettings(HistoryModel):
    """The rule by which people decide about work that was cut off again and again, also before a delivery is prepared.

    asks      a person is asked; expiry_s: how long that waits, 0: for ever
    notifies  somebody wants to hear of it: there is an address to tell

    A failure of `prepare` carries it as its details.
    """

    asks: bool = False
    expiry_s: float = 0.0
    notifies: bool = False


class BaseCommit(HistoryModel):
    """The commit that a change is made from. Set by activity `prepare`, and by `rebase` where the change lands.

    branch     that the change goes to; sha: its commit
    baseline   artifact: the TestReport of the commit, empty where it has no test command
    is_red     whether its required tests failed there
    """

    branch: str
    sha: str
    baseline: str = ""
    is_red: bool = False


class RequestFacts(HistoryModel):
    """Parts of the request: plan is the artifact of a plan that the submitter sent along; issue and title are of
    the issue it came from. Each may be empty."""

    plan: str = ""
    issue: int = 0
    title: str = ""


class DeliveryLimits(HistoryModel):
    """The limits of the delivery. What people add to them is in its state.

    budget_usd, budget_tokens   the most dollars, and the most tokens, 0: no limit; time_s: seconds
    turns_per_step, test_fixes, review_fixes   the most of each
    shared_budgets   of a fleet that it is under: name, dollars a day; empty: it never asks the Treasury
    is_shared  the repository's deliveries have a common limit, which is checked before it pays for anything
    most_usd, most_tokens, most_time_s   the host's own limits, beyond which nothing is added; None: not known, or none
    """

    budget_usd: float = 5.0
    budget_tokens: int = 0
    time_s: float = 7200.0
    turns_per_step: int = 60
    test_fixes: int = 4
    review_fixes: int = 3
    shared_budgets: dict[str, float] = {}
    is_shared: bool = False
    most_usd: float | None = None
    most_tokens: int | None = None
    most_time_s: float | None = None


class DecisionSettings(HistoryModel):
    """Settings for people: the gates, and the places where they hear of them.

    asks        a person is asked where a limit is reached; false: the delivery ends there
    gates       where a person decides: before plan or pull_request; tests, about what nothing else can tell; deaths
    expiry_s    how long a gate waits, 0: for ever
    checks_plans   an edited plan is checked before it counts
    notifies    somebody wants to hear of gates and of the end: there is an address to tell
    comments    the issue's comment says what it waits for
    """

    asks: bool = False
    gates: tuple[str, ...] = ()
    expiry_s: float = 0.0
    checks_plans: bool = False
    notifies: bool = False
    comments: bool = False


class AgentSettings(HistoryModel):
    """The agents of the delivery.

    models    by step
    efforts   by step, the effort of the last fix that is allowed; none where it is the settings' own
    proxied   an agent with a process of its own works on a step: a turn's input says what more it may pay for
    unpriced  models among them, and second ones, whose price nobody knows
    """

    models: dict[str, str] = {}
    efforts: dict[str, str] = {}
    proxied: bool = False
    unpriced: tuple[str, ...] = ()


class BuildSettings(HistoryModel):
    """Settings for building a plan, and for the looks at the change afterwards.

    specialists  its tasks are built at the same time, where they can be
    attempts     at one plan: the best one is taken; after_red: the others begin only when the first one is no good
    document     the optional step before the tests is wanted
    has_tests    the repository has a test command
    inspects     the engine looks at each change itself before that is shown
    """

    specialists: bool = False
    attempts: int = 1
    after_red: bool = False
    document: bool = False
    has_tests: bool = True
    inspects: bool = False


class PublishSettings(HistoryModel):
    """Settings for publishing the change.

    hosted      the origin has a forge with accounts and issues: access is checked before money is spent
    publisher   the queue whose worker alone holds the forge's token; empty: this host's own
    on_failure  `draft`: red tests or blockers become a draft; `none`: nothing is opened then
    allow_untested, draft   of the settings
    screenshots   are wanted: `[app]` says how to start the application and which pages to show
    landing     the integration branch of its backlog, where it lands instead of a pull request; empty: it has none
    """

    hosted: bool = False
    publisher: str = ""
    on_failure: str = "none"
    allow_untested: bool = False
    draft: bool = False
    screenshots: bool = False
    landing: str = ""


class VisibilitySettings(HistoryModel):
    """Places where the delivery is seen.

    attributes         whether the server knows Perdure's search attributes
    extra_attributes   of the attributes of later releases (perdure.models.ids) those that the server knows
    labels      of the request and its issue, by which costs are added up
    page        address of the page on which people see it, without a token; empty: none is known
    """

    attributes: bool = False
    extra_attributes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    page: str = ""


class PreparedWorkspace(HistoryModel):
    """A workspace on one host, with setup and preflight done, and the settings that the workflow decides by.

    queue       the host's task queue: everything that touches the worktree runs there
    command_queue  the host's task queue of what runs the repository's tests and application; empty: the same
    host_may_be_away  other hosts may work at the same server, so the delivery is asked for when its host is not there
    contract    artifact of the Contract
    phases      that were selected
    head        what the delivery builds on: the base commit, or the tip of `branch` when an existing one was named
    branch      of the change
    branches    by kind, what `branch` becomes when that is known; empty where its name does not say the kind
    checkpoint  the first checkpoint: the base commit's tree, no transcript
    fallback    set when a retry found its checkpoint damaged: the newest whole one before it, where it goes on instead
    fallback_position   (step, attempt, turn) that made `fallback`; None when prepare did
    """

    queue: str
    command_queue: str = ""
    host_may_be_away: bool = False
    contract: ContractHash
    phases: tuple[Phase, ...]
    head: str
    branch: str
    branches: dict[str, str] = {}
    checkpoint: str
    fallback: str = ""
    fallback_position: tuple[str, int, int] | None = None
    summary: str = ""
    base_commit: BaseCommit
    request: RequestFacts = RequestFacts.model_construct()
    limits: DeliveryLimits = DeliveryLimits.model_construct()
    decisions: DecisionSettings = DecisionSettings.model_construct()
    agents: AgentSettings = AgentSettings.model_construct()
    building: BuildSettings = BuildSettings.model_construct()
    publishing: PublishSettings = PublishSettings.model_construct()
    visibility: VisibilitySettings = VisibilitySettings.model_construct()

    def with_changes(self, piece_changes: Mapping[str, Mapping[str, Any]], **fields: Any) -> PreparedWorkspace:
        """Return a copy with these fields replaced, and of each named piece (such as `limits`) only the named
        fields."""
        pieces = {name: getattr(self, name).model_copy(update=changes) for name, changes in piece_changes.items()}
        return self.model_copy(update=pieces | fields)

    @property
    def escalation(self) -> EscalationSettings:
        """Return the settings by which people decide about work that was cut off again and again."""
        settings = self.decisions
        return EscalationSettings(
            asks=Gate.DEATHS in settings.gates, expiry_s=settings.expiry_s, notifies=settings.notifies
        )


class CommitInput(HistoryModel):
    """Commit the tree of `checkpoint` onto `parent` as step `step`, attempt `attempt`."""

    delivery: str
    contract: ContractHash
    step: str
    attempt: int
    checkpoint: str
    parent: str
    subject: str
    kind: str = ""


class ChangeSize(HistoryModel):
    """The size of a whole change, from its base: files, and lines of text."""

    files: int = 0
    added: int = 0
    deleted: int = 0


class CommitResult(HistoryModel):
    """The commit that was made; `commit` is empty when the tree is the parent's.

    files, added, deleted  of this commit; change: of all commits so far together
    conflicts              by key of another open delivery that this one may conflict with, the first path
    """

    commit: str = ""
    tree: str = ""
    files: int = 0
    added: int = 0
    deleted: int = 0
    summary: str = ""
    conflicts: dict[str, str] = {}
    change: ChangeSize | None = None


class TestInput(HistoryModel):
    """Run the test commands on `commit`.

    baseline          artifact of the base commit's TestReport; empty: failures cannot be compared with anything
    approved_retries  how often a person let it be tried again after it had been cut off three times
    check             by item of a backlog, commands that have to pass when it lands; `item`: its own id there
    """

    __test__ = False

    delivery: str
    contract: ContractHash
    commit: str
    attempt: int
    baseline: str = ""
    approved_retries: int = 0
    check: dict[str, tuple[str, ...]] = {}
    item: str = ""


class TestVerdict(HistoryModel):
    """The result of the repository's own test commands on one commit. The exit code is the verdict; what failed on the
    base commit too does not make it red.

    passed, failed  counts from a report; None where only exit codes exist
    failures        names of the first few failures that make it red
    report          artifact: TestReport (perdure.models.checks.report), for the fix step and for people
    new_failures    tests, and commands that failed as a whole, that did not fail on the base; None: cannot be told
    known_failures  tests that failed on the base too; None: nothing is known about the base
    fixed           what failed on the base and passed now; None as above
    flaky           tests, and commands as a whole, that failed and passed when they were run once more
    killed_runs     runs, of experiments too, that a signal ended which somebody had sent, and that were done again
    undecidable     red only in commands that were red on the base too and have nothing but an exit code
    tampered        places where the change makes the tests say less than on the base; 0 where that was asked for
    fingerprint     equal for two red verdicts with the same failures
    experiment      one line: the base's own tests on the change, its tests without it, canaries; empty: not tried
    promises        tests of the base that fail on the change and were changed with it: each needs a reason
    promised        names of the first few of these
    change          the size of what was tested, from its base
    unchecked       landed items of its backlog whose checks were to run and did not, or not all of them
    """

    __test__ = False

    status: TestsStatus
    tree: str
    passed: int | None = None
    failed: int | None = None
    failures: tuple[str, ...] = ()
    report: str = ""
    summary: str = ""
    new_failures: int | None = None
    known_failures: int | None = None
    fixed: int | None = None
    flaky: int = 0
    killed_runs: int = 0
    undecidable: bool = False
    tampered: int = 0
    fingerprint: str = ""
    experiment: str = ""
    promises: int = 0
    promised: tuple[str, ...] = ()
    change: ChangeSize | None = None
    unchecked: tuple[str, ...] = ()

    def same_as(self, other: TestVerdict) -> bool:
        """Return True when both verdicts are red with the same failures of the same tree; False for one without a
        fingerprint, as of a green one or an older release."""
        return bool(self.fingerprint) and (self.tree, self.fingerprint) == (other.tree, other.fingerprint)


class InspectInput(HistoryModel):
    """Let the engine itself look at the change from the base to `commit`.

    report  artifact of the last TestReport; kind: of the request (perdure.models.phases.Kind); both may be empty
    """

    delivery: str
    contract: ContractHash
    commit: str
    report: str = ""
    kind: str = ""


class InspectResult(HistoryModel):
    """The engine's own findings, counted by severity.

    findings  artifact (perdure.models.checks.report.Findings)
    secrets   how many of the blockers must not even be pushed
    """

    findings: str = ""
    blockers: int = 0
    tech_debt: int = 0
    skippable: int = 0
    secrets: int = 0
    summary: str = ""

    def with_review(self, review_counts: Mapping[str, Any]) -> ReviewResult:
        """Return the result of a review, in which the reviewer's counts by severity and the engine's own are added up.

        A severity that is missing or is no number counts as zero; with any blocker the status is blocked, else clean.
        """
        counts = {
            severity: value if isinstance(value := review_counts.get(severity), int) else 0 for severity in Severity
        }
        blockers = counts[Severity.BLOCKER] + self.blockers
        return ReviewResult(
            status=ReviewStatus.BLOCKED if blockers else ReviewStatus.CLEAN,
            blockers=blockers,
            tech_debt=counts[Severity.TECH_DEBT] + self.tech_debt,
            skippable=counts[Severity.SKIPPABLE] + self.skippable,
        )


class CloseInput(HistoryModel):
    """Tidy up after a delivery.

    keep   leave the worktree for a person to look at (7 days); tasks: keys of its plan's tasks
    """

    delivery: str
    keep: bool = False
    tasks: tuple[str, ...] = ()


class CloseResult(HistoryModel):
    """The delivery's receipt and spending after everything was tidied up.

    notifies   this host tells somebody; known here also of a delivery that could not be prepared
    usage      of all replies that `spend` is the price of; None: nobody added them up
    tasks_usd  what its plan's tasks paid
    """

    receipt: Receipt = Receipt.model_construct()
    spend: Spend = Spend.model_construct()
    usage: Usage | None = None
    message: str = ""
    notifies: bool = False
    tasks_usd: float = 0.0


class TakeAttemptInput(HistoryModel):
    """Measure the attempts, choose the best one, and let the delivery go on from its files.

    base        the commit that all of them built on
    own_number  the number of the delivery's own attempt; 0: it made none
    """

    delivery: str
    contract: ContractHash
    checkpoint: str
    base: str
    attempts: tuple[AttemptResult, ...]
    own_number: int = 0
    attempt: int = 1


class AttemptWaits(SignalModel):
    """Signal `attempt_waits`, attempt to delivery: it waits for a person, or no longer does.

    number       of the attempt
    waiting_for  what it waits for, in one line; empty: it waits no longer
    """

    number: int
    waiting_for: str = ""


class TakeAttemptResult(HistoryModel):
    """The attempts after they were measured, and where the delivery goes on.

    checkpoint  with the files of the chosen attempt; the delivery's own where that is the best, or none has made
    anything
    attempts    measured, the chosen one marked
    spend       of the delivery, with that of the attempts
    usage       of the other attempts alone
    """

    checkpoint: str
    attempts: tuple[AttemptResult, ...]
    spend: Spend = Spend.model_construct()
    usage: Usage = Usage.model_construct()
    summary: str = ""


class HostLookupInput(HistoryModel):
    """Find out whether a worker takes activities from a host's task queue."""

    queue: str


class HostLookup(HistoryModel):
    """`reason`: why nobody takes activities from the queue; empty: a worker of the host is there."""

    reason: str = ""
