"""The output of an agent, read as its preset says; what it claims there is no verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from perdure.models.preset import Find, Preset

Json = dict[str, Any]

AGENT_OUTPUT_BYTES = 16 * 1024**2
"""Read from the end of an agent's output: the result is last, and some print without end."""


@dataclass(frozen=True)
class AgentSaid:
    """The end of an agent's output.

    ended    it said that nothing more comes
    well     it said that it ended well
    text     its last words; answer: the structured one as JSON, empty without one
    session  the session's id, where the agent chose it
    error    why it did not end well
    """

    ended: bool
    well: bool
    text: str = ""
    answer: str = ""
    session: str = ""
    error: str = ""


def understood(preset: Preset, output: bytes) -> AgentSaid:
    """The agent's output by its preset's places. Lines that are no JSON object are passed over."""
    events = _events(preset, output[-AGENT_OUTPUT_BYTES:])
    result = preset.result
    answer = _taken(events, result.answer)
    return AgentSaid(
        ended=any(_last(events, one) is not None for one in result.ended),
        well=result.well is not None and _last(events, result.well) is not None,
        text=_text(_taken(events, result.text)),
        answer=answer if isinstance(answer, str) else "" if answer is None else json.dumps(answer),
        session=_text(_taken(events, result.session)),
        error=next(filter(None, (_text(_taken(events, one)) for one in result.error)), ""),
    )


def _events(preset: Preset, output: bytes) -> list[Json]:
    texts = output.splitlines() if preset.output == "json-lines" else [output]
    found = []
    for text in texts:
        try:
            event = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def _last(events: Sequence[Json], find: Find) -> Json | None:
    for event in reversed(events):
        if all(_at(event, path) == value for path, value in find.where.items()):
            return event
    return None


def _taken(events: Sequence[Json], find: Find | None) -> Any:
    event = None if find is None else _last(events, find)
    return None if find is None or event is None else _at(event, find.take)


def _at(event: Any, path: str) -> Any:
    for name in filter(None, path.split(".")):
        event = event.get(name) if isinstance(event, dict) else None
    return event


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
