"""The output of an agent, parsed as its preset says; what it claims there is no verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.models.preset import EventSelector, Preset

Json = dict[str, Any]

AGENT_OUTPUT_BYTES = 16 * 1024**2
"""Bytes that are parsed from the end of an agent's output: the result is last, and some print without end."""


@dataclass(frozen=True)
class AgentClaim:
    """The end of an agent's run, as its output tells it.

    ended    nothing more comes
    well     it ended well
    text     its last text; answer: the structured answer as JSON, empty without one
    session  the session's id, where the agent chose it
    error    why it did not end well
    """

    ended: bool
    well: bool
    text: str = ""
    answer: str = ""
    session: str = ""
    error: str = ""


def parse_output(preset: Preset, output: bytes) -> AgentClaim:
    """Return what an agent's output says, found by the selectors of its preset. Lines that are no JSON object are
    passed over."""
    events = _parse_events(preset, output[-AGENT_OUTPUT_BYTES:])
    result = preset.result
    answer = _select_value(events, result.answer)
    return AgentClaim(
        ended=any(_last_event(events, selector) is not None for selector in result.ended),
        well=result.well is not None and _last_event(events, result.well) is not None,
        text=_text_or_empty(_select_value(events, result.text)),
        answer=answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer),
        session=_text_or_empty(_select_value(events, result.session)),
        error=next(filter(None, (_text_or_empty(_select_value(events, selector)) for selector in result.error)), ""),
    )


def _parse_events(preset: Preset, output: bytes) -> list[Json]:
    """Parse the JSON objects of an output: one a line, or the output as a whole; what is no JSON object is left out."""
    texts = output.splitlines() if preset.output == "json-lines" else [output]
    events = []
    for text in texts:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _last_event(events: Sequence[Json], selector: EventSelector) -> Json | None:
    """Return the last event in which every path of the selector has its value; None: there is none."""
    for event in reversed(events):
        if all(_value_at(event, path) == value for path, value in selector.where.items()):
            return event
    return None


def _select_value(events: Sequence[Json], selector: EventSelector | None) -> Any:
    """Return the value that a selector finds in the events; None where no event matches, or without a selector."""
    event = None if selector is None else _last_event(events, selector)
    return None if selector is None or event is None else _value_at(event, selector.path)


def _value_at(event: Any, path: str) -> Any:
    """Return the value at a dotted path of an event; None where there is none. An empty path is the event itself."""
    for name in filter(None, path.split(".")):
        event = event.get(name) if isinstance(event, dict) else None
    return event


def _text_or_empty(value: Any) -> str:
    """Return a value that is a text, else an empty one."""
    return value if isinstance(value, str) else ""
