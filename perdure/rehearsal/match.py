"""The choice of the screenplay's line that answers a conversation, and the message to its author when none does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perdure.rehearsal.faults import Fault
from perdure.rehearsal.screenplay import Line, Screenplay
from perdure.rehearsal.wire import ApiMessage, Request, Text, ToolResult, ToolUse, invalid_request

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
    """Return the position after these messages of a request. The turn is the model's messages, without fillers, + 1."""
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
    """Yield every text and number inside a tool's input, as the author of a screenplay would write it."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaf_texts(inner)
    else:
        yield str(value)
