"""A plan's tasks as a small backlog: which may be built at the same time, and what each is told. Pure functions."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from perdure.models.backlog import BacklogItem
from perdure.models.ids import digest
from perdure.models.limits import NAME_CHARS
from perdure.models.plan import Plan, Task
from perdure.models.specialists import PlannedTask, TaskBuilt, Within


def split(plan: Plan) -> tuple[PlannedTask, ...]:
    """All tasks of the plan in its order, each after those it has to wait for; empty where one agent does as well: no
    two of them could be built at the same time.

    At the same time are built two tasks that have a role each, say which files they change, share none, and do not
    depend on each other. All others follow the plan's order.
    """
    after = _order(plan.tasks)
    tasks = tuple(
        PlannedTask(
            number=number,
            title=" ".join(task.title.split())[:100],
            words=_words(number, task),
            role=task.role or "",
            after=tuple(sorted(after[number])),
        )
        for number, task in enumerate(plan.tasks, 1)
    )
    count = len(tasks)
    apart = any(b not in after[a] and a not in after[b] for a in after for b in range(a + 1, count + 1))
    return tasks if apart else ()


def backlog_of(workflow_id: str, plan: str, head: str) -> str:
    """The workflow id of the tasks of one plan, built on one commit: another plan's tasks are others."""
    return f"{workflow_id}/tasks-{digest(plan, head)[:6]}"


def is_of(backlog: str, workflow_id: str) -> bool:
    """True where a backlog of that id holds the tasks of this delivery."""
    return backlog.rpartition("/")[0] == workflow_id and backlog.startswith(f"{workflow_id}/tasks-")


def of_item(within: Within | None, item: BacklogItem) -> Within | None:
    """The place of one task; None for an item that is none."""
    if within is None:
        return None
    title = item.request.partition("\n")[0].partition(": ")[2]
    return within.model_copy(update={"task": int(item.id.partition("-")[0]), "title": title[:NAME_CHARS]})


def branch_of(delivery: str, backlog: str) -> str:
    """The vault's branch on which its tasks land; nobody pushes it."""
    return f"{delivery}/{backlog.rpartition('/')[2]}"


def built(tasks: Sequence[TaskBuilt]) -> bool:
    """True where there is something of them."""
    return any(task.commit for task in tasks)


def left(tasks: Sequence[TaskBuilt]) -> str:
    """For the agent who goes on alone: the tasks that are done, those that are left and why; empty: none is left."""
    if all(task.commit for task in tasks):
        return ""
    lines = [
        f"{task.number}. {task.title}: " + ("done" if task.commit else f"left to do ({task.words or 'not begun'})")
        for task in tasks
    ]
    return "\n".join(["Tasks of the plan, as they stand in the worktree:", *lines, "Do what is left."])


def summary(tasks: Sequence[TaskBuilt]) -> str:
    """In one line: what became of each."""
    return " · ".join(f"{task.item} {task.commit[:7] or task.words or 'not begun'}" for task in tasks)


def _order(tasks: Sequence[Task]) -> dict[int, set[int]]:
    """By number, all tasks before it. Two that may not be built at the same time, and that the plan does not order,
    come in the plan's order: between two that nothing orders an arrow makes no circle."""
    before: dict[int, set[int]] = {number: set() for number in range(1, len(tasks) + 1)}
    for number, task in enumerate(tasks, 1):
        for other in task.depends_on:
            _arrow(before, other, number)
    for second in before:
        for first in range(1, second):
            ordered = first in before[second] or second in before[first]
            if not ordered and not _together(tasks[first - 1], tasks[second - 1]):
                _arrow(before, first, second)
    return before


def _arrow(before: dict[int, set[int]], first: int, second: int) -> None:
    """All that is before `first` is before `second` and all behind it."""
    sooner = {first, *before[first]}
    for number, known in before.items():
        if number == second or second in known:
            known |= sooner


def _together(one: Task, other: Task) -> bool:
    if not (one.role and other.role):
        return False
    return bool(one.files) and bool(other.files) and not any(_meet(a, b) for a in one.files for b in other.files)


def _meet(a: str, b: str) -> bool:
    """True where two paths are the same file, one is a folder around the other, or nobody can tell."""
    a, b = (posixpath.normpath(path.strip().lstrip("/") or ".") for path in (a, b))
    if any(mark in path for path in (a, b) for mark in "*?[") or "." in (a, b):
        return True
    return a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/")


def _words(number: int, task: Task) -> str:
    files = f"\nFiles: {', '.join(task.files)}" if task.files else ""
    return f"Task {number}: {task.title}\n\n{task.details}{files}"
