"""Models of a plan's tasks that several agents build at the same time, each as a small delivery of its own on the same
host.

They land on a branch of the vault that nobody else sees; the delivery then takes it over, and goes on with its own
tests, review and publication. The decisions are pure: perdure.models.rules.parallel_builds.
"""

from __future__ import annotations

from pydantic import Field

from perdure.models.base import ContractHash, HistoryModel, SignalModel, UserInputModel
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.limits import INTEGER_MOST, NAME_CHARS

TASKS_AT_ONCE = 4
"""Of one delivery: a plan has a few tasks, and they share the host's processors and the key's rate limit."""


class ParentDelivery(UserInputModel):
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
    task: int = Field(default=0, ge=0, le=INTEGER_MOST)
    title: str = Field(default="", max_length=NAME_CHARS)
    kind: str = Field(default="", max_length=NAME_CHARS)
    queue: str = Field(min_length=1, max_length=NAME_CHARS)
    tokens: int = Field(default=0, ge=0, le=INTEGER_MOST)


class BudgetIncrease(SignalModel):
    """An increase of a delivery's budget while its children run. Its backlog of tasks gets it as signal `more`.

    number         counted by the delivery, so that each increase counts once
    usd, tokens    for all children together
    time_s         seconds, for each child
    """

    number: int
    usd: float = 0.0
    tokens: int = 0
    time_s: float = 0.0


class PlannedTask(HistoryModel):
    """A task of the plan as an item of the delivery's own backlog.

    number   in the plan, from 1; after: numbers of the tasks that have to land before it
    details  the whole task as text, for its agent
    """

    number: int
    title: str
    details: str
    role: str = ""
    after: tuple[int, ...] = ()

    @property
    def item_id(self) -> str:
        """Return the id of its item: number and role, `2-frontend`."""
        return f"{self.number}-{self.role or 'task'}"


class SplitPlanInput(HistoryModel):
    """Decide from the plan whether several agents build it, and if so make the `branch` on which its tasks land.

    head  the commit where the branch begins, unless it exists
    """

    delivery: str
    contract: ContractHash
    plan: str
    head: str
    branch: str


class SplitPlanResult(HistoryModel):
    """The tasks that are built by several agents, all of the plan's in its order; empty: one agent builds it."""

    tasks: tuple[PlannedTask, ...] = ()


class TaskResult(HistoryModel):
    """The outcome of one task. `commit`: what landed; empty: nothing did, and `reason` says why."""

    number: int
    item: str
    delivery: str
    title: str = ""
    commit: str = ""
    reason: str = ""


class TakeTasksInput(HistoryModel):
    """Take over what the tasks have landed: the delivery's files and branch become those of `branch`."""

    delivery: str
    contract: ContractHash
    checkpoint: str
    head: str
    branch: str
    backlog: str
    tasks: tuple[TaskResult, ...]
    attempt: int = 1


class TakeTasksResult(HistoryModel):
    """The delivery after it has taken over its tasks' work.

    head, checkpoint  where the delivery goes on
    tasks             with the commits that are there
    spend             of the delivery, its tasks' spending in it; tasks_usage: of the tasks alone
    """

    head: str
    checkpoint: str
    tasks: tuple[TaskResult, ...]
    spend: Spend = Spend.model_construct()
    tasks_usage: Usage = Usage.model_construct()
    summary: str = ""
