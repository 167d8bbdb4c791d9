"""The options that `deliver` and `run` share, with the same names and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from perdure.models.limits import ATTEMPTS_MOST


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """The options that both commands have, as they were typed.

    gate       before which of plan and pull_request a person decides
    labels     of the pull request and of a shared budget
    questions  False: the agent asks nobody
    new        start another delivery, although one of the same text runs
    """

    request: str | None = None
    issue: str | None = None
    repo: str | None = None
    base: str | None = None
    branch: str | None = None
    id: str | None = None
    budget: float | None = None
    tokens: int | None = None
    model: str | None = None
    agent: str | None = None
    attempts: int | None = None
    after_red: bool = False
    config: Path | None = None
    allow_test_changes: bool = False
    gate: list[str] | None = None
    labels: tuple[str, ...] = ()
    questions: bool = True
    new: bool = False

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> Self:
        """Return the options from the parameters by name, as Typer has parsed them (`Context.params`)."""
        values = {**params, "labels": tuple(params["label"] or ()), "questions": not params["no_questions"]}
        return cls(**{field.name: values[field.name] for field in fields(cls) if field.name in values})


Budget = Annotated[float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it costs.")]
Tokens = Annotated[int | None, typer.Option("--tokens", metavar="N", min=1, help="The most tokens it uses.")]
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="One model for every step.")]
Agent = Annotated[
    str | None, typer.Option("--agent", metavar="NAME", help="One agent for every step; perdure agents lists them.")
]
Attempts = Annotated[
    int | None,
    typer.Option(
        "--attempts", metavar="N", min=1, max=ATTEMPTS_MOST, help="Build the plan so often, and take the best one."
    ),
]
AfterRed = Annotated[
    bool, typer.Option("--after-red", help="The other attempts begin only when the first one is no good.")
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead of the base branch's."),
]
AllowTestChanges = Annotated[bool, typer.Option("--allow-test-changes", help="The request itself is about tests.")]
Gates = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="LIST", help="Wait for you before these: plan, pull_request, or both."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="NAME", help="Put on the pull request; budgets are shared by label. Repeatable."),
]
NoQuestions = Annotated[
    bool, typer.Option("--no-questions", help="The agent asks nobody: it decides, and says what it assumed.")
]
New = Annotated[bool, typer.Option("--new", help="Start another, although one of the same words runs.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")]
