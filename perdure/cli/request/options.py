"""The options that `deliver` and `run` share, with the same names and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self


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
