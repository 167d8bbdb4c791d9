"""All a backlog knows of its items while it runs, and takes along into another run."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from perdure.models.backlog import BacklogItem
from perdure.models.base import Recorded
from perdure.models.decisions import Said
from perdure.models.specialists import Within
from perdure.models.window import Offset


class ItemPhase(StrEnum):
    """The stand of one item, as far as it is stored; ready, after others and blocked follow from the others' states.
    `decomposed`: others have taken its place."""

    WAITING = "waiting"
    BUILDING = "building"
    LANDED = "landed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    DECOMPOSED = "decomposed"


SATISFIED = (ItemPhase.LANDED, ItemPhase.SKIPPED, ItemPhase.DECOMPOSED)
"""Items that depend on one in any of these may begin."""


class ItemState(BaseModel):
    """All a backlog knows of one item beside what it was given.

    delivery  the workflow id of its delivery; empty: none was ever started
    run_id    of its newest chain of runs, the first of them
    runs      how many times a delivery was started for it
    commit    the commit of the integration branch that is this item
    branch, into, pull_request   in a stack: its own branch, the one its pull request is into, and its address;
              merged: it is there; orphaned: it was closed with the branch it is into; closed: by somebody
    asked     number of its newest question for the turn to land; told: of what it waits for
    waits     what its delivery waits for a person to decide, in one line; gate: what kind; since: when it began;
              about: what is to be decided, where it is short; asks: all of it (perdure.models.decisions.Asked)
    words     why it ended as it did, in one line
    usd       what its delivery has paid as far as known; granted: the most it may pay; None: its own budget
    order     when it was added, counted: of two equal items the older goes first
    added     when that was, where it was not there from the beginning
    began, ended   of its newest delivery; ended: when it was skipped or cancelled, too
    checked   when its `check` last held on what landed
    learnt    files that its plan names, as patterns: they count beside those it was given
    meets     other items it would conflict with if both landed, each with the first path
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
    asked: int = 0
    told: int = 0
    waits: str = ""
    gate: str = ""
    of: str = ""
    since: datetime | None = None
    about: str = ""
    asks: dict[str, Any] | None = None
    status: str = ""
    reason: str = ""
    words: str = ""
    usd: float = 0.0
    granted: float | None = None
    added: datetime | None = None
    began: datetime | None = None
    ended: datetime | None = None
    checked: datetime | None = None
    learnt: tuple[str, ...] = ()
    meets: dict[str, str] = {}

    @property
    def touches(self) -> tuple[str, ...]:
        """All that is known of the files it changes: given, or learnt from its plan."""
        return (*self.item.touches, *self.learnt)


class Opened(Recorded):
    """The base was found. `queue`: where the integration branch is pushed; `follows`: the branch is its own, and goes
    with its base; `offsets`: of the zone that the window names, from now on; `frees`: who waits for a person for long
    leaves its slot to others; `lists`: its search attributes are set; `notifies`: its end is told; `limited`: the
    repository's open pull requests have a limit. Switches are false where that is not so, or in histories of releases
    that did not. `within`: its items are that delivery's tasks, `branch` in its vault alone. `issues`: that are items,
    too; `proposed`: that are none, because a pull request of ours waits to be merged for them, its number by theirs.
    `page`: as in Prepared."""

    base: str
    base_sha: str
    branch: str
    queue: str
    lists: bool = False
    follows: bool = False
    offsets: tuple[Offset, ...] = ()
    frees: bool = False
    within: Within | None = None
    notifies: bool = False
    limited: bool = False
    issues: tuple[int, ...] = ()
    proposed: dict[int, int] = {}
    page: str = ""


class GoOn(Recorded):
    """In a state that was made of an ended run's, by `retry` or `skip`: that run, and the change, so that the worker
    can make it again and compare. item, note, at: as perdure.models.rules.changes.reopened takes them."""

    run_id: str
    change: Literal["retry", "skip"]
    item: str = ""
    note: str = ""
    at: datetime | None = None


class BacklogState(BaseModel):
    """All of a backlog, and all that goes with it into a new run.

    items    by id, in the order in which they were added
    opened   None: its branch is not there yet
    turn     the item that may land now, since `granted`; empty: nobody; checking: items whose checks it was given
    queue    items that asked for the turn, in the order in which they did
    head     the integration branch's newest commit that is known; moved: when it was last moved there
    held     why no further item begins, in one line; empty: one may
    looked   when the base was last looked at; asks: why the branch does not follow it, or what does not hold on it,
             for a person to decide; left: one has said that it stays where it is; failing: the landed items whose
             checks they are asked about
    pull_request   address of the one at the end
    message  in one line, how it ended
    sent     digest of the items as they were sent, by which the same backlog is known again
    said     words of a delivery to each of its tasks; extra_usd: dollars added to its budget, `added` times
    again    the ended run that it is of, as long as nobody has looked whether that is so
    """

    model_config = ConfigDict(extra="ignore")

    version: int = 1
    sent: str = ""
    items: dict[str, ItemState] = {}
    opened: Opened | None = None
    turn: str = ""
    granted: datetime | None = None
    checking: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    head: str = ""
    moved: datetime | None = None
    held: str = ""
    looked: datetime | None = None
    asks: str = ""
    left: bool = False
    failing: tuple[str, ...] = ()
    waiting: str = ""
    status: str = "running"
    message: str = ""
    pull_request: str = ""
    began: datetime | None = None
    notes: tuple[str, ...] = ()
    said: tuple[Said, ...] = ()
    extra_usd: float = 0.0
    added: int = 0
    again: GoOn | None = None

    def carried(self) -> dict[str, Any]:
        """As it goes along into another run: of a thousand items, half the bytes."""
        return self.model_dump(mode="json", exclude_defaults=True)
