"""A plan: the answer of the plan step, its tasks, and the roles that the tasks are for."""

from __future__ import annotations

import re
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import Field, field_validator

from perdure.models.base import UserInputModel


class Role(StrEnum):
    """The kind of engineer a task is for."""

    BACKEND = "backend"
    FRONTEND = "frontend"
    TEST = "test"


ROLE = r"[a-z0-9](?:[a-z0-9-]{0,28}[a-z0-9])?"


class Task(UserInputModel):
    title: str
    details: str
    files: list[str] = Field(description="paths that will probably change")
    role: str | None = Field(default=None, description="who it is for; null where everybody could do it as well")
    depends_on: list[int] = Field(default=[], description="numbers of the tasks, from 1, that must be done before it")

    @field_validator("role", mode="plain", json_schema_input_type=Role | None)
    @classmethod
    def _check_role(cls, role: Any) -> str | None:
        """Return the role, or raise ValueError for one that is no short name in lower case.

        Specialists may have other roles than those of Role, which the agent is asked for.
        """
        if role is None or (isinstance(role, str) and re.fullmatch(ROLE, role)):
            return None if role is None else str(role)
        raise ValueError("a role is lower case letters, digits and dashes, at most 30")

    @property
    def title_suffix(self) -> str:
        """Return role and dependencies as shown behind the title, ` [backend, after 1]`; empty: it has neither."""
        parts = [self.role] if self.role else []
        parts += [f"after {', '.join(map(str, self.depends_on))}"] if self.depends_on else []
        return f" [{', '.join(parts)}]" if parts else ""


class Plan(UserInputModel):
    """The answer of the plan step: fixed sections, kept as an artifact and shown in the pull request."""

    title: str = Field(
        description="imperative, at most 60 characters, no prefix; becomes commit and pull request title"
    )
    problem: str
    solution: str
    relevant_files: list[str]
    tasks: list[Task]
    validation: list[str] = Field(description="how a person can check the result, one item each")

    def to_text(self, max_bytes: int) -> str:
        """Return problem, solution, tasks and checks as plain lines, cut at `max_bytes` bytes with "…"."""
        tasks = [
            f"{number}. {task.title}{task.title_suffix}" + (f" ({', '.join(task.files)})" if task.files else "")
            for number, task in enumerate(self.tasks, 1)
        ]
        lines = [self.problem, self.solution, *tasks, *(f"check: {check}" for check in self.validation)]
        text = "\n".join(line.strip() for line in "\n".join(lines).splitlines() if line.strip())
        cut_text = text.encode()[:max_bytes].decode(errors="ignore")
        return cut_text if cut_text == text else cut_text + "…"

    @field_validator("tasks")
    @classmethod
    def _check_dependencies(cls, tasks: list[Task]) -> list[Task]:
        """Return the tasks, or raise ValueError where one depends on a task that does not exist or tasks wait for each
        other."""
        for number, task in enumerate(tasks, 1):
            if unknown := [other for other in task.depends_on if not 0 < other <= len(tasks)]:
                raise ValueError(f"task {number} depends on task {unknown[0]}, and there are {len(tasks)}")
        try:
            TopologicalSorter({number: task.depends_on for number, task in enumerate(tasks, 1)}).prepare()
        except CycleError as error:
            raise ValueError(f"tasks wait for each other: {' after '.join(map(str, error.args[1]))}") from None
        return tasks

    def find_empty_field(self) -> str:
        """Return the name of the first blank field of title and solution, without which nobody can work; empty: none is
        blank."""
        return next((name for name in ("title", "solution") if not getattr(self, name).strip()), "")
