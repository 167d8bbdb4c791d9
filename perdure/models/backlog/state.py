"""The state of a running backlog and of its items, which it takes along into another run, and how that run proves where
the state comes from. Also the updates that people send to a backlog, and its progress and items as they are shown."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import HistoryModel, LazyModel, UserInputModel, require_number
from perdure.models.delivery.decisions import AddBudget, Answer, Approve, EditPlan, Reject, UserMessage
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.ids import digest
from perdure.models.limits import NAME_CHARS, PLACE_CHARS, PRIORITY_MOST
from perdure.models.schedule import Offset


class ItemPhase(StrEnum):
    """The stored phase of one item; ready, after (others) and blocked are derived from the phases of other items.

    `decomposed`: its parts have taken its place.
    """

    WAITING = "waiting"
    BUILDING = "building"
    LANDED = "landed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    DECOMPOSED = "decomposed"


SATISFIED = (ItemPhase.LANDED, ItemPhase.SKIPPED, ItemPhase.DECOMPOSED)
"""Items that depend on an item in one of these phases may begin."""


class ItemChild(LazyModel):
    """An item's delivery, a child of the backlog. Written by workflows/items.py, which starts it, and
    perdure/models/rules/changes.py, which records its end; workflows/backlog_inbox.py records a run that goes on, and
    what it paid, workflows/forwarding.py what more it was granted.

    id        its workflow id; empty: none was ever started
    run_id    the first run of its newest chain of runs
    runs      how many times a delivery was started for the item
    status, reason   of its result
    usd       what it has paid as far as known; granted_usd: the most it may pay; None: its own budget
    unpriced  it ended, and nobody knows what all it asked has cost
    began_at, ended_at   of the newest run; ended_at also: when the item was skipped or cancelled
    """

    id: str = ""
    run_id: str = ""
    runs: int = 0
    status: str = ""
    reason: str = ""
    usd: float = 0.0
    unpriced: bool = False
    granted_usd: float | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None


class ItemWaiting(LazyModel):
    """The decision that an item's delivery waits for. Written by workflows/backlog_inbox.py, which is told of it, and
    reset by workflows/items.py.

    number   of the newest message about it
    reason   what it waits for a person to decide, in one line; empty: nothing
    gate, target   the kind of that decision, and what names it; since: when it began to wait
    about    what is to be decided, where it is short
    pending_decision   all of the decision, as JSON (perdure.models.delivery.decisions.PendingDecision)
    """

    number: int = 0
    reason: str = ""
    gate: str = ""
    target: str = ""
    since: datetime | None = None
    about: str = ""
    pending_decision: dict[str, Any] | None = None


class ItemLanding(LazyModel):
    """An item on its way onto the integration branch. Written by workflows/backlog_inbox.py and
    workflows/base_follower.py.

    seq         number of its newest request for the turn to land
    commit      the commit of the integration branch that is this item
    checked_at  when its `check` commands last passed on what landed
    """

    seq: int = 0
    commit: str = ""
    checked_at: datetime | None = None


class StackedItem(LazyModel):
    """An item's pull request in a stack. Written by workflows/follow_up.py, once the item's delivery has opened it;
    workflows/items.py sets the branch that it is into.

    branch, into   its own branch, and the branch that it is into; address: of the pull request
    merged    it is merged; orphaned: it was closed with the branch it is into; closed: somebody closed it
    """

    branch: str = ""
    into: str = ""
    address: str = ""
    merged: bool = False
    orphaned: bool = False
    closed: bool = False


class ForeseenChanges(LazyModel):
    """The files that an item will change, as far as known. Written by workflows/backlog_inbox.py.

    touches     patterns of the files that its plan names: they count beside those of the item
    conflicts   other items it would conflict with if both landed, each with the first path in conflict
    """

    touches: tuple[str, ...] = ()
    conflicts: dict[str, str] = {}


class ItemState(LazyModel):
    """All a backlog knows of one item beside the item as it was sent. Each piece says which workflow part writes it.

    order      counted when it was added: of two equal items the older goes first
    added_at   when it was added; None: it was there from the beginning
    message    why it ended as it did, in one line
    """

    model_config = ConfigDict(extra="ignore")

    item: BacklogItem
    phase: ItemPhase = ItemPhase.WAITING
    order: int = 0
    added_at: datetime | None = None
    message: str = ""
    child: ItemChild = ItemChild.model_construct()
    waiting: ItemWaiting = ItemWaiting.model_construct()
    landing: ItemLanding = ItemLanding.model_construct()
    stacked: StackedItem = StackedItem.model_construct()
    foreseen: ForeseenChanges = ForeseenChanges.model_construct()

    @property
    def touches(self) -> tuple[str, ...]:
        """Return all patterns of files that the item is known to change: as sent, and as its plan names them."""
        return (*self.item.touches, *self.foreseen.touches)


class OpenBacklogResult(HistoryModel):
    """The base that was found for a backlog, and how the backlog works.

    Switches are false where the thing is not so, or in histories of releases that did not have it.

    queue         the task queue from which the integration branch is pushed
    sets_search_attributes   its search attributes are set
    extra_attributes   as in VisibilitySettings
    follows_base  the branch is the backlog's own, and follows its base
    offsets       UTC offsets of the zone that the window names, from now on
    frees_waiting_slots   an item that waits long for a person leaves its slot to others
    within        the backlog's items are tasks of that delivery, and `branch` is in its vault alone
    notifies      people are notified of its end
    limits_pull_requests  the repository has a limit of open pull requests
    issues        numbers of the issues that are items too
    issue_pull_requests   by number of an issue that is no item, the pull request of ours that waits to be merged for it
    page          as in VisibilitySettings
    """

    base: str
    base_sha: str
    branch: str
    queue: str
    sets_search_attributes: bool = False
    extra_attributes: tuple[str, ...] = ()
    follows_base: bool = False
    offsets: tuple[Offset, ...] = ()
    frees_waiting_slots: bool = False
    within: ParentDelivery | None = None
    notifies: bool = False
    limits_pull_requests: bool = False
    issues: tuple[int, ...] = ()
    issue_pull_requests: dict[int, int] = {}
    page: str = ""


class ReopenedFrom(HistoryModel):
    """The ended run from whose state this one was made by `retry` or `skip`, and that change.

    With these the worker can make the state again and compare it. item, note, changed_at: arguments of
    perdure.models.rules.changes.reopen_backlog.
    """

    run_id: str
    change: Literal["retry", "skip"]
    item: str = ""
    note: str = ""
    changed_at: datetime | None = None


class LandingTurn(LazyModel):
    """The turn to land, and where the integration branch stands. Written by workflows/items.py, which grants the turn,
    and by workflows/backlog_inbox.py and workflows/base_follower.py, which hear of a landing or move the branch.

    item      that may land now; empty: none; granted_at: since when
    checks    items whose checks run with that landing
    queue     items that asked for the turn, in that order
    head      the newest commit of the branch that is known; head_moved_at: when it last moved there
    """

    item: str = ""
    granted_at: datetime | None = None
    checks: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    head: str = ""
    head_moved_at: datetime | None = None


class BaseFollowing(LazyModel):
    """The integration branch, or a stack, and its base. Written by workflows/base_follower.py,
    workflows/follow_up.py and perdure/models/rules/landed_checks.py.

    checked_at   when the base was last looked at
    question     why the branch cannot follow its base, or which checks fail on it, for a person to decide
    failing_items   the landed items whose checks `question` is about
    stays        a person has decided that the branch stays on the base it has
    """

    checked_at: datetime | None = None
    question: str = ""
    failing_items: tuple[str, ...] = ()
    stays: bool = False


class TasksNews(LazyModel):
    """Messages of a delivery to the backlog of its plan's tasks. Written by workflows/forwarding.py alone.

    messages        to each of its tasks
    extra_usd       dollars added to the budget; budget_raises: how often
    """

    messages: tuple[UserMessage, ...] = ()
    extra_usd: float = 0.0
    budget_raises: int = 0


class BacklogState(LazyModel):
    """All of a backlog, and all that goes with it into a new run. Each piece says which workflow part writes it.

    items_digest    of the items as they were sent, by which the same backlog is recognised
    items           by id, in the order in which they were added
    opened          its base and branch, once they are there; None before
    hold_reason     why no further item begins, in one line; empty: one may
    pull_request    address of the one at the end
    message         how the backlog ended, in one line
    reopened_from   the ended run whose state this is, until that has been verified
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    status: str = "running"
    message: str = ""
    waiting: str = ""
    hold_reason: str = ""
    notes: tuple[str, ...] = ()
    began_at: datetime | None = None
    pull_request: str = ""
    items_digest: str = ""
    items: dict[str, ItemState] = {}
    opened: OpenBacklogResult | None = None
    landing: LandingTurn = LandingTurn.model_construct()
    base: BaseFollowing = BaseFollowing.model_construct()
    tasks: TasksNews = TasksNews.model_construct()
    reopened_from: ReopenedFrom | None = None

    @property
    def parent_delivery(self) -> ParentDelivery | None:
        """Return the delivery of whose plan the items are tasks; None: they are no tasks, or nothing is opened yet."""
        return self.opened.within if self.opened is not None else None

    @property
    def paid_usd(self) -> float | None:
        """Return what all items have paid together; None: the price of some of it is not known."""
        children = [item.child for item in self.items.values()]
        return None if any(child.unpriced for child in children) else round(sum(child.usd for child in children), 6)

    def dump_for_next_run(self) -> dict[str, Any]:
        """Return the state as JSON values without defaults, for another run: of a thousand items, half the bytes."""
        return self.model_dump(mode="json", exclude_defaults=True)


class PreviousRunInput(HistoryModel):
    """Find out where a backlog's state comes from, by what the server knows of this run.

    continued_run_id   the run that continued as this one
    parent_id, parent_run_id   the workflow that started it
    reopened_from      the ended run that the state is said to come from, and the change; None: it does not say so
    backlog_request    its request without items
    digest             of the state that it was given (`state_digest`)
    """

    backlog: str
    continued_run_id: str = ""
    parent_id: str = ""
    parent_run_id: str = ""
    reopened_from: ReopenedFrom | None = None
    backlog_request: dict[str, Any] = {}
    digest: str = ""


class PreviousRunResult(HistoryModel):
    """`reason`: why the state does not count, in one line; empty: it does."""

    reason: str = ""


class SignalClaim(HistoryModel):
    """A signal that names a workflow, mostly a delivery, as its sender. `content`: what it carries, as JSON."""

    signal: str
    delivery: str
    content: str


class SignalOriginInput(HistoryModel):
    """Find out whether the deliveries have sent these signals to the workflow that asks.

    after  number of the last event of its history before all of them, or of an earlier one
    """

    claims: tuple[SignalClaim, ...]
    after: int = 0


class SignalOriginResult(HistoryModel):
    """For each claim, why the signal does not count, in one line, and the run that has sent it; one of them is empty.
    Histories of 0.5 have no `runs`."""

    reasons: tuple[str, ...]
    runs: tuple[str, ...] = ()


def state_digest(state: BacklogState) -> str:
    """Return the SHA-256 of a backlog's state, without the field that says where it comes from (`reopened_from`)."""
    return digest(json.dumps(state.model_copy(update={"reopened_from": None}).dump_for_next_run(), sort_keys=True))


class AddItem(UserInputModel):
    """Updates `add` and `edit`: the whole item."""

    item: BacklogItem


class NamedItem(UserInputModel):
    """Updates `skip`, `retry` and `cancel_item`. `item`: its id; `by`: who says so."""

    item: str = Field(min_length=1, max_length=NAME_CHARS)
    note: str = Field(default="", max_length=PLACE_CHARS)
    by: str = Field(default="", max_length=NAME_CHARS)


class PrioritisedItem(NamedItem):
    """Update `prioritise`."""

    priority: int = Field(ge=-PRIORITY_MOST, le=PRIORITY_MOST)

    _require_number = field_validator("priority", mode="before")(require_number)


class ItemDecision(UserInputModel):
    """A decision about what an item waits for, given to its backlog. `item`: its id."""

    item: str = Field(min_length=1, max_length=NAME_CHARS)


class ApproveItem(ItemDecision, Approve):
    """Update `approve` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it."""


class RejectItem(ItemDecision, Reject):
    """Update `reject` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it."""


class EditPlanOfItem(ItemDecision, EditPlan):
    """Update `edit_plan` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it."""


class AnswerItem(ItemDecision, Answer):
    """Update `answer` of a backlog. `item`: the item that waits; the rest as the delivery's own update takes it."""


class AddBudgetToItem(ItemDecision, AddBudget):
    """Update `add_budget` of a backlog. `item`: one that runs; the rest as the delivery's own update takes it."""


class BacklogAttached(HistoryModel):
    """The answer to update `attach`: the backlog of this id has been accepted, just now or before."""

    backlog_id: str
    run_id: str
    repository: str
    items: int


class ItemView(HistoryModel):
    """One item as it is shown. `phase`: ready, after (others), building, landing, waits (for you), landed, failed,
    blocked, skipped or cancelled; `because`: why, in one line; unblocks: how many items wait for it;
    branch, pull_request: in a stack, its own."""

    id: str
    phase: str
    because: str = ""
    caption: str = ""
    delivery: str = ""
    commit: str = ""
    branch: str = ""
    pull_request: str = ""
    unblocks: int = 0
    depends_on: tuple[str, ...] = ()
    blocked_by: str = ""
    gate: str = ""
    target: Annotated[str, Field(alias="of")] = ""
    since: datetime | None = None
    usd: float = 0.0
    priority: int = 0
    critical: bool = False


_CUT_OFF_TEXTS = {"cancelled": "was cancelled", "failed": "failed", "terminated": "was terminated"}


def item_as_cut_off(view: ItemView, status: str) -> ItemView:
    """Return the view of an item as cancelled when it never began and `status` says that its backlog was cancelled,
    failed or terminated.

    Otherwise return the view unchanged.
    """
    if view.phase not in ("ready", "after") or status not in _CUT_OFF_TEXTS:
        return view
    return view.model_copy(update={"phase": "cancelled", "because": f"not begun: the backlog {_CUT_OFF_TEXTS[status]}"})


class BacklogProgress(HistoryModel):
    """The answer to query `progress`, and the result of a backlog that has ended. `asks`: why its branch does not
    follow its base, for a person to decide by update `follow`; `notes`: the newest ten of what a person should know.

    usd   spent by all of its deliveries; left out: nothing; None: a price is not known
    """

    backlog_id: str
    run_id: str
    repository: str
    status: str
    base: str = ""
    land: str = "branch"
    branch: str = ""
    head: str = ""
    parallel: int = 1
    budget_usd: float | None = None
    usd: float | None = 0.0
    held: str = ""
    asks: str = ""
    waiting: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    pull_request: str = ""
    turn: str = ""
    began: datetime | None = None
    items: tuple[ItemView, ...] = ()

    def as_cut_off(self, status: str) -> BacklogProgress:
        """Return a copy with this status, for a backlog that was cancelled, failed or terminated before it could say so
        itself; items that never began are cancelled in it."""
        return self.model_copy(
            update={"status": status, "items": tuple(item_as_cut_off(view, status) for view in self.items)}
        )
