"""A backlog as it is sent, and all it knows of its items: the one argument of workflow type `Backlog` and its answers.

The decisions about it are pure: perdure.models.rules.scheduling. Reading a file of items: perdure.models.rules.backlog.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from perdure.models.base import Recorded, Written, a_number
from perdure.models.issue import IssueName
from perdure.models.limits import LABEL_CHARS, LABELS_MOST, NAME_CHARS, PLACE_CHARS, USD_LEAST, USD_MOST
from perdure.models.sent import a_switch, an_issue, bounded, left_out
from perdure.models.touches import TOUCHES_MOST, leaves
from perdure.models.window import Offset, Window
from perdure.text import one_line

ITEMS_MOST = 1000
"""Of one backlog: a night's work of the largest team is a tenth, and its table is read by a person."""

PARALLEL_MOST = 100
"""Deliveries of one backlog at once: more than any one forge or model account was seen to let through."""

CHECKS_MOST = 20
"""Commands of landed items in one landing, and so of one item: at some seconds each they take less than the tests of an
ordinary repository. The others' turn comes with the next landings."""

ITEM_ID = r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
"""Part of a workflow's id and of a branch, typed by people: short, and without case."""

ItemId = Annotated[str, Field(pattern=f"^{ITEM_ID}$", max_length=40)]
Text = Annotated[str, Field(min_length=1, max_length=LABEL_CHARS)]
Glob = Annotated[str, Field(min_length=1, max_length=NAME_CHARS)]
Command = Annotated[str, Field(min_length=1, max_length=PLACE_CHARS)]


class BacklogItem(Written):
    """One item: it becomes one delivery, and one commit of the integration branch.

    id          names it: lower case letters, digits and dashes; left out with an issue: `issue-14`
    request     what is wanted, in words; may be left out where an issue says it all
    issue       an open issue of the repository: 14, "#14" or its address
    priority    higher goes first among those that are ready; -100 to 100
    labels      put on its delivery
    role        its agents are told so: frontend, test, …; with the repository's `.perdure/prompts/role-<role>.md`,
                where there is one; empty: nobody's in particular
    depends_on  ids of items that have to land before it begins
    touches     files it is expected to change, as in .gitignore: src/api/**, *.md; items whose patterns meet are not
                built at the same time
    check       commands that hold once it has landed, and in every landing after it
    budget_usd  the most its delivery may spend; left out: an equal share of what the backlog has left
    """

    id: ItemId
    request: str = ""
    issue: int | str | None = None
    priority: int = Field(default=0, ge=-100, le=100)
    labels: tuple[Text, ...] = Field(default=(), max_length=LABELS_MOST)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")
    depends_on: tuple[ItemId, ...] = ()
    touches: tuple[Glob, ...] = Field(default=(), max_length=TOUCHES_MOST)
    check: tuple[Command, ...] = Field(default=(), max_length=CHECKS_MOST)
    budget_usd: float | None = Field(default=None, ge=USD_LEAST, le=USD_MOST, allow_inf_nan=False)

    _numbers = field_validator("priority", "budget_usd", mode="before")(a_number)
    _bounded = field_validator("request")(bounded)
    _issue_named = field_validator("issue", mode="before")(an_issue)

    @model_validator(mode="before")
    @classmethod
    def _named(cls, raw: Any) -> Any:
        """With an id: an issue's number is one, where the issue is known by it."""
        kept = left_out(raw)
        if isinstance(kept, dict) and "id" not in kept and "issue" in kept:
            number = 0  # of one that names no issue: that is what is told
            with suppress(ValueError):
                number = IssueName.parse(an_issue(kept["issue"])).number
            return kept | {"id": f"issue-{number}"}
        return kept

    @field_validator("touches")
    @classmethod
    def _inside(cls, touches: tuple[str, ...]) -> tuple[str, ...]:
        if words := next(filter(None, map(leaves, touches)), ""):
            raise ValueError(words)
        return touches

    @model_validator(mode="after")
    def _whole(self) -> BacklogItem:
        if self.issue is None and not self.request.strip():
            missing = "request" not in self.model_fields_set
            raise ValueError(
                f"request: {'is missing (or name an issue)' if missing else 'is empty: say what you want'}"
            )
        return self

    @property
    def caption(self) -> str:
        """The request in one short line, the issue's number before it."""
        number = f"#{IssueName.parse(self.issue).number} " if self.issue is not None else ""
        return one_line(number + self.request, 80)


class BacklogRequest(Written):
    """Many requests that shall land on one integration branch.

    repository  as for a delivery
    base        the branch it begins from and its pull request goes into; default: the target's default branch
    branch      the integration branch; default: `perdure/<backlog id>`
    land        branch: one integration branch, one pull request at the end
    parallel    deliveries at once
    budget_usd  the most all of them may spend together; left out: each has its own budget only
    window      hours in which deliveries may begin: "23:00-07:00" in UTC, "23:00-07:00 +02:00", "23:00-07:00
                Europe/Berlin"; left out: always
    overlap     wait: items whose `touches` meet are built one after the other; build: at the same time
    gates, questions, labels, model, config, source, proof   as in a delivery's request, for each of them
    """

    repository: str = Field(min_length=1, max_length=PLACE_CHARS)
    items: tuple[BacklogItem, ...] = Field(min_length=1, max_length=ITEMS_MOST)
    base: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    branch: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    land: Literal["branch"] = "branch"
    parallel: int = Field(default=4, ge=1, le=PARALLEL_MOST)
    budget_usd: float | None = Field(default=None, ge=USD_LEAST, le=USD_MOST, allow_inf_nan=False)
    window: str | None = None
    overlap: Literal["wait", "build"] = "wait"
    gates: tuple[Literal["plan", "pull_request"], ...] = ()
    questions: bool | None = None
    labels: tuple[Text, ...] = Field(default=(), max_length=LABELS_MOST)
    model: str | None = Field(default=None, min_length=1, max_length=NAME_CHARS)
    config: str | None = None
    source: str | None = Field(default=None, max_length=PLACE_CHARS)
    proof: str | None = Field(default=None, max_length=NAME_CHARS)
    version: int = Field(default=1, ge=1, le=1)

    _left_out = model_validator(mode="before")(left_out)
    _numbers = field_validator("parallel", "budget_usd", "version", mode="before")(a_number)
    _switch = field_validator("questions", mode="before")(a_switch)
    _small = field_validator("config")(bounded)

    @field_validator("land", mode="before")
    @classmethod
    def _built(cls, land: Any) -> Any:
        if land == "stack":
            raise ValueError("stack is not built yet: leave it out, or write branch")
        return land

    @field_validator("window")
    @classmethod
    def _hours(cls, window: str | None) -> str | None:
        if window is not None:
            Window.parse(window)
        return window


class LandingPlace(Written):
    """In a delivery's request: the backlog that it lands for. `backlog`: its workflow id; `branch`: the integration
    branch; `role`: the item's, its agents are told."""

    backlog: str = Field(min_length=1, max_length=PLACE_CHARS)
    item: str = Field(min_length=1, max_length=NAME_CHARS)
    branch: str = Field(min_length=1, max_length=NAME_CHARS)
    role: str = Field(default="", pattern=f"^({ITEM_ID})?$")


class ItemPhase(StrEnum):
    """The stand of one item, as far as it is stored; ready, after others and blocked follow from the others' states."""

    WAITING = "waiting"
    BUILDING = "building"
    LANDED = "landed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


ENDED = (ItemPhase.LANDED, ItemPhase.FAILED, ItemPhase.SKIPPED, ItemPhase.CANCELLED)
"""An item in one of these has no delivery that runs."""

SATISFIED = (ItemPhase.LANDED, ItemPhase.SKIPPED)
"""Items that depend on one in any of these may begin."""


class ItemState(BaseModel):
    """All a backlog knows of one item beside what it was given.

    delivery  the workflow id of its delivery; empty: none was ever started
    run_id    of its newest chain of runs, the first of them
    runs      how many times a delivery was started for it
    commit    the commit of the integration branch that is this item
    asked     number of its newest question for the turn to land; told: of what it waits for
    waits     what its delivery waits for a person to decide, in one line; gate: what kind; since: when it began
    words     why it ended as it did, in one line
    usd       what its delivery has paid as far as known; granted: the most it may pay; None: its own budget
    order     when it was added, counted: of two equal items the older goes first
    added     when that was, where it was not there from the beginning
    began, ended   of its newest delivery; ended: when it was skipped or cancelled, too
    checked   when its `check` was last given to an item that landed
    """

    model_config = ConfigDict(extra="ignore")

    item: BacklogItem
    phase: ItemPhase = ItemPhase.WAITING
    order: int = 0
    delivery: str = ""
    run_id: str = ""
    runs: int = 0
    commit: str = ""
    asked: int = 0
    told: int = 0
    waits: str = ""
    gate: str = ""
    of: str = ""
    since: datetime | None = None
    status: str = ""
    reason: str = ""
    words: str = ""
    usd: float = 0.0
    granted: float | None = None
    added: datetime | None = None
    began: datetime | None = None
    ended: datetime | None = None
    checked: datetime | None = None


class Opened(Recorded):
    """The base was found. `queue`: where the integration branch is pushed; `attributes`: the server knows Perdure's
    search attributes; `offsets`: of the zone that the window names, from now on."""

    base: str
    base_sha: str
    branch: str
    queue: str
    attributes: bool = False
    offsets: tuple[Offset, ...] = ()


class BacklogState(BaseModel):
    """All of a backlog, and all that goes with it into a new run.

    items    by id, in the order in which they were added
    opened   None: its branch is not there yet
    turn     the item that may land now, since `granted`; empty: nobody
    queue    items that asked for the turn, in the order in which they did
    head     the integration branch's newest commit that is known
    held     why no further item begins, in one line; empty: one may
    pull_request   address of the one at the end
    message  in one line, how it ended
    sent     digest of the items as they were sent, by which the same backlog is known again
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    sent: str = ""
    items: dict[str, ItemState] = {}
    opened: Opened | None = None
    turn: str = ""
    granted: datetime | None = None
    queue: tuple[str, ...] = ()
    head: str = ""
    held: str = ""
    waiting: str = ""
    status: str = "running"
    message: str = ""
    pull_request: str = ""
    began: datetime | None = None
    notes: tuple[str, ...] = ()
