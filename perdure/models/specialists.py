"""Specialists: a plan's tasks that are built at the same time, each as a small delivery of its own on the same host.

They land on a branch of the vault that nobody else sees; the delivery takes it over, and goes on with its own tests,
review and publication. The decisions are pure: perdure.models.rules.specialists.
"""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import ContractHash, Recorded, Written
from perdure.models.ledger import Spend, Usage
from perdure.models.limits import NAME_CHARS

TASKS_AT_ONCE = 4
"""Of one delivery: a plan has a few tasks, and they share the host's processors and the key's rate."""


class Within(Written):
    """In the landing place of a task: the delivery whose plan it is of, which alone begins it.

    delivery  its key; terms: artifact of its Contract, whose copy the task runs under
    plan      artifact of the whole plan; task: its number there, from 1; title: its title
    kind      of the request, for the commit
    queue     of the host that has its vault
    tokens    the most the task may use; 0: no limit
    """

    delivery: str = Field(min_length=1, max_length=NAME_CHARS)
    terms: str = Field(min_length=1, max_length=NAME_CHARS)
    plan: str = Field(min_length=1, max_length=NAME_CHARS)
    task: int = Field(default=0, ge=0)
    title: str = Field(default="", max_length=NAME_CHARS)
    kind: str = Field(default="", max_length=NAME_CHARS)
    queue: str = Field(min_length=1, max_length=NAME_CHARS)
    tokens: int = Field(default=0, ge=0)


class MoreForTasks(Recorded):
    """Signal `more`, delivery to the backlog of its tasks: so much was added to its budget. `number`: counted by the
    delivery; tokens and seconds as dollars are: of all tasks together, but each has all of the time."""

    number: int
    usd: float = 0.0
    tokens: int = 0
    time_s: float = 0.0


class PlannedTask(Recorded):
    """A task of the plan as an item. `words`: all of it, for its agent; after: numbers of those that land before it."""

    number: int
    title: str
    words: str
    role: str = ""
    after: tuple[int, ...] = ()

    @property
    def item(self) -> str:
        return f"{self.number}-{self.role or 'task'}"


class SplitInput(Recorded):
    """Read the plan and see whether it is for several; where it is, make the `branch` on which its tasks land, at
    `head`, unless it is there."""

    delivery: str
    contract: ContractHash
    plan: str
    head: str
    branch: str


class Split(Recorded):
    """`tasks`: all of the plan's, in its order; empty: it is for one agent."""

    tasks: tuple[PlannedTask, ...] = ()


class TaskBuilt(Recorded):
    """The fate of one task. `commit`: what landed; empty: nothing did, and `words` say why."""

    number: int
    item: str
    delivery: str
    title: str = ""
    commit: str = ""
    words: str = ""


class TakeInput(Recorded):
    """Take over what the tasks have landed: the delivery's files and branch become those of `branch`."""

    delivery: str
    contract: ContractHash
    checkpoint: str
    head: str
    branch: str
    backlog: str
    tasks: tuple[TaskBuilt, ...]
    attempt: int = 1


class Taken(Recorded):
    """`head` and `checkpoint`: where the delivery goes on; tasks: with the commits that are there; spend: of the
    delivery, its tasks' in it; tasks_usage: of the tasks alone."""

    head: str
    checkpoint: str
    tasks: tuple[TaskBuilt, ...]
    spend: Spend = Spend()
    tasks_usage: Usage = Usage()
    summary: str = ""
