"""The tasks of a delivery's plan, built by several agents at once: as a small backlog, a child workflow, whose items
land on a branch in this delivery's vault.

The delivery waits for it to end and takes over the commits that landed. A task that fails costs nothing but itself: one
agent goes on with what is left.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.exceptions import ChildWorkflowError

from perdure.models.backlog.request import BacklogItem
from perdure.models.backlog.state import BacklogProgress, BacklogState, ItemChild, ItemState, OpenBacklogResult
from perdure.models.delivery import fold
from perdure.models.delivery.result import Reason
from perdure.models.delivery.specialists import (
    TASKS_AT_ONCE,
    ParentDelivery,
    PlannedTask,
    SplitPlanInput,
    SplitPlanResult,
    TakeTasksInput,
    TakeTasksResult,
    TaskResult,
)
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.limits import USD_LEAST
from perdure.models.rules.allowance import budget_usd, paid_usd, used_tokens
from perdure.models.rules.parallel_builds import has_landed_task, remaining_tasks_text, tasks_backlog_id, tasks_branch
from perdure.models.webui.captions import backlog_title
from perdure.text import shell_word, shorten
from workflows.children import Children, Relay
from workflows.endings import not_delivered
from workflows.signals import title_attribute
from workflows.step_runner import StepRunner


class PlanTasks:
    """The tasks of one delivery's plan."""

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner

    @property
    def _prepared(self) -> PreparedWorkspace:
        assert self._runner.state.prepared is not None
        return self._runner.state.prepared

    @property
    def has_commits(self) -> bool:
        """Return True when a task has made a commit that was taken over."""
        return has_landed_task(self._runner.state.children.tasks)

    async def build_tasks(self) -> dict[str, str] | None:
        """Build the plan's tasks by several agents, when some can be built at the same time, and take over their
        commits. Tasks that were built before are not built again.

        Returns the materials for the one agent that builds the rest: under `tasks` the list of what is left; an empty
        dict when the whole plan is for one agent; None when nothing is left to build. Raises DeliveryStopped when the
        tasks failed or were ended.
        """
        state, prepared = self._runner.state, self._prepared
        if not prepared.building.specialists:
            return {}
        if not state.children.tasks:
            id = tasks_backlog_id(workflow.info().workflow_id, state.planning.plan, prepared.head)
            if not (tasks := await self._split_plan(id)):
                return {}
            await self._take_over_commits(id, tasks, await self._run_tasks(id, tasks))
        remaining = remaining_tasks_text(state.children.tasks)
        return {"tasks": remaining} if remaining else None

    async def _run_tasks(self, id: str, tasks: tuple[PlannedTask, ...]) -> BacklogProgress:
        """Start the backlog of tasks, wait for its end, and return how all tasks ended. The delivery is shown as
        waiting meanwhile, and the time does not count against its time limit. Raises DeliveryStopped when the backlog
        failed or was ended."""
        runner, since = self._runner, workflow.now()
        runner.state.children.ids = tuple(f"{id}/{task.item_id}" for task in tasks)
        runner.state.waiting = f"for its tasks, built at the same time: perdure backlog status {shell_word(id)}"
        runner.refresh_details()
        try:
            progress = await self._build_in_backlog(id, tasks)
        finally:
            runner.state.waiting = ""
        runner.gates.exclude_time(workflow.now() - since)
        return progress

    async def _split_plan(self, id: str) -> tuple[PlannedTask, ...]:
        """Split the plan into tasks that may be built at the same time, by activity `split_plan`. Empty when there is
        no plan, too little money is left for two tasks, or the plan is for one agent."""
        state, prepared = self._runner.state, self._prepared
        if not state.planning.plan or self._remaining_usd < 2 * USD_LEAST:
            return ()
        work = SplitPlanInput(
            delivery=self._runner.delivery,
            contract=prepared.contract,
            plan=state.planning.plan,
            head=prepared.head,
            branch=tasks_branch(self._runner.delivery, id),
        )
        return (
            await self._runner.run_unrecorded(
                "split_plan", work, SplitPlanResult, "tasks that may be built at the same time"
            )
        ).tasks

    @property
    def _remaining_usd(self) -> float:
        """Return the dollars that the delivery may still spend."""
        return round(budget_usd(self._runner.state, self._prepared) - paid_usd(self._runner.state), 6)

    async def _build_in_backlog(self, id: str, tasks: tuple[PlannedTask, ...]) -> BacklogProgress:
        """Run the child backlog of the tasks, send it what people send the delivery meanwhile, and return how all tasks
        ended.

        Raises DeliveryStopped when the backlog failed or was ended; CancelledError, once the child has ended, when this
        delivery was cancelled.
        """
        request = self._runner.request
        request_fields = {
            "repository": request.repository,
            "parallel": TASKS_AT_ONCE,
            "budget_usd": self._remaining_usd,
            "labels": list(request.labels),
            "questions": request.questions,
        }
        children = Children[str]()
        relay = Relay(
            self._runner.state, children, lambda message: ("said", message), lambda increase, _: ("more", increase)
        )
        child = await children.start(
            id,
            "Backlog",
            [request_fields, self._initial_state(id, tasks)],
            id=id,
            summary=f"{len(tasks)} tasks of the plan",
            title=title_attribute(
                backlog_title([task.item_id for task in tasks]), self._prepared.visibility.extra_attributes
            ),
            result_type=BacklogProgress,
        )
        await relay.relay_until_ended()
        try:
            return BacklogProgress.model_validate(await child)
        except ChildWorkflowError as error:
            reason = str(getattr(error.cause, "message", "") or error)
            raise not_delivered(Reason.LIMITS, f"its tasks were ended: {reason}; retry goes on with them") from error

    def _initial_state(self, id: str, tasks: tuple[PlannedTask, ...]) -> BacklogState:
        """Return the state that the backlog of tasks begins with: its branch exists, each task is an item, and the
        tokens that are left are shared equally, when tokens are limited.

        When the delivery is retried, tasks that ended without landing go on from where they ended.
        """
        runner, state, prepared = self._runner, self._runner.state, self._prepared
        tokens = prepared.limits.budget_tokens + state.budget.extra_tokens if prepared.limits.budget_tokens else 0
        share = (
            max((tokens - used_tokens(state.spending.usage, state.spending.spend)) // len(tasks), 1) if tokens else 0
        )
        within = ParentDelivery(
            delivery=runner.delivery,
            terms=prepared.contract,
            plan=state.planning.plan,
            kind=state.planning.kind,
            queue=prepared.queue,
            tokens=share,
        )
        opened = OpenBacklogResult(
            base=prepared.base_commit.branch,
            base_sha=prepared.head,
            branch=tasks_branch(self._runner.delivery, id),
            queue=prepared.queue,
            frees_waiting_slots=True,
            within=within,
            extra_attributes=prepared.visibility.extra_attributes,
        )
        names = {task.number: task.item_id for task in tasks}
        runs = int(runner.request.resume is not None)
        items = {
            task.item_id: ItemState(
                item=BacklogItem(
                    id=task.item_id,
                    request=task.details,
                    role=task.role,
                    depends_on=tuple(names[number] for number in task.after),
                ),
                order=task.number,
                child=ItemChild(runs=runs),
            )
            for task in tasks
        }
        return BacklogState(items=items, opened=opened, began_at=workflow.now())

    async def _take_over_commits(self, id: str, tasks: tuple[PlannedTask, ...], progress: BacklogProgress) -> None:
        """Make the commits of the tasks this delivery's own, by activity `take_tasks`, and record them, with their cost
        and the reason of each task that did not land, in the state."""
        state = self._runner.state
        reasons = {item.id: shorten(item.because or item.phase, 200) for item in progress.items}
        work = TakeTasksInput(
            delivery=self._runner.delivery,
            contract=self._prepared.contract,
            checkpoint=state.turns.checkpoint,
            head=self._prepared.head,
            branch=tasks_branch(self._runner.delivery, id),
            backlog=id,
            tasks=tuple(
                TaskResult(
                    number=task.number,
                    item=task.item_id,
                    delivery=f"{id}/{task.item_id}",
                    title=task.title,
                    reason=reasons.get(task.item_id, ""),
                )
                for task in tasks
            ),
        )
        fold.apply_tasks(state, await self._runner.run_step("take_tasks", work, TakeTasksResult))
