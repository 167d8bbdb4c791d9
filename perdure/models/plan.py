"""A plan: the answer of the plan step, its tasks, and the roles they are for."""

from __future__ import annotations

import re
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import Field, field_validator

from perdure.models.base import Written


class Role(StrEnum):
    """The kind of engineer a task is for."""

    BACKEND = "backend"
    FRONTEND = "frontend"
    TEST = "test"


ROLE = r"[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?"


class Task(Written):
    title: str
    details: str
    files: list[str] = Field(description="paths that will probably change")
    role: str | None = Field(default=None, description="who it is for; null where everybody could do it as well")
    depends_on: list[int] = Field(default=[], description="numbers of the tasks, from 1, that must be done before it")

    @field_validator("role", mode="plain", json_schema_input_type=Role | None)
    @classmethod
    def _of_some_kind(cls, role: Any) -> str | None:
        """Specialists have more roles than an agent is asked for otherwise."""
        if role is None or (isinstance(role, str) and re.fullmatch(ROLE, role)):
            return None if role is None else str(role)
        raise ValueError("a role is lower case letters, digits and dashes, at most 30")

    @property
    def terms(self) -> str:
        """Role and dependencies as they stand behind its title, ` [backend, after 1]`; empty without either."""
        parts = [self.role] if self.role else []
        parts += [f"after {', '.join(map(str, self.depends_on))}"] if self.depends_on else []
        return f" [{', '.join(parts)}]" if parts else ""


class Plan(Written):
    """The answer of the plan step: fixed sections, kept as an artifact and shown in the pull request."""

    title: str = Field(
        description="imperative, at most 60 characters, no prefix; becomes commit and pull request title"
    )
    problem: str
    solution: str
    relevant_files: list[str]
    tasks: list[Task]
    validation: list[str] = Field(description="how a person can check the result, one item each")

    def words(self, most: int) -> str:
        """Problem, solution, tasks and checks as plain lines, at most so many bytes."""
        tasks = [
            f"{number}. {task.title}{task.terms}" + (f" ({', '.join(task.files)})" if task.files else "")
            for number, task in enumerate(self.tasks, 1)
        ]
        lines = [self.problem, self.solution, *tasks, *(f"check: {check}" for check in self.validation)]
        text = "\n".join(line.strip() for line in "\n".join(lines).splitlines() if line.strip())
        kept = text.encode()[:most].decode(errors="ignore")
        return kept if kept == text else kept + "…"

    @field_validator("tasks")
    @classmethod
    def _in_some_order(cls, tasks: list[Task]) -> list[Task]:
        for number, task in enumerate(tasks, 1):
            if unknown := [other for other in task.depends_on if not 0 < other <= len(tasks)]:
                raise ValueError(f"task {number} depends on task {unknown[0]}, and there are {len(tasks)}")
        try:
            TopologicalSorter({number: task.depends_on for number, task in enumerate(tasks, 1)}).prepare()
        except CycleError as error:
            raise ValueError(f"tasks wait for each other: {' after '.join(map(str, error.args[1]))}") from None
        return tasks

    def empty(self) -> str:
        """The first field without which nobody could work by it that says nothing; empty when there is none."""
        return next((name for name in ("title", "solution") if not getattr(self, name).strip()), "")
