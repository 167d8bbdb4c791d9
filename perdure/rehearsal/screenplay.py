"""Screenplays: what the model says, chosen by what the conversation contains, never by call number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from perdure.adapters.repository.keys import parse as parse_toml
from perdure.adapters.repository.keys import place
from perdure.adapters.system.bounded import read_text, why_unread
from perdure.models.base import Written
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC
from perdure.rehearsal.faults import Fault

SCREENPLAY_BYTES = 8 * 1024 * 1024
"""Of a screenplay: a recorded delivery holds whole files."""


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def _agentic(step: Step) -> Step:
    if step not in AGENTIC:
        raise ValueError(f"no model is asked in step {step}; write one of {', '.join(AGENTIC)}")
    return step


class Use(Written):
    """A tool call. `unknown` makes the model call a tool that it was not offered."""

    tool: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input: dict[str, Any] = Field(default_factory=dict)
    unknown: bool = False


class Line(Written):
    """One thing the model says, and when.

    When (all that is given must hold; the first line that matches answers, as often as it matches):
    step      the system prompt has a line `Step: <step>`
    model     that is asked
    turn      assistant messages already in the conversation + 1
    contains  each occurs in what was said and done: texts, tool inputs, tool results; not the system prompt
    lacks     none of them does
    last      regular expression, searched in the last user message with its tool results

    What: `think`, then `say` (text) or `answer` (sent as JSON text), then `use` (tool calls).

    How: `seconds` is how long the stream takes, spread over its events. `fault` hits the first `times` calls that
    match, with `retry_after` seconds where an HTTP error can say so; after that the line answers, or, when it has
    nothing to say, no longer matches.
    """

    step: Annotated[Step, AfterValidator(_agentic)] | None = None
    model: str | None = Field(default=None, min_length=1)
    turn: int | None = Field(default=None, ge=1)
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    last: Annotated[str, AfterValidator(_regex)] | None = None
    think: str | None = Field(default=None, min_length=1)
    say: str | None = Field(default=None, pattern=r"\S")
    answer: dict[str, Any] | None = None
    use: tuple[Use, ...] = ()
    seconds: float = Field(default=0.0, ge=0, le=3600)
    fault: Fault | None = None
    times: int = Field(default=1, ge=1)
    retry_after: float | None = Field(default=None, ge=0)

    @property
    def speaks(self) -> bool:
        return self.say is not None or self.answer is not None or bool(self.use)

    @model_validator(mode="after")
    def _makes_sense(self) -> Line:
        if self.say is not None and self.answer is not None:
            raise ValueError("say and answer are both the text of the reply: write one of them")
        if not self.speaks and self.fault is None:
            raise ValueError("the line says nothing: write say, answer, use or fault")
        if self.fault is None and {"times", "retry_after"} & self.model_fields_set:
            raise ValueError("times and retry_after belong to a fault: write fault, or leave them out")
        return self


class Script(Written):
    """The whole file.

    cache_minimum  the smallest prompt the twin caches, in tokens; the real ones differ
    sums_up        the twin takes requests to sum a conversation up
    """

    title: str = "untitled"
    cache_minimum: int = Field(default=0, ge=0)
    sums_up: bool = True
    line: tuple[Line, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Screenplay:
    """A script with the text it was read from, so that a message can name file and line."""

    script: Script
    text: str
    name: str

    @classmethod
    def load(cls, file: Path) -> Screenplay:
        """Read a TOML file. BadInput with file, line and key."""
        try:
            text = read_text(file, SCREENPLAY_BYTES)
        except (OSError, ValueError) as error:
            reason = why_unread(error)
            raise BadInput(
                f"the screenplay cannot be read: {reason}", where=str(file), fix="name a TOML file"
            ) from None
        return cls.parse(text, str(file))

    @classmethod
    def parse(cls, text: str, name: str = "screenplay") -> Screenplay:
        return cls(parse_toml(text, name, Script, SCREENPLAY_BYTES), text, name)

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.script.line

    def place(self, index: int) -> str:
        """`line 4 (demo.toml:31)`."""
        return f"line {index + 1} ({place(self.text, self.name, ('line', index)).partition(' ')[0]})"

    @property
    def made_up_tools(self) -> frozenset[str]:
        """Tools a model in this screenplay calls although they were not offered."""
        return frozenset(use.tool for line in self.lines for use in line.use if use.unknown)
