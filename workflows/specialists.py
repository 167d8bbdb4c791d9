"""A plan's tasks built by several agents at once, as a small backlog whose deliveries land in this delivery's vault.

It is begun as a child, heard until it ends, and what it landed is taken over. A task that fails costs nothing but
itself: one agent goes on with what is left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from perdure.models import fold
from perdure.models.backlog import BacklogItem
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.backlog_state import BacklogState, ItemState, Opened
from perdure.models.limits import TASK_QUEUE, USD_LEAST, WORKFLOW_TASK
from perdure.models.result import Reason
from perdure.models.rules.allowance import budget_usd, paid, used_tokens
from perdure.models.rules.specialists import backlog_of, branch_of, built, left
from perdure.models.specialists import (
    TASKS_AT_ONCE,
    MoreForTasks,
    PlannedTask,
    Split,
    SplitInput,
    TakeInput,
    Taken,
    TaskBuilt,
    Within,
)
from perdure.models.state import DeliveryState
from perdure.models.work import Prepared
from workflows.endings import not_delivered
from workflows.stage import Stage
from workflows.telling import tell

THERE_STILL = timedelta(minutes=1)
"""Between looks for the end of the same tasks, which a run before a rewind began: then they are adopted."""


@dataclass
class Told:
    """All that those were told so far who build beside a delivery: of a hold, of words by their ids, of what was added
    to the budget."""

    extra: tuple[float, int, float]
    held: str = ""
    said: set[str] = field(default_factory=set)

    def is_stale(self, state: DeliveryState) -> bool:
        new = any(said.id not in self.said for said in state.said)
        return new or (state.held, extra(state)) != (self.held, self.extra)


def extra(state: DeliveryState) -> tuple[float, int, float]:
    return state.extra_usd, state.extra_tokens, state.extra_time_s


class Specialists:
    """One delivery's tasks."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    @property
    def _prepared(self) -> Prepared:
        assert self._stage.state.prepared is not None
        return self._stage.state.prepared

    @property
    def built(self) -> bool:
        """There is a commit of a task."""
        return built(self._stage.state.tasks)

    async def build(self) -> dict[str, str] | None:
        """Have the plan's tasks built, where several can be at the same time. Returns what the one agent is told who
        builds the rest, nothing more than usual where that is all of it; None: nothing is left."""
        state, prepared = self._stage.state, self._prepared
        if not prepared.specialists:
            return {}
        if not state.tasks:
            id = backlog_of(workflow.info().workflow_id, state.plan, prepared.head)
            if not (tasks := await self._split(id)):
                return {}
            await self._take(id, tasks, await self._built(id, tasks))
        words = left(state.tasks)
        return {"tasks": words} if words else None

    async def _built(self, id: str, tasks: tuple[PlannedTask, ...]) -> BacklogProgress:
        """All tasks, built or not. The delivery runs meanwhile, as whoever lists it sees; its own time stands still."""
        stage, since = self._stage, workflow.now()
        stage.state.begun = tuple(f"{id}/{task.item}" for task in tasks)
        stage.state.waiting = f"for its tasks, built at the same time: perdure backlog status {id}"
        stage.refresh()
        try:
            ended = await self._ended(await self._begun(id, tasks))
        except (Exception, asyncio.CancelledError):
            stage.state.waiting = ""
            raise
        stage.state.waiting = ""
        stage.people.give_back(workflow.now() - since)
        return ended

    async def _split(self, id: str) -> tuple[PlannedTask, ...]:
        """None where the plan is for one agent, or the money is."""
        state, prepared = self._stage.state, self._prepared
        if not state.plan or self._left_usd < 2 * USD_LEAST:
            return ()
        work = SplitInput(
            delivery=self._stage.delivery,
            contract=prepared.contract,
            plan=state.plan,
            head=prepared.head,
            branch=branch_of(self._stage.delivery, id),
        )
        return (await self._stage.aside("split_plan", work, Split, "tasks that may be built at the same time")).tasks

    @property
    def _left_usd(self) -> float:
        return round(budget_usd(self._stage.state, self._prepared) - paid(self._stage.state), 6)

    async def _begun(self, id: str, tasks: tuple[PlannedTask, ...]) -> ChildWorkflowHandle[Any, Any]:
        """Their backlog. One that a run before this one began goes on until its end: nothing is built twice."""
        request = self._stage.request
        asked = {"repository": request.repository, "parallel": TASKS_AT_ONCE, "budget_usd": self._left_usd}
        asked |= {"labels": list(request.labels), "questions": request.questions}
        while True:
            try:
                return await workflow.start_child_workflow(
                    "Backlog",
                    args=[asked, self._begins(id, tasks)],
                    id=id,
                    task_queue=TASK_QUEUE,
                    task_timeout=WORKFLOW_TASK,
                    parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    result_type=BacklogProgress,
                    static_summary=f"{len(tasks)} tasks of the plan",
                )
            except WorkflowAlreadyStartedError:
                await workflow.sleep(THERE_STILL, summary="the same tasks, begun before, are not over yet")

    def _begins(self, id: str, tasks: tuple[PlannedTask, ...]) -> BacklogState:
        """The backlog as it begins: its branch is there, and each task is an item. A delivery that is retried goes on
        with those of its tasks that ended without landing."""
        stage, state, prepared = self._stage, self._stage.state, self._prepared
        tokens = prepared.budget_tokens + state.extra_tokens if prepared.budget_tokens else 0
        share = max((tokens - used_tokens(state.usage, state.spend)) // len(tasks), 1) if tokens else 0
        within = Within(
            delivery=stage.delivery,
            terms=prepared.contract,
            plan=state.plan,
            kind=state.kind,
            queue=prepared.queue,
            tokens=share,
        )
        opened = Opened(
            base=prepared.base,
            base_sha=prepared.head,
            branch=branch_of(self._stage.delivery, id),
            queue=prepared.queue,
            frees=True,
            within=within,
        )
        names = {task.number: task.item for task in tasks}
        begun = int(stage.request.resume is not None)
        items = {
            task.item: ItemState(
                item=BacklogItem(
                    id=task.item,
                    request=task.words,
                    role=task.role,
                    depends_on=tuple(names[number] for number in task.after),
                ),
                order=task.number,
                runs=begun,
            )
            for task in tasks
        }
        return BacklogState(items=items, opened=opened, began=workflow.now())

    async def _ended(self, child: ChildWorkflowHandle[Any, Any]) -> BacklogProgress:
        """The end of all tasks. Holding the delivery holds them, and cancelling it cancels them."""
        try:
            await self._heard(child)
        except asyncio.CancelledError:
            child.cancel()
            with suppress(ChildWorkflowError, asyncio.CancelledError):
                await child
            raise
        try:
            return BacklogProgress.model_validate(await child)
        except ChildWorkflowError as error:
            words = str(getattr(error.cause, "message", "") or error)
            raise not_delivered(Reason.LIMITS, f"its tasks were ended: {words}; retry goes on with them") from error

    async def _heard(self, child: ChildWorkflowHandle[Any, Any]) -> None:
        """Hear the child until it ends. A person's words for the delivery, and added budget, are for its tasks, too."""
        told = Told(extra(self._stage.state))
        while True:
            await workflow.wait_condition(lambda: child.done() or told.is_stale(self._stage.state))
            if child.done():
                return
            await self._tell(child, told)

    async def _tell(self, child: ChildWorkflowHandle[Any, Any], told: Told) -> None:
        state = self._stage.state
        if state.held != told.held:
            told.held = state.held
            note = told.held.removeprefix("held").removeprefix(": ").strip()
            await tell(child, *(("hold", {"note": note}) if told.held else ("resume", {})))
            return
        words, before = [said for said in state.said if said.id not in told.said], told.extra
        told.said |= {said.id for said in words}
        told.extra = extra(state)
        if not workflow.patched("tasks-are-told"):
            return
        for said in words:
            await tell(child, "said", said)
        if told.extra != before:
            usd, tokens, time_s = (now - then for now, then in zip(told.extra, before, strict=True))
            state.added += 1
            more = MoreForTasks(number=state.added, usd=round(usd, 6), tokens=int(tokens), time_s=time_s)
            await tell(child, "more", more)

    async def _take(self, id: str, tasks: tuple[PlannedTask, ...], ended: BacklogProgress) -> None:
        """Their commits are this delivery's from here on."""
        state = self._stage.state
        why = {item.id: (item.because or item.phase)[:200] for item in ended.items}
        work = TakeInput(
            delivery=self._stage.delivery,
            contract=self._prepared.contract,
            checkpoint=state.checkpoint,
            head=self._prepared.head,
            branch=branch_of(self._stage.delivery, id),
            backlog=id,
            tasks=tuple(
                TaskBuilt(
                    number=task.number,
                    item=task.item,
                    delivery=f"{id}/{task.item}",
                    title=task.title,
                    words=why.get(task.item, ""),
                )
                for task in tasks
            ),
        )
        fold.tasks_taken(state, await self._stage.once("take_tasks", work, Taken))
