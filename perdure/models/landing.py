"""Landing: what a delivery of a backlog and its backlog say to each other, and what its activities take and give.

Landing belongs to the delivery; the backlog only grants the turn. One commit a delivery: its tree was tested exactly as
it lands, its parent is the integration branch's head.
"""

from __future__ import annotations

from datetime import datetime

from perdure.models.backlog import BacklogItem, LandingPlace
from perdure.models.base import ContractHash, Recorded
from perdure.models.decisions import Asked
from perdure.models.result import PullRequest
from perdure.models.work import TestVerdict


class LandingAsked(Recorded):
    """Signal `landing_asked`, delivery to backlog: it is tested and reviewed, and asks for the turn. Said twice it
    counts once. `seq`: counted by the delivery, repeated by the answer."""

    item: str
    delivery: str
    run_id: str
    seq: int


class LandingGranted(Recorded):
    """Signal `landing_granted`, backlog to delivery: it may land now, until it says that it is over.

    head   the newest commit that landed, as far as the backlog knows; the branch has to have it still; empty: none did
    check  commands of items that have landed, the ones to run with this landing, by item
    """

    seq: int
    head: str = ""
    check: dict[str, tuple[str, ...]] = {}


class LandingOver(Recorded):
    """Signal `landing_over`, delivery to backlog: the turn is given back. `commit`: what landed; empty: nothing did,
    and `words` say why, in one line. `usd`: what it has paid by then, where that is known. `unchecked`: landed items
    whose checks were to run with it and did not."""

    item: str
    delivery: str
    seq: int
    commit: str = ""
    words: str = ""
    usd: float | None = None
    unchecked: tuple[str, ...] = ()


class ItemWaits(Recorded):
    """Signal `item_waits`, delivery to backlog: it waits for a person; empty `words`: it goes on. `of`: repeated by the
    decision; `number`: counted by the delivery: an older one than the newest heard says nothing; `about`: what is to be
    decided, as far as it is short; `asked`: all that is asked, by which a decision given to the backlog is checked."""

    item: str
    delivery: str
    number: int
    words: str = ""
    gate: str = ""
    of: str = ""
    since: datetime | None = None
    about: str = ""
    asked: Asked | None = None


class ItemPlanned(Recorded):
    """Signal `item_planned`, delivery to backlog: the files its plan names, as patterns (perdure.models.touches)."""

    item: str
    delivery: str
    touches: tuple[str, ...]


class ItemForeseen(Recorded):
    """Signal `item_foreseen`, delivery to backlog: other open deliveries (their keys) it would conflict with, each with
    the first path; nothing: none any more."""

    item: str
    delivery: str
    conflicts: dict[str, str] = {}


class ItemEnded(Recorded):
    """Signal `item_ended`, delivery to backlog: it has ended. Status and reason as in its result; `branch` and the
    address of its pull request: of one of a stack; `run_id`: the first run of its chain of runs; `items`: what it
    consists of, where it was decomposed; `there`: all of it is on the branch already, by others."""

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
    there: bool = False


class RebaseInput(Recorded):
    """Bring the delivery's commits onto the integration branch's head, as one commit.

    head      the delivery's newest commit; base_sha: what its commits are on; checkpoint: the files of `head`
    landed    a commit the branch has to have still (somebody may have put it back); empty: none
    subject, kind   as for CommitInput; number: counts the landings tried, for the commit's trailer
    """

    delivery: str
    contract: ContractHash
    place: LandingPlace
    head: str
    checkpoint: str
    landed: str = ""
    subject: str = ""
    kind: str = ""
    number: int = 1


class Rebased(Recorded):
    """The delivery stands on the integration branch's head now, whether it met conflicts there or not.

    onto        that head: the delivery's new base_sha and head
    contract    the terms with the new base
    commit      the one commit on it; empty: conflicts, and `checkpoint` holds the files with their markers
    moved       false: it stood there already, and the verdict on its tree is the one that was reached
    conflicts   paths, at most 50; since: what landed there since the delivery began, for its agent (artifact)
    baseline    artifact of the TestReport on `onto`; base_red: whether it failed there
    landed      it is on the branch already: a worker died between the push and its report
    """

    onto: str
    contract: ContractHash
    checkpoint: str
    commit: str = ""
    tree: str = ""
    moved: bool = True
    conflicts: tuple[str, ...] = ()
    since: str = ""
    baseline: str = ""
    base_red: bool = False
    landed: str = ""
    summary: str = ""


class LandInput(Recorded):
    """Move the integration branch from `onto` to `commit`, if it is there still. `tests`: the verdict on its tree."""

    delivery: str
    contract: ContractHash
    workflow_id: str
    place: LandingPlace
    commit: str
    onto: str
    tests: TestVerdict | None = None


class Landed(Recorded):
    """`commit` is on the branch; empty: somebody else moved it first, and it is at `head` now."""

    commit: str = ""
    head: str = ""
    summary: str = ""


class OpenBacklogInput(Recorded):
    """Find the base (activity `open_backlog`, any host), then make the integration branch where it is not there
    (activity `make_branch`, on the queue that `Opened` names).

    said    the backlog's request without its items: its proof is about that
    branch  empty for the backlog's own
    waits   of activity `backlog_room`: fail, to be tried again, as long as there is none
    """

    backlog: str
    repository: str
    base: str = ""
    branch: str = ""
    source: str = ""
    said: dict[str, object] = {}
    waits: bool = False


class LookInput(Recorded):
    """Deliveries that should be running: workflow ids. `ships`: they are of a stack."""

    deliveries: tuple[str, ...]
    ships: bool = False


class Found(Recorded):
    """The fate of one delivery: `running`, `missing`, or how its newest run closed; as ItemEnded where it says so.

    run_id  of the first run of that chain of runs
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


class Look(Recorded):
    """By workflow id."""

    found: dict[str, Found] = {}


class PriorityInput(Recorded):
    """A delivery that runs, by its workflow id, and its new priority and fairness key (perdure.models.fairness)."""

    delivery: str
    key: int
    shared_with: str = ""


class Prioritised(Recorded):
    """`words`: why nothing was changed; empty: it was."""

    words: str = ""


class ResumeInput(Recorded):
    """The delivery whose newest run has ended without delivering."""

    workflow_id: str


class Resumed(Recorded):
    """Its request, with the point where it goes on; None: there is nothing to go on from."""

    request: dict[str, object] | None = None
    words: str = ""


class CloseBacklogInput(Recorded):
    """The integration branch as one pull request into `base`. `body`: the table of items, in Markdown; `issues`: the
    numbers of those that are done with it."""

    backlog: str
    repository: str
    base: str
    branch: str
    head: str
    title: str
    body: str
    issues: tuple[int, ...] = ()
    source: str = ""
    said: dict[str, object] = {}


class ClosedBacklog(Recorded):
    """`pull_request` None: the branch is there, but this origin has no forge that Perdure speaks to."""

    pull_request: PullRequest | None = None
    message: str = ""


class VouchInput(Recorded):
    """The request of an item's delivery, to be vouched for by the home whose proof its backlog came with.

    said   the backlog's request as it was sent, without its items
    workflow_id, request   of the item's delivery
    """

    backlog: str
    said: dict[str, object]
    workflow_id: str
    request: dict[str, object]


class Vouched(Recorded):
    """`proof` for the request; empty where the backlog's own does not hold here."""

    proof: str = ""
