"""The choice of a screenplay's line that answers a conversation, and what to tell an author when none does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from perdure.rehearsal.faults import Fault
from perdure.rehearsal.screenplay import Line, Screenplay
from perdure.rehearsal.wire import Message, Request, Text, ToolResult, ToolUse, invalid

_NEAREST = 3


@dataclass(frozen=True)
class Position:
    """The view of a line: the model, the step, the turn, everything said and done, and the last user message."""

    model: str
    step: str | None
    turn: int
    said: str
    last: str
    before: Position | None = None


REMINDED = re.compile(r"\ANot tested since your last edit: .*\Z", re.DOTALL)
"""A word of the engine after a step's last answer, which scripts need not know: see `scene`."""


def scene(request: Request) -> Position:
    """`before`: where the request only reminds the model of the tests, the position in which it gave the answer that it
    is to give again."""
    now = _position(request, request.messages)
    if REMINDED.match(now.last) and len(request.messages) > 2:
        return replace(now, before=_position(request, request.messages[:-2]))
    return now


def _position(request: Request, messages: list[Message]) -> Position:
    return Position(
        model=request.model,
        step=step_named(request),
        turn=sum(message.role == "assistant" and not _is_filler(message) for message in messages) + 1,
        said="\n".join(_texts(messages)),
        last="\n".join(_texts(messages[-1:])),
    )


_FILLER = "No response requested."
"""Words that Claude Code puts into a model's mouth when it goes on with a session, so that turns alternate."""


def _is_filler(message: Message) -> bool:
    match message.content:
        case [Text(text=text)]:
            return text == _FILLER
        case _:
            return False


_STEP = re.compile(r"^Step: *(\S+) *$", re.MULTILINE)


def step_named(request: Request) -> str | None:
    """The step that the system prompt names, or, where an agent has one of its own, the first message of the user."""
    system = "\n".join(block.text for block in request.system)
    first = "\n".join(block.text for block in request.messages[0].content if isinstance(block, Text))
    found = _STEP.search(system) or _STEP.search(first)
    return found[1] if found else None


def misses(line: Line, now: Position) -> list[str]:
    """The conditions of a line that do not hold, in words, the step first; empty when it matches."""
    found = []
    if line.step and line.step != now.step:
        found.append(f"its step is {line.step}")
    if line.turn and line.turn != now.turn:
        found.append(f"its turn is {line.turn}")
    if line.model and line.model != now.model:
        found.append(f"its model is {line.model}")
    found += [f"{text!r} does not occur" for text in line.contains if text not in now.said]
    found += [f"{text!r} occurs" for text in line.lacks if text in now.said]
    if line.last and not re.search(line.last, now.last, re.MULTILINE):
        found.append(f"the last message does not match {line.last!r}")
    return found


class Cues:
    """Finds the line that answers; remembers, for as long as the server runs, which faults were given."""

    def __init__(self, screenplay: Screenplay) -> None:
        self._screenplay = screenplay
        self._given = [0] * len(screenplay.lines)

    def next(self, now: Position) -> tuple[int, Fault | None]:
        """The index of the line, and the fault that hits instead of it or on it. Refused when no line matches.

        A model that is reminded of the tests gives its answer again, unless a line's `last` is about that.
        """
        for index, line in enumerate(self._screenplay.lines):
            if now.before is not None and line.last is None:
                continue
            if misses(line, now):
                continue
            if line.fault and self._given[index] < line.times:
                self._given[index] += 1
                return index, line.fault
            if line.speaks:
                return index, None
        if now.before is not None:
            return self.next(now.before)
        raise invalid(no_line(self._screenplay, now))


def no_line(screenplay: Screenplay, now: Position) -> str:
    """Says what was asked and how the nearest lines differ."""

    def distance(index: int) -> tuple[bool, int, int]:
        line = screenplay.lines[index]
        return (bool(line.step) and line.step != now.step, len(misses(line, now)), index)

    near = sorted(range(len(screenplay.lines)), key=distance)[:_NEAREST]
    told = [
        f"{screenplay.place(n)}: {'; '.join(misses(screenplay.lines[n], now)) or 'its faults are used up'}"
        for n in near
    ]
    asked = (
        f"step {now.step}" if now.step else "no step (no line `Step: <step>` in the system prompt or the first message)"
    )
    ending = now.last if len(now.last) <= 200 else f"…{now.last[-200:]}"
    return (
        f"screenplay: no line of {screenplay.script.title!r} answers {asked}, turn {now.turn}, "
        f"last message {ending!r}. Nearest: {' | '.join(told)}"
    )


def _texts(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        for block in message.content:
            match block:
                case Text(text=text):
                    yield text
                case ToolUse(name=name, input=given):
                    yield name
                    yield from _leaves(given)
                case ToolResult(content=inner):
                    yield from (part.text for part in inner if isinstance(part, Text))
                case _:
                    pass


def _leaves(value: Any) -> Iterator[str]:
    """Every text and number inside a tool's input, as the author of a screenplay would write it."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    else:
        yield str(value)
