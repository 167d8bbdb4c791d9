"""Messages between a backlog and its deliveries, the signals by which they start to land, wait and end; and the inputs
and results of the activities that rebase and land a change, open and close a backlog, and look up its deliveries.

Landing belongs to the delivery; the backlog only grants the turn. Each delivery lands as one commit: its tree was
tested exactly as it lands, and its parent is the integration branch's head.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from perdure.models.backlog.request import BacklogItem, LandingPlace
from perdure.models.base import ContractHash, HistoryModel, SignalModel
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.result import PullRequest
from perdure.models.delivery.work import TestVerdict


class LandingRequested(SignalModel):
    """Signal `landing_asked`, delivery to backlog: it is tested and reviewed, and asks for the turn to land.

    seq  counted by the delivery, repeated by the grant; the same number twice counts once
    """

    item: str
    delivery: str
    run_id: str
    seq: int


class LandingGranted(SignalModel):
    """Signal `landing_granted`, backlog to delivery: it may land now, until it reports the end of its turn.

    seq    the number of the request that is granted
    head   the newest commit that landed, as far as the backlog knows; the branch must still contain it; empty: none did
    check  by item that has landed, the commands to run with this landing
    """

    seq: int
    head: str = ""
    check: dict[str, tuple[str, ...]] = {}


class LandingEnded(SignalModel):
    """Signal `landing_over`, delivery to backlog: the turn is given back.

    commit     what landed; empty: nothing did, and `reason` says why, in one line
    usd        what the delivery has paid by then; None: not known
    unchecked  landed items whose checks were to run with this landing and did not
    """

    item: str
    delivery: str
    seq: int
    commit: str = ""
    reason: Annotated[str, Field(alias="words")] = ""
    usd: float | None = None
    unchecked: tuple[str, ...] = ()


class ItemWaits(SignalModel):
    """Signal `item_waits`, delivery to backlog: it waits for a person, or no longer does.

    number            counted by the delivery; the backlog ignores one that is older than the newest it has received
    waiting_for       what it waits for, in one line; empty: it waits no longer
    target            names what is decided; the decision repeats it
    about             the text of what is to be decided, where it is short
    pending_decision  the whole question, by which the backlog checks a decision that a person gives to it
    """

    item: str
    delivery: str
    number: int
    waiting_for: Annotated[str, Field(alias="words")] = ""
    gate: str = ""
    target: Annotated[str, Field(alias="of")] = ""
    since: datetime | None = None
    about: str = ""
    pending_decision: Annotated[PendingDecision | None, Field(alias="asked")] = None


class ItemPlanned(SignalModel):
    """Signal `item_planned`, delivery to backlog: the files its plan names, as patterns (`touches`)."""

    item: str
    delivery: str
    touches: tuple[str, ...]


class ItemForeseen(SignalModel):
    """Signal `item_foreseen`, delivery to backlog: the merge conflicts it expects with other open deliveries.

    conflicts  by key of the other delivery, the first path in conflict; empty: none is expected any more
    """

    item: str
    delivery: str
    conflicts: dict[str, str] = {}


class ItemEnded(SignalModel):
    """Signal `item_ended`, delivery to backlog: it has ended.

    run_id                the first run of its chain of runs
    status, reason        as in its result
    branch, pull_request  its own branch and the address of its pull request, in a stack
    items                 what it was decomposed into
    already_on_branch     all of its change is on the integration branch already, through others
    """

    item: str
    delivery: str
    run_id: str
    status: str
    reason: str = ""
    message: str = ""
    usd: float | None = None
    commit: str = ""
    branch: str = ""
    pull_request: str = ""
    items: tuple[BacklogItem, ...] = ()
    already_on_branch: Annotated[bool, Field(alias="there")] = False


class RebaseInput(HistoryModel):
    """Bring the delivery's commits onto the integration branch's head, as one commit.

    head           the delivery's newest commit, whose files `checkpoint` holds
    landed         a commit that the branch must still contain (somebody may have moved it back); empty: none
    subject, kind  as for CommitInput; of a delivery whose facts are sealed, its plan or contract names the subject
    plan           the delivery's plan, an artifact; empty: it has none
    number         counts the landings tried, for the commit's trailer
    """

    delivery: str
    contract: ContractHash
    place: LandingPlace
    head: str
    checkpoint: str
    landed: str = ""
    subject: str = ""
    kind: str = ""
    plan: str = ""
    number: int = 1


class RebaseResult(HistoryModel):
    """The delivery stands on the integration branch's head now, with or without conflicts.

    onto            that head: the delivery's new base_sha and head
    contract        artifact of the Contract with the new base
    commit          the one commit on it; empty: conflicts, and `checkpoint` holds the files with their markers
    moved           false: it stood there already, and the verdict on its tree still holds
    conflicts       paths, at most 50
    landed_changes  artifact: what landed there since the delivery began, for its agent
    baseline        artifact of the TestReport on `onto`; base_red: whether it failed there
    landed          the commit, where it is on the branch already: a worker died between the push and its report
    """

    onto: str
    contract: ContractHash
    checkpoint: str
    commit: str = ""
    tree: str = ""
    moved: bool = True
    conflicts: tuple[str, ...] = ()
    landed_changes: str = ""
    baseline: str = ""
    base_red: bool = False
    landed: str = ""
    summary: str = ""


class LandInput(HistoryModel):
    """Move the integration branch from `onto` to `commit`, if it is still at `onto`. `tests`: the verdict on that
    tree."""

    delivery: str
    contract: ContractHash
    workflow_id: str
    place: LandingPlace
    commit: str
    onto: str
    tests: TestVerdict | None = None


class LandResult(HistoryModel):
    """`commit` is on the branch; empty: somebody else moved the branch first, and it is at `head` now."""

    commit: str = ""
    head: str = ""
    summary: str = ""


class OpenBacklogInput(HistoryModel):
    """Input of activities that open a backlog: `open_backlog` finds the base, `make_branch` makes the integration
    branch.

    backlog_request  the backlog's request without its items: its proof is made of that
    branch           of the backlog; empty: its own name for it
    waits            only for activity `backlog_room`: fail while the limit is reached, so that Temporal tries it again
    """

    backlog: str
    repository: str
    base: str = ""
    branch: str = ""
    source: str = ""
    backlog_request: dict[str, object] = {}
    waits: bool = False


class DeliveryLookupInput(HistoryModel):
    """Deliveries that should be running, by workflow id. `ships`: they belong to a stack of pull requests."""

    deliveries: tuple[str, ...]
    ships: bool = False


class DeliveryStatus(HistoryModel):
    """The status of one delivery: `running`, `missing`, or how its newest run closed.

    run_id  the first run of that chain of runs

    The other fields are those of ItemEnded, where the delivery has a result.
    """

    status: str
    run_id: str = ""
    reason: str = ""
    message: str = ""
    usd: float | None = None
    commit: str = ""
    branch: str = ""
    pull_request: str = ""
    items: tuple[BacklogItem, ...] = ()


class DeliveryLookup(HistoryModel):
    """The status of each delivery that was looked up, by workflow id."""

    statuses: dict[str, DeliveryStatus] = {}


class PriorityInput(HistoryModel):
    """A running delivery, by its workflow id, and its new priority and fairness key."""

    delivery: str
    key: int
    shared_with: str = ""


class PriorityResult(HistoryModel):
    """The result of changing a priority. `reason`: why nothing was changed; empty: it was changed."""

    reason: str = ""


class ResumeInput(HistoryModel):
    """The delivery, by workflow id, whose newest run has ended without delivering."""

    workflow_id: str


class ResumeResult(HistoryModel):
    """The request with which a delivery goes on. `request` None: it cannot go on, and `reason` says why."""

    request: dict[str, object] | None = None
    reason: str = ""


class CloseBacklogInput(HistoryModel):
    """Open one pull request from the integration branch into `base`.

    unlanded         by item that did not land, what came of it (perdure.models.rules.dependencies.unlanded_outcomes)
    unchecked        landed items whose checks are not known to hold on the branch as it is
    issues           numbers of the issues that are done with it
    backlog_request  the backlog's request without its items
    """

    backlog: str
    repository: str
    base: str
    branch: str
    head: str
    unlanded: dict[str, str] = {}
    unchecked: tuple[str, ...] = ()
    issues: tuple[int, ...] = ()
    source: str = ""
    backlog_request: dict[str, object] = {}


class CloseBacklogResult(HistoryModel):
    """The backlog's pull request; None: the branch is there, but this origin has no forge that Perdure speaks to."""

    pull_request: PullRequest | None = None
    message: str = ""


class SignRequestInput(HistoryModel):
    """The request of an item's delivery, to be signed by the home whose proof its backlog came with.

    backlog_request       the backlog's request as it was sent, without its items
    workflow_id, request  of the item's delivery
    """

    backlog: str
    backlog_request: dict[str, object]
    workflow_id: str
    request: dict[str, object]


class SignRequestResult(HistoryModel):
    """`proof` for the request of the item's delivery; empty: the backlog's own proof is not valid here."""

    proof: str = ""
