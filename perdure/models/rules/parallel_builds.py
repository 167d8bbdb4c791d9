"""Pure decisions about one plan built by several agents at once: its tasks, as a small backlog, and the choice among
attempts at the whole plan by their verdicts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from typing import Any

from perdure.models.backlog.request import BacklogItem
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.result import AttemptResult, ReviewStatus, TestsStatus
from perdure.models.delivery.specialists import ParentDelivery, PlannedTask, TaskResult
from perdure.models.delivery.state import DeliveryState, MessagesState, PlanningState, TurnsState
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.ids import digest
from perdure.models.limits import NAME_CHARS
from perdure.models.phases import Phase
from perdure.text import format_count, format_money, shorten


def split_into_tasks(plan: Plan) -> tuple[PlannedTask, ...]:
    """Return all tasks of the plan in its order, each with those it has to wait for; none when no two tasks could be
    built at the same time, so that one agent does as well.

    Two tasks can be when each has a role and names the files it changes, they share no file, and they do not depend on
    each other. All others follow the plan's order.
    """
    predecessors = _order_tasks(plan.tasks)
    tasks = tuple(
        PlannedTask(
            number=number,
            title=shorten(" ".join(task.title.split()), 100),
            details=_task_text(number, task),
            role=task.role or "",
            after=tuple(sorted(predecessors[number])),
        )
        for number, task in enumerate(plan.tasks, 1)
    )
    count = len(tasks)
    are_some_parallel = any(
        second not in predecessors[first] and first not in predecessors[second]
        for first in predecessors
        for second in range(first + 1, count + 1)
    )
    return tasks if are_some_parallel else ()


def tasks_backlog_id(workflow_id: str, plan: str, head: str) -> str:
    """Return the workflow id of the backlog of one plan's tasks, built on one commit: another plan has another
    backlog."""
    return f"{workflow_id}/tasks-{digest(plan, head)[:6]}"


def is_tasks_backlog(backlog: str, workflow_id: str) -> bool:
    """Return True when a backlog of that id holds the tasks of this delivery's plan, whose ids are made by
    `tasks_backlog_id`."""
    return backlog.rpartition("/")[0] == workflow_id and backlog.startswith(f"{workflow_id}/tasks-")


def parent_of_task(parent: ParentDelivery | None, item: BacklogItem) -> ParentDelivery | None:
    """Return the parent delivery with the number and title of the task that this item is; None when the backlog holds
    no plan's tasks.

    parent  the delivery whose tasks the backlog holds; None: a backlog of requests
    """
    if parent is None:
        return None
    title = item.request.partition("\n")[0].partition(": ")[2]
    return parent.model_copy(update={"task": int(item.id.partition("-")[0]), "title": title[:NAME_CHARS]})


def tasks_branch(delivery: str, backlog: str) -> str:
    """Return the branch of the vault on which a delivery's tasks land; nobody pushes it."""
    return f"{delivery}/{backlog.rpartition('/')[2]}"


def has_landed_task(tasks: Sequence[TaskResult]) -> bool:
    """Return whether any of the tasks has landed."""
    return any(task.commit for task in tasks)


def remaining_tasks_text(tasks: Sequence[TaskResult]) -> str:
    """Return the text for the agent that goes on alone: which tasks are done, and which are not and why; empty when all
    are done."""
    if all(task.commit for task in tasks):
        return ""
    lines = [
        f"{task.number}. {task.title}: " + ("done" if task.commit else f"left to do ({task.reason or 'not begun'})")
        for task in tasks
    ]
    return "\n".join(["Tasks of the plan, as they stand in the worktree:", *lines, "Do what is left."])


def tasks_summary(tasks: Sequence[TaskResult]) -> str:
    """Return one line for people that says of each task its commit, or why it has none."""
    return " · ".join(f"{task.item} {task.commit[:7] or task.reason or 'not begun'}" for task in tasks)


def _order_tasks(tasks: Sequence[Task]) -> dict[int, set[int]]:
    """Return, by task number, the numbers of all tasks that have to land before it.

    Two tasks that may not be built at the same time, and that the plan does not order, come in the plan's order; that
    makes no cycle.
    """
    predecessors: dict[int, set[int]] = {number: set() for number in range(1, len(tasks) + 1)}
    for number, task in enumerate(tasks, 1):
        for other in task.depends_on:
            _add_predecessor(predecessors, other, number)
    for second in predecessors:
        for first in range(1, second):
            is_ordered = first in predecessors[second] or second in predecessors[first]
            if not is_ordered and not _can_run_together(tasks[first - 1], tasks[second - 1]):
                _add_predecessor(predecessors, first, second)
    return predecessors


def _add_predecessor(predecessors: dict[int, set[int]], first: int, second: int) -> None:
    """Record in `predecessors`, which it changes, that task `first` and all before it come before task `second` and all
    behind that."""
    earlier = {first, *predecessors[first]}
    for number, task_predecessors in predecessors.items():
        if number == second or second in task_predecessors:
            task_predecessors |= earlier


def _can_run_together(task: Task, other: Task) -> bool:
    """Return True when two tasks have a role each, both name files, and no file of one can be a file of the other."""
    if not (task.role and other.role):
        return False
    return (
        bool(task.files)
        and bool(other.files)
        and not any(_may_overlap(path, other_path) for path in task.files for other_path in other.files)
    )


def _may_overlap(first: str, second: str) -> bool:
    """Return True when two paths are the same file, one is a folder around the other, or that cannot be told, as with
    patterns and the root."""
    first, second = (posixpath.normpath(path.strip().lstrip("/") or ".") for path in (first, second))
    if any(mark in path for path in (first, second) for mark in "*?[") or "." in (first, second):
        return True
    return first == second or first.startswith(f"{second}/") or second.startswith(f"{first}/")


def _task_text(number: int, task: Task) -> str:
    """Return a task as text for its agent: title, details and files."""
    files = f"\nFiles: {', '.join(task.files)}" if task.files else ""
    return f"Task {number}: {task.title}\n\n{task.details}{files}"


_TESTS_RANKS = {TestsStatus.GREEN: 0, TestsStatus.NONE: 1, TestsStatus.SKIPPED: 1, TestsStatus.RED: 2}
_REVIEW_RANKS = {ReviewStatus.CLEAN: 0, ReviewStatus.SKIPPED: 1, ReviewStatus.BLOCKED: 2}


def best_attempt(attempts: Iterable[AttemptResult]) -> AttemptResult | None:
    """Return the attempt to go on with, of those that made a commit; None: none of them did.

    Sound ones come first, then greener tests and a cleaner review, then the smallest change, the cheapest, the first
    begun. An unknown price counts as dearer than any. Where none is sound, it is the one that comes nearest: the
    delivery fails with it. The order in which they end decides nothing.
    """
    return min((attempt for attempt in attempts if attempt.head), key=_attempt_rank, default=None)


def _attempt_rank(attempt: AttemptResult) -> tuple[bool, int, int, int, int, bool, float, int]:
    """Return an attempt's sort key for the choice, smallest is best: soundness, tests, review, size of the change,
    price, number."""
    verdicts = _TESTS_RANKS[attempt.tests], _REVIEW_RANKS[attempt.review.status], attempt.review.blockers
    return (
        not attempt.is_sound,
        *verdicts,
        attempt.lines,
        attempt.cost_usd is None,
        attempt.cost_usd or 0.0,
        attempt.number,
    )


def attempt_workflow_id(workflow_id: str, number: int) -> str:
    """Return the workflow id of one attempt of a delivery."""
    return f"{workflow_id}/attempt-{number}"


def initial_attempt_state(state: DeliveryState, prepared: PreparedWorkspace, number: int, count: int) -> DeliveryState:
    """Return the state in which an attempt begins: plan, checkpoint and messages that the delivery had after planning.

    A message to its agent is added, which says that it is attempt `number` of `count`, and that the best one is taken.
    """
    instruction = (
        f"This is attempt {number} of {count} at this plan. Each is built by itself, and the best one is taken: go "
    )
    instruction += "the way that you find best, whatever the others do."
    return DeliveryState(
        prepared=prepared,
        planning=PlanningState(
            kind=state.planning.kind,
            title=state.planning.title,
            plan=state.planning.plan,
            plan_text=state.planning.plan_text,
            plan_count=state.planning.plan_count,
        ),
        turns=TurnsState(checkpoint=state.children.planned_checkpoint, assumptions=state.turns.assumptions),
        messages=MessagesState(
            delivered=state.messages.delivered,
            pending=(
                *(message for message in state.messages.pending),
                UserMessage(id="attempt", text=instruction),
            ),
        ),
    )


def attempt_settings(contract: Contract) -> dict[str, Any]:
    """Return the fields `attempts` and `after_red` of BuildSettings, as the contract's settings have them.

    Empty, so that the plan is built once: on an existing branch, for a task of a plan, where the phases have no build.
    """
    settings = contract.config.delivery
    if contract.existing or contract.is_task or Phase.BUILD not in settings.phases:
        return {}
    return {"attempts": settings.attempts, "after_red": settings.after_red}


def attempts_budget_reason(remaining_usd: float, attempts: int) -> str:
    """Return why so many attempts cannot begin with what is left of the budget."""
    return f"{format_money(remaining_usd)} are left, too little for {format_count(attempts, 'attempt')}"


def attempts_summary(attempts: Sequence[AttemptResult]) -> str:
    """Return one line for people: the attempt that was chosen, or when none was how each one ended."""
    chosen = next((attempt for attempt in attempts if attempt.chosen), None)
    shown = [chosen] if chosen is not None else attempts
    return f"of {len(attempts)}, " + " · ".join(attempt.summary_line for attempt in shown)
