"""A plan's tasks: for whom each is, in an order that the plan allows."""

from __future__ import annotations

import hashlib
import json
from graphlib import TopologicalSorter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.adapters.agents.builtin.model_request import closed_schema
from perdure.models.delivery.specialists import PlannedTask, TaskResult
from perdure.models.delivery.steps import Plan
from perdure.models.rules.parallel_builds import (
    has_landed_task,
    is_tasks_backlog,
    remaining_tasks_text,
    split_into_tasks,
    tasks_backlog_id,
    tasks_summary,
)


def plan(*depends_on: list[int], **more: Any) -> Plan:
    tasks = [{"title": "t", "details": "d", "files": [], "depends_on": others} | more for others in depends_on]
    return Plan.model_validate(
        {"title": "t", "problem": "", "solution": "s", "relevant_files": [], "tasks": tasks, "validation": []}
    )


def test_a_task_says_its_role_and_what_it_waits_for() -> None:
    alone, both = plan([], [1], role="backend").tasks
    assert (alone.title_suffix, both.title_suffix) == (" [backend]", " [backend, after 1]")
    assert [task.title_suffix for task in plan([], [1]).tasks] == ["", " [after 1]"]
    with pytest.raises(ValidationError, match="lower case letters"):
        plan([], role="A Wizard")


@pytest.mark.parametrize(
    ("depends_on", "words"),
    [
        (([2],), "task 1 depends on task 2, and there are 1"),
        (([0],), "task 1 depends on task 0"),
        (([1],), "tasks wait for each other: 1 after 1"),
        (([], [3], [2]), "tasks wait for each other: "),
    ],
)
def test_tasks_that_could_never_begin_are_refused_with_their_numbers(depends_on: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        plan(*depends_on)


def a_plan(*tasks: dict[str, object]) -> Plan:
    whole = [{"title": f"t{number}", "details": "d", "files": [], **task} for number, task in enumerate(tasks, 1)]
    words = {"title": "T", "problem": "p", "solution": "s", "relevant_files": [], "validation": []}
    return Plan.model_validate({**words, "tasks": whole})


BACKEND, DOCS = {"role": "backend", "files": ["a.py"]}, {"role": "docs", "files": ["README.md"]}
TEST = {"role": "test", "files": ["tests/test_a.py"], "depends_on": [1]}


def order(*tasks: dict[str, object]) -> dict[int, tuple[int, ...]]:
    return {task.number: task.after for task in split_into_tasks(a_plan(*tasks))}


def test_tasks_with_roles_and_files_of_their_own_are_for_several() -> None:
    assert order(BACKEND, DOCS, TEST) == {1: (), 2: (), 3: (1,)}
    assert [task.item_id for task in split_into_tasks(a_plan(BACKEND, DOCS, TEST))] == ["1-backend", "2-docs", "3-test"]
    assert "Task 3: t3\n\nd\nFiles: tests/test_a.py" in [
        task.details for task in split_into_tasks(a_plan(BACKEND, DOCS, TEST))
    ]


@pytest.mark.parametrize(
    "tasks",
    [
        (BACKEND,),
        ({"files": ["a.py"]}, {"files": ["b.py"]}),
        (BACKEND, {**DOCS, "files": ["a.py"]}),
        (BACKEND, {**DOCS, "files": []}),
        (BACKEND, {**DOCS, "files": ["*.md"]}),
        ({**BACKEND, "files": ["src"]}, {**DOCS, "files": ["./src//notes.md"]}),
        (BACKEND, {**DOCS, "depends_on": [1]}, {**TEST, "depends_on": [2]}),
    ],
    ids=["one", "no roles", "one file", "no files", "a pattern", "a folder around it", "a chain"],
)
def test_what_nobody_could_build_at_the_same_time_is_for_one_agent(tasks: tuple[dict[str, object], ...]) -> None:
    assert split_into_tasks(a_plan(*tasks)) == ()


def test_a_task_without_a_role_comes_in_the_plans_order_beside_nobody() -> None:
    assert order(BACKEND, DOCS, {"files": ["c.py"]}, {**BACKEND, "files": ["d.py"]}) == {
        1: (),
        2: (),
        3: (1, 2),
        4: (1, 2, 3),
    }


ROLES = st.sampled_from([None, "backend", "frontend", "test", "docs"])
FILES = st.lists(st.sampled_from(["a.py", "b.py", "c.md", "src", "src/d.py", "e/**"]), max_size=3)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    count = draw(st.integers(1, 8))
    rank = draw(st.permutations(range(1, count + 1)))  # dependencies may name tasks that come later in the plan
    tasks = []
    for number in range(1, count + 1):
        sooner = [other for other in rank if rank.index(other) < rank.index(number)]
        wanted = draw(st.lists(st.sampled_from(sooner), max_size=2)) if sooner else []
        tasks.append({"role": draw(ROLES), "files": draw(FILES), "depends_on": wanted})
    return a_plan(*tasks)


@given(plans())
def test_every_task_comes_once_after_what_it_depends_on_and_beside_others_files_only(whole: Plan) -> None:
    tasks: tuple[PlannedTask, ...] = split_into_tasks(whole)
    if not tasks:
        return
    assert [task.number for task in tasks] == list(range(1, len(whole.tasks) + 1))
    assert len({task.item_id for task in tasks}) == len(tasks)
    after = {task.number: set(task.after) for task in tasks}
    TopologicalSorter(after).prepare()  # no circle
    beside = 0
    for number, task in enumerate(whole.tasks, 1):
        assert set(task.depends_on) <= after[number]
        for other in range(1, number):
            if other in after[number] or number in after[other]:
                continue
            beside += 1
            mate = whole.tasks[other - 1]
            assert all([task.role, mate.role, task.files, mate.files])
            assert not {*task.files} & {*mate.files}
            assert not any("*" in path for path in (*task.files, *mate.files))
    assert beside


def test_who_goes_on_alone_is_told_what_is_done_and_why_the_rest_is_not() -> None:
    done = TaskResult(number=1, item="1-backend", delivery="d/1", title="Add it", commit="9c1d2ab77")
    failed = TaskResult(number=2, item="2-docs", delivery="d/2", title="Describe it", reason="the model refused")
    assert "1. Add it: done" in remaining_tasks_text((done, failed))
    assert "2. Describe it: left to do (the model refused)" in remaining_tasks_text((done, failed))
    assert remaining_tasks_text((done,)) == ""
    assert tasks_summary((done, failed)) == "1-backend 9c1d2ab · 2-docs the model refused"
    assert (has_landed_task((done, failed)), has_landed_task((failed,)), has_landed_task(())) == (True, False, False)


def test_tasks_of_another_plan_or_commit_are_others() -> None:
    ids = {tasks_backlog_id("d", plan, head) for plan in ("p", "q") for head in ("a", "b")}
    assert len(ids) == 4
    assert all(is_tasks_backlog(id, "d") for id in ids)
    assert not is_tasks_backlog("d/other", "d")
    assert not is_tasks_backlog("e/tasks-123456", "d")


def test_a_plan_is_asked_for_in_the_same_bytes_as_before_where_one_agent_builds() -> None:
    """The schema is part of what a model's cache is found by."""
    asked = hashlib.sha256(json.dumps(closed_schema(Plan)).encode()).hexdigest()
    assert asked == "2921829e2b118c3b69d59f2c3a59be5d700d5e081863ce9cf48e0e95ac85290d"
