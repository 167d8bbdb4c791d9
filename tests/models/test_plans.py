"""A plan's tasks: for whom each is, and what must be done before it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from perdure.models.delivery.steps import Plan


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
