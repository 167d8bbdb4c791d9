"""Screenplays: what the model says, chosen by what the conversation contains, never by the number of the call."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from perdure.adapters.repository.keys import locate_key
from perdure.adapters.repository.keys import parse_toml_model as parse_toml
from perdure.adapters.system.bounded import read_text, unreadable_reason
from perdure.models.base import UserInputModel
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.models.steps import AGENTIC
from perdure.rehearsal.faults import Fault

SCREENPLAY_BYTES = 8 * 1024 * 1024
"""Limit on a screenplay: a recorded delivery holds whole files."""


def _check_regex(text: str) -> str:
    """Return the text if it is a regular expression; raise ValueError if not."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


def _check_agentic(step: Step) -> Step:
    """Return the step if a model is asked in it; raise ValueError if not."""
    if step not in AGENTIC:
        raise ValueError(f"no model is asked in step {step}; write one of {', '.join(AGENTIC)}")
    return step


class ScriptedCall(UserInputModel):
    """A tool call. `unknown` makes the model call a tool that it was not offered."""

    tool: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input: dict[str, Any] = Field(default_factory=dict)
    unknown: bool = False


class Line(UserInputModel):
    """One thing the model says, and when.

    When (all that is set must hold; the first line that matches answers, as often as it matches):
    step      the system prompt has a line `Step: <step>`
    model     that is asked
    turn      assistant messages already in the conversation + 1
    contains  each occurs in the conversation: texts, tool inputs, tool results; not the system prompt
    lacks     none of them does
    last      regular expression, searched in the last user message with its tool results

    What: `think`, then `say` (text) or `answer` (sent as JSON text), then `use` (tool calls).

    How: `seconds` is how long the stream takes, spread over its events. `fault` hits the first `times` calls that
    match, with `retry_after` seconds where an HTTP error can say so; after that the line answers, or, when it has
    nothing to say, no longer matches.
    """

    step: Annotated[Step, AfterValidator(_check_agentic)] | None = None
    model: str | None = Field(default=None, min_length=1)
    turn: int | None = Field(default=None, ge=1)
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    last: Annotated[str, AfterValidator(_check_regex)] | None = None
    think: str | None = Field(default=None, min_length=1)
    say: str | None = Field(default=None, pattern=r"\S")
    answer: dict[str, Any] | None = None
    use: tuple[ScriptedCall, ...] = ()
    seconds: float = Field(default=0.0, ge=0, le=3600)
    fault: Fault | None = None
    times: int = Field(default=1, ge=1)
    retry_after: float | None = Field(default=None, ge=0)

    @property
    def speaks(self) -> bool:
        """Return whether the line has a text, an answer or tool calls."""
        return self.say is not None or self.answer is not None or bool(self.use)

    @model_validator(mode="after")
    def _check_consistent(self) -> Line:
        """Raise ValueError for a line with two texts, without any effect, or with settings of a fault but no fault."""
        if self.say is not None and self.answer is not None:
            raise ValueError("say and answer are both the text of the reply: write one of them")
        if not self.speaks and self.fault is None:
            raise ValueError("the line says nothing: write say, answer, use or fault")
        if self.fault is None and {"times", "retry_after"} & self.model_fields_set:
            raise ValueError("times and retry_after belong to a fault: write fault, or leave them out")
        return self


class Script(UserInputModel):
    """The whole file of a screenplay.

    cache_minimum  the smallest prompt the twin caches, in tokens; the real APIs differ
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
        """Read a screenplay from a TOML file. Raises BadInput with file, line and key."""
        try:
            text = read_text(file, SCREENPLAY_BYTES)
        except (OSError, ValueError) as error:
            reason = unreadable_reason(error)
            raise BadInput(
                f"the screenplay cannot be read: {reason}", where=str(file), fix="name a TOML file"
            ) from None
        return cls.parse(text, str(file))

    @classmethod
    def parse(cls, text: str, name: str = "screenplay") -> Screenplay:
        """Parse a screenplay from TOML text; `name` is the file's in messages. Raises BadInput with line and key."""
        return cls(parse_toml(text, name, Script, SCREENPLAY_BYTES), text, name)

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.script.line

    def line_place(self, index: int) -> str:
        """Return where a line stands, for a message: `line 4 (demo.toml:31)`."""
        return f"line {index + 1} ({locate_key(self.text, self.name, ('line', index)).partition(' ')[0]})"

    @property
    def made_up_tools(self) -> frozenset[str]:
        """Return the tools that a model in this screenplay calls although they were not offered."""
        return frozenset(use.tool for line in self.lines for use in line.use if use.unknown)
