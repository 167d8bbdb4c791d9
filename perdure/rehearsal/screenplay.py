"""Screenplays: what the model says, and the faults it plays, chosen by what the conversation contains, never by the
number of the call; and the message to the author when no line answers. Used by the server of this package and by the
demo, which has screenplays of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from perdure.adapters.repository.keys import locate_key
from perdure.adapters.repository.keys import parse_toml_model as parse_toml
from perdure.adapters.system.bounded import read_text, unreadable_reason
from perdure.models.base import UserInputModel
from perdure.models.delivery.steps import AGENTIC
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.rehearsal.wire import ApiMessage, ApiRefusal, Request, Text, ToolResult, ToolUse, invalid_request


class Fault(StrEnum):
    """An HTTP error by its status, or by its name what goes wrong with the connection, the stream or the message.

    spend_limit   429 that will not go away: `error_code` names a spend limit
    hang          the request is accepted and never answered
    cut           the connection is reset in the middle of the stream
    close         the stream ends there without an error: no chunked framing, an ordinary end of the body
    stream_error  `event: error`, overloaded, inside a stream that began with 200
    not_json      200, and what should be JSON is not
    page          200, and the body is a proxy's HTML page
    max_tokens    the reply is cut off in its last block, with that stop reason
    refusal       the model refuses: no content, with stop details
    """

    INVALID = "400"
    UNAUTHENTICATED = "401"
    UNPAID = "402"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    TIMEOUT = "408"
    CONFLICT = "409"
    TOO_LARGE = "413"
    RATE_LIMIT = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    OVERLOADED = "529"
    SPEND_LIMIT = "spend_limit"
    HANG = "hang"
    CUT = "cut"
    CLOSE = "close"
    STREAM_ERROR = "stream_error"
    NOT_JSON = "not_json"
    PAGE = "page"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"


PARTIAL = (Fault.CUT, Fault.CLOSE, Fault.STREAM_ERROR)
"""Faults that let only the first half of the reply be sent."""

_ERRORS = {
    Fault.INVALID: ("invalid_request_error", "the screenplay refuses this request"),
    Fault.UNAUTHENTICATED: ("authentication_error", "invalid x-api-key"),
    Fault.UNPAID: ("billing_error", "Your credit balance is too low to access the API."),
    Fault.FORBIDDEN: ("permission_error", "Your API key does not have permission to use the specified resource."),
    Fault.NOT_FOUND: ("not_found_error", "model: {model}"),
    Fault.TIMEOUT: ("timeout_error", "Request timeout"),
    Fault.CONFLICT: ("conflict_error", "Conflict"),
    Fault.TOO_LARGE: ("request_too_large", "Request exceeds the maximum size"),
    Fault.RATE_LIMIT: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    Fault.INTERNAL: ("api_error", "Internal server error"),
    Fault.UNAVAILABLE: ("api_error", "Service unavailable"),
    Fault.GATEWAY_TIMEOUT: ("timeout_error", "Gateway timeout"),
    Fault.OVERLOADED: ("overloaded_error", "Overloaded"),
}

OVERLOADED = ApiRefusal(529, "overloaded_error", "Overloaded")

PAGE = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def http_error(fault: Fault, model: str, retry_after: float | None) -> ApiRefusal | None:
    """Return the error to answer with, None for a fault that is not an HTTP error.

    `model` stands in the message of a 404; `retry_after` is in seconds and ignored for a spend limit.
    """
    if fault is Fault.SPEND_LIMIT:
        details = {"error_code": "enforced_spend_limit_reached"}
        return ApiRefusal(429, "rate_limit_error", "You have reached your spend limit.", details=details)
    if fault not in _ERRORS:
        return None
    kind, message = _ERRORS[fault]
    return ApiRefusal(int(fault), kind, message.format(model=model), retry_after=retry_after)


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
    """A thing the model says, and when.

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


_NEAREST = 3


@dataclass(frozen=True)
class ConversationPosition:
    """The position that a screenplay's lines are compared with: model, step, turn, all texts of the conversation, its
    last message.

    `before` is the position before a reminder of the engine, None without one: see find_position.
    """

    model: str
    step: str | None
    turn: int
    transcript: str
    last_message: str
    before: ConversationPosition | None = None


REMINDER = re.compile(r"\ANot tested since your last edit: .*\Z", re.DOTALL)
"""The engine's reminder to test after a step's last answer; scripts need not know it: see find_position."""


def find_position(request: Request) -> ConversationPosition:
    """Return the position of a request's conversation.

    Where the request only reminds the model of the tests, `before` is the position in which it gave the answer that it
    is to give again.
    """
    now = _position_after(request, request.messages)
    if REMINDER.match(now.last_message) and len(request.messages) > 2:
        return replace(now, before=_position_after(request, request.messages[:-2]))
    return now


def _position_after(request: Request, messages: list[ApiMessage]) -> ConversationPosition:
    """Return the position after these messages of a request.

    The turn is the number of the model's messages + 1, without those that Claude Code adds as fillers.
    """
    return ConversationPosition(
        model=request.model,
        step=find_step(request),
        turn=sum(message.role == "assistant" and not _is_filler(message) for message in messages) + 1,
        transcript="\n".join(_message_texts(messages)),
        last_message="\n".join(_message_texts(messages[-1:])),
    )


_FILLER = "No response requested."
"""Text that Claude Code adds as the model's message when it goes on with a session, so that turns alternate."""


def _is_filler(message: ApiMessage) -> bool:
    """Return whether a message consists of the filler text alone."""
    match message.content:
        case [Text(text=text)]:
            return text == _FILLER
        case _:
            return False


_STEP = re.compile(r"^Step: *(\S+) *$", re.MULTILINE)


def find_step(request: Request) -> str | None:
    """Return the step named by a line `Step: <step>` in the system prompt, else in the first message; else None.

    Agents with a system prompt of their own get the line in the message.
    """
    system = "\n".join(block.text for block in request.system)
    first = "\n".join(block.text for block in request.messages[0].content if isinstance(block, Text))
    match = _STEP.search(system) or _STEP.search(first)
    return match[1] if match else None


def unmet_conditions(line: Line, position: ConversationPosition) -> list[str]:
    """List in words the conditions of a line that do not hold at a position, the step first; empty when it matches."""
    unmet = []
    if line.step and line.step != position.step:
        unmet.append(f"its step is {line.step}")
    if line.turn and line.turn != position.turn:
        unmet.append(f"its turn is {line.turn}")
    if line.model and line.model != position.model:
        unmet.append(f"its model is {line.model}")
    unmet += [f"{text!r} does not occur" for text in line.contains if text not in position.transcript]
    unmet += [f"{text!r} occurs" for text in line.lacks if text in position.transcript]
    if line.last and not re.search(line.last, position.last_message, re.MULTILINE):
        unmet.append(f"the last message does not match {line.last!r}")
    return unmet


class LineChooser:
    """Chooses the line that answers. Remembers, while the server runs, how often each line's fault was given."""

    def __init__(self, screenplay: Screenplay) -> None:
        self._screenplay = screenplay
        self._fault_counts = [0] * len(screenplay.lines)

    def choose_line(self, position: ConversationPosition) -> tuple[int, Fault | None]:
        """Choose the first line that matches; return its index and the fault that hits the reply, None for none.

        Counts the fault as given; after `times` of them the line answers without. A model that is reminded of the tests
        gives its answer before the reminder again, unless a line's `last` matches the reminder. Raises ApiRefusal when
        no line matches.
        """
        for index, line in enumerate(self._screenplay.lines):
            if position.before is not None and line.last is None:
                continue
            if unmet_conditions(line, position):
                continue
            if line.fault and self._fault_counts[index] < line.times:
                self._fault_counts[index] += 1
                return index, line.fault
            if line.speaks:
                return index, None
        if position.before is not None:
            return self.choose_line(position.before)
        raise invalid_request(no_line_message(self._screenplay, position))


def no_line_message(screenplay: Screenplay, position: ConversationPosition) -> str:
    """Return the error message for an author that names the position and how the nearest lines differ from it."""

    def distance(index: int) -> tuple[bool, int, int]:
        line = screenplay.lines[index]
        return (bool(line.step) and line.step != position.step, len(unmet_conditions(line, position)), index)

    nearest_lines = sorted(range(len(screenplay.lines)), key=distance)[:_NEAREST]
    descriptions = [
        f"{screenplay.line_place(n)}: "
        f"{'; '.join(unmet_conditions(screenplay.lines[n], position)) or 'its faults are used up'}"
        for n in nearest_lines
    ]
    step_text = (
        f"step {position.step}"
        if position.step
        else "no step (no line `Step: <step>` in the system prompt or the first message)"
    )
    ending = position.last_message if len(position.last_message) <= 200 else f"…{position.last_message[-200:]}"
    return (
        f"screenplay: no line of {screenplay.script.title!r} answers {step_text}, turn {position.turn}, "
        f"last message {ending!r}. Nearest: {' | '.join(descriptions)}"
    )


def _message_texts(messages: list[ApiMessage]) -> Iterator[str]:
    """Yield all that a screenplay can match in messages: texts, tool names, tool inputs, texts of tool results."""
    for message in messages:
        for block in message.content:
            match block:
                case Text(text=text):
                    yield text
                case ToolUse(name=name, input=arguments):
                    yield name
                    yield from _leaf_texts(arguments)
                case ToolResult(content=inner):
                    yield from (part.text for part in inner if isinstance(part, Text))
                case _:
                    pass


def _leaf_texts(value: Any) -> Iterator[str]:
    """Yield every value inside a tool's input that is no object and no list, as `str` writes it; keys are left out."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaf_texts(inner)
    else:
        yield str(value)
