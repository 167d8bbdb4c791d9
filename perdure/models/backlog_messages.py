"""Messages to a backlog and its answers: the updates that people send, and how it is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, field_validator

from perdure.models.backlog import BacklogItem
from perdure.models.base import HistoryModel, UserInputModel, require_number
from perdure.models.decisions import AddBudget, Answer, Approve, EditPlan, Reject
from perdure.models.limits import NAME_CHARS, PLACE_CHARS


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
