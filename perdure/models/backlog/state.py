"""All a backlog knows of its items while it runs, and takes along into another run, which has to prove where it comes
from; the updates that people send to it, and how it is shown."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import HistoryModel, UserInputModel, require_number
from perdure.models.delivery.decisions import AddBudget, Answer, Approve, EditPlan, Reject, UserMessage
from perdure.models.delivery.specialists import ParentDelivery
from perdure.models.ids import digest
from perdure.models.limits import NAME_CHARS, PLACE_CHARS
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


class ItemState(BaseModel):
    """All a backlog knows of one item beside the item as it was sent.

    delivery  the workflow id of its delivery; empty: none was ever started
    run_id    the first run of the delivery's newest chain of runs
    runs      how many times a delivery was started for it
    commit    the commit of the integration branch that is this item
    branch, into, pull_request   in a stack: its own branch, the branch that its pull request is into, and its address
    merged    the pull request is merged; orphaned: it was closed with the branch it is into; closed: somebody closed it
    landing_seq      number of its newest request for the turn to land
    waiting_number   number of the newest message about what it waits for
    waiting_for      what its delivery waits for a person to decide, in one line; empty: nothing
    gate, target     the kind of that decision, and what names it; waiting_since: when it began to wait
    about            what is to be decided, where it is short
    pending_decision   all of the decision, as JSON (perdure.models.delivery.decisions.PendingDecision)
    status, reason   of its delivery's result; message: why the item ended as it did, in one line
    usd              what its delivery has paid as far as known
    granted_usd      the most its delivery may pay; None: its own budget
    order      counted when it was added: of two equal items the older goes first
    added_at   when it was added; None: it was there from the beginning
    began_at, ended_at   of its newest delivery; ended_at also: when it was skipped or cancelled
    checked_at           when its `check` commands last passed on what landed
    planned_touches      patterns of the files that its plan names: they count beside those of the item
    foreseen_conflicts   other items it would conflict with if both landed, each with the first path in conflict
    """

    model_config = ConfigDict(extra="ignore")

    item: BacklogItem
    phase: ItemPhase = ItemPhase.WAITING
    order: int = 0
    delivery: str = ""
    run_id: str = ""
    runs: int = 0
    commit: str = ""
    branch: str = ""
    into: str = ""
    pull_request: str = ""
    merged: bool = False
    orphaned: bool = False
    closed: bool = False
    landing_seq: int = 0
    waiting_number: int = 0
    waiting_for: str = ""
    gate: str = ""
    target: str = ""
    waiting_since: datetime | None = None
    about: str = ""
    pending_decision: dict[str, Any] | None = None
    status: str = ""
    reason: str = ""
    message: str = ""
    usd: float = 0.0
    granted_usd: float | None = None
    added_at: datetime | None = None
    began_at: datetime | None = None
    ended_at: datetime | None = None
    checked_at: datetime | None = None
    planned_touches: tuple[str, ...] = ()
    foreseen_conflicts: dict[str, str] = {}

    @property
    def touches(self) -> tuple[str, ...]:
        """Return all patterns of files that it is known to change: as sent, and learnt from its plan."""
        return (*self.item.touches, *self.planned_touches)


class OpenBacklogResult(HistoryModel):
    """The base that was found for a backlog, and how the backlog works.

    Switches are false where the thing is not so, or in histories of releases that did not have it.

    queue         the task queue from which the integration branch is pushed
    sets_search_attributes   its search attributes are set
    follows_base  the branch is the backlog's own, and follows its base
    offsets       UTC offsets of the zone that the window names, from now on
    frees_waiting_slots   an item that waits long for a person leaves its slot to others
    within        the backlog's items are tasks of that delivery, and `branch` is in its vault alone
    notifies      people are notified of its end
    limits_pull_requests  the repository has a limit of open pull requests
    issues        numbers of the issues that are items too
    issue_pull_requests   by number of an issue that is no item, the pull request of ours that waits to be merged for it
    page          as in Prepared
    """

    base: str
    base_sha: str
    branch: str
    queue: str
    sets_search_attributes: bool = False
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
    perdure.models.rules.changes.reopened.
    """

    run_id: str
    change: Literal["retry", "skip"]
    item: str = ""
    note: str = ""
    changed_at: datetime | None = None


class BacklogState(BaseModel):
    """All of a backlog, and all that goes with it into a new run.

    items_digest    of the items as they were sent, by which the same backlog is recognised
    items           by id, in the order in which they were added
    opened          its base and branch, once they are there; None before
    landing_item    the item that may land now; empty: none; turn_granted_at: since when
    landing_checks  items whose checks run with that landing
    landing_queue   items that asked for the turn to land, in that order
    head            the newest commit of the integration branch that is known; head_moved_at: when it last moved there
    hold_reason     why no further item begins, in one line; empty: one may
    base_checked_at   when the base was last looked at
    base_question     why the branch cannot follow its base, or which checks fail on it, for a person to decide
    stays_on_base     a person has decided that the branch stays on the base it has
    failing_items     the landed items whose checks `base_question` is about
    pull_request    address of the one at the end
    message         how the backlog ended, in one line
    task_messages   messages of a delivery to each of its tasks
    extra_usd       dollars added to the budget; budget_raises: how often
    reopened_from   the ended run whose state this is, until that has been verified
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    items_digest: str = ""
    items: dict[str, ItemState] = {}
    opened: OpenBacklogResult | None = None
    landing_item: str = ""
    turn_granted_at: datetime | None = None
    landing_checks: tuple[str, ...] = ()
    landing_queue: tuple[str, ...] = ()
    head: str = ""
    head_moved_at: datetime | None = None
    hold_reason: str = ""
    base_checked_at: datetime | None = None
    base_question: str = ""
    stays_on_base: bool = False
    failing_items: tuple[str, ...] = ()
    waiting: str = ""
    status: str = "running"
    message: str = ""
    pull_request: str = ""
    began_at: datetime | None = None
    notes: tuple[str, ...] = ()
    task_messages: tuple[UserMessage, ...] = ()
    extra_usd: float = 0.0
    budget_raises: int = 0
    reopened_from: ReopenedFrom | None = None

    @property
    def parent_delivery(self) -> ParentDelivery | None:
        """Return the delivery of whose plan the items are tasks; None: they are no tasks, or nothing is opened yet."""
        return self.opened.within if self.opened is not None else None

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


def state_digest(state: BacklogState) -> str:
    """Return the SHA-256 of a backlog's state, without what it says about where it comes from."""
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

    priority: int = Field(ge=-100, le=100)

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
    """Return the view of an item as cancelled where it never began and `status` says that its backlog was cut off.

    Otherwise return the view unchanged.
    """
    if view.phase not in ("ready", "after") or status not in _CUT_OFF_TEXTS:
        return view
    return view.model_copy(update={"phase": "cancelled", "because": f"not begun: the backlog {_CUT_OFF_TEXTS[status]}"})


class BacklogProgress(HistoryModel):
    """The answer to query `progress`, and the result of a backlog that has ended. `asks`: why its branch does not
    follow its base, for a person to decide by update `follow`; `notes`: the newest ten of what a person should know."""

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
        """Return a copy with the status of a backlog that was cancelled, failed or terminated before it could say so
        itself; items that never began are cancelled in it."""
        return self.model_copy(
            update={"status": status, "items": tuple(item_as_cut_off(view, status) for view in self.items)}
        )
