"""The table of steps: for each, what it may do, what it is given, and what it has to answer. Also two of those answers:
a plan (`Plan`), and a large request as items of a backlog (`Decomposition`).

A new agentic step is: its name in `perdure.models.phases`, a line here, its settings in
`perdure.models.config.repository`, its prompt in `perdure/prompts/`, and its place in `workflows/steps.py` and
`workflows/delivery.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import BaseModel, Field, field_validator, model_validator

from perdure.models.backlog.request import BacklogItem
from perdure.models.base import UserInputModel
from perdure.models.checks.report import Classification, Review
from perdure.models.errors import InvalidRequest
from perdure.models.phases import Step
from perdure.models.rules.backlog import parse_backlog
from perdure.text import cut_bytes, format_count, one_line, shorten


class Part(UserInputModel):
    """One item, as far as a model can know it."""

    id: str = Field(description="names it for people: lower case letters, digits and dashes, at most 40")
    request: str = Field(description="all that whoever builds it has to know of what is wanted; they see nothing else")
    depends_on: list[str] = Field(default=[], description="ids of the items that have to be there before it can begin")
    touches: list[str] = Field(default=[], description="files it will change, as in .gitignore: src/api/**")
    check: list[str] = Field(
        default=[], description="commands that have to end with 0 once it has landed, and ever after; seldom any"
    )
    role: str = Field(default="", description="backend, frontend, test or docs; empty where it does not matter")
    priority: int = Field(default=0, description="higher goes first among those that can begin; -100 to 100")

    @property
    def id_suffix(self) -> str:
        """Return the dependencies as they are shown behind the id, ` (after api)`; empty: it has none."""
        return f" (after {', '.join(self.depends_on)})" if self.depends_on else ""


class Decomposition(UserInputModel):
    """The answer of the decompose step. It is one a backlog can begin with: as in a file, but for what only people
    know."""

    items: list[Part]

    @model_validator(mode="after")
    def _check_items(self) -> Decomposition:
        """Return the decomposition itself. Raises ValueError when a backlog could not begin with these items."""
        try:
            self.to_items()
        except InvalidRequest as error:
            raise ValueError(error.what + (f" ({error.where})" if error.where else "")) from None
        return self

    def to_items(self) -> tuple[BacklogItem, ...]:
        """Return the parts as items of a backlog. Raises InvalidRequest, with the message for a bad file of items, when
        a backlog could not begin with them."""
        raw_items = [part.model_dump(mode="json", exclude_defaults=True) for part in self.items]
        return parse_backlog({"repository": "-", "items": raw_items}).items

    @property
    def title(self) -> str:
        """Return `3 items: api, page, docs`, with at most five ids."""
        number = len(self.items)
        more = ", …" if number > 5 else ""
        return f"{format_count(number, 'item')}: {', '.join(part.id for part in self.items[:5])}{more}"

    def to_text(self, max_bytes: int) -> str:
        """Return a line for each item with its id, dependencies and request; longer text is cut to `max_bytes` bytes,
        with "…" behind."""
        text = "\n".join(f"{part.id}{part.id_suffix}: {one_line(part.request, 300)}" for part in self.items)
        cut_text = cut_bytes(text, max_bytes)
        return cut_text if cut_text == text else cut_text + "…"

    def find_empty_field(self) -> str:
        """Return an empty string: no field that is needed can be empty, `_check_items` has seen to that."""
        return ""


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
        """Return the role; raise ValueError for one that is no short name in lower case letters, digits and dashes.

        Roles other than those of Role, which the agent is asked for, are allowed: the repository may have prompts for
        them.
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
        """Return problem, solution, tasks and checks as plain lines; longer text is cut to `max_bytes` bytes, with "…"
        behind."""
        tasks = [
            f"{number}. {task.title}{task.title_suffix}" + (f" ({', '.join(task.files)})" if task.files else "")
            for number, task in enumerate(self.tasks, 1)
        ]
        lines = [self.problem, self.solution, *tasks, *(f"check: {check}" for check in self.validation)]
        text = "\n".join(line.strip() for line in "\n".join(lines).splitlines() if line.strip())
        cut_text = cut_bytes(text, max_bytes)
        return cut_text if cut_text == text else cut_text + "…"

    @field_validator("tasks")
    @classmethod
    def _check_dependencies(cls, tasks: list[Task]) -> list[Task]:
        """Return the tasks; raise ValueError when one depends on a task that does not exist, or tasks wait for each
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
        """Return the name of the first blank field of title and solution, without which nobody can work; empty when
        neither is blank."""
        return next((name for name in ("title", "solution") if not getattr(self, name).strip()), "")


@dataclass(frozen=True)
class StepSpec:
    """The specification of a step: its rights, its material, and the answer it has to give.

    display_name        its name in the story of a delivery; empty for a fix, which has a number ("test fix 1/4")
    agentic             carried out by an agent, in turns; the fields below are of such steps only
    writes              changes files, and is followed by a commit; the others only read
    fixes               begins from something that went wrong, and stays close to it
    gets_notes          is given the repository's own notes (AGENTS.md)
    gets_test_commands  is told the test commands
    may_ask             may ask a person: a requirement can be missing there; a reviewer judges by what was requested
    gets_messages       is told what people say meanwhile; a classification answers one of three words, a message would
                        be lost on it
    answer              the model of its structured answer; None: it answers in its own words
    rejection_intro     the text before the note with which a person rejected its result
    """

    display_name: str
    agentic: bool = False
    writes: bool = False
    fixes: bool = False
    gets_notes: bool = False
    gets_test_commands: bool = False
    may_ask: bool = False
    gets_messages: bool = True
    answer: type[BaseModel] | None = None
    rejection_intro: str = ""


STEPS: dict[Step, StepSpec] = {
    Step.PREPARE: StepSpec("prepare"),
    Step.CLASSIFY: StepSpec("classify", agentic=True, gets_messages=False, answer=Classification),
    Step.PLAN: StepSpec(
        "plan",
        agentic=True,
        gets_notes=True,
        gets_test_commands=True,
        may_ask=True,
        answer=Plan,
        rejection_intro="The plan above was shown to a person in charge of this delivery, who rejected it and says:",
    ),
    Step.DECOMPOSE: StepSpec(
        "decompose",
        agentic=True,
        gets_notes=True,
        gets_test_commands=True,
        may_ask=True,
        answer=Decomposition,
        rejection_intro="The items above were shown to a person in charge of this backlog, who rejected them and says:",
    ),
    Step.IMPLEMENT: StepSpec(
        "build", agentic=True, writes=True, gets_notes=True, gets_test_commands=True, may_ask=True
    ),
    Step.COMMIT: StepSpec("commit"),
    Step.DOCUMENT: StepSpec("docs", agentic=True, writes=True, may_ask=True),
    Step.RUN_TESTS: StepSpec("test"),
    Step.FIX_TESTS: StepSpec(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="Nothing can tell which of these failures were there before the change. A "
        "person in charge of this "
        "delivery has looked, wants it mended and says:",
    ),
    Step.REVIEW: StepSpec("review", agentic=True, gets_notes=True, gets_test_commands=True, answer=Review),
    Step.FIX_REVIEW: StepSpec(
        "",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="The change above was shown to a person in charge of this delivery, who wants it published "
        "otherwise and says:",
    ),
    Step.OPEN_PULL_REQUEST: StepSpec("ship"),
    Step.REBASE: StepSpec("rebase"),
    Step.FIX_LANDING: StepSpec(
        "fix landing",
        agentic=True,
        writes=True,
        fixes=True,
        gets_test_commands=True,
        may_ask=True,
        rejection_intro="The change above could not land. A person in charge of this delivery says:",
    ),
    Step.LAND: StepSpec("land"),
}

AGENTIC = tuple(step for step, about in STEPS.items() if about.agentic)
WRITERS = tuple(step for step in AGENTIC if STEPS[step].writes)
FIXES = tuple(step for step in AGENTIC if STEPS[step].fixes)


_TITLE_CHARS = 200


def plan_title(plan: str) -> str:
    """Return the title of a plan, given as JSON or Markdown: its title, else its first line with a letter or digit,
    else `Carry out the plan`; at most 200 characters."""
    try:
        return shorten(Plan.model_validate_json(plan).title, _TITLE_CHARS)
    except ValueError:
        lines = (line.strip().lstrip("#").strip() for line in plan.splitlines())
        return shorten(
            next((line for line in lines if any(c.isalnum() for c in line)), "Carry out the plan"), _TITLE_CHARS
        )
