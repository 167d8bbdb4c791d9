"""A delivery's conversation: its events as rows, each turn with the agent's words, its calls and its change. The newest
rows are on the page, older ones come when they are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from perdure.client import RunDescription
from perdure.models.delivery.conversation import ConversationTurn
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType
from perdure.page.render import render
from perdure.page.views.delivery_cache import WatchedDelivery, watched_delivery
from perdure.render.event_text import event_sentence, is_repetition
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.view import diff_lines

ROWS_SHOWN = 40
"""Rows of one page, and of each portion of older ones: some screens, at most a megabyte."""

MESSAGES_SHOWN = 5
"""Messages of people beside the box to write one, the newest; all are in the conversation."""

STORY_PARTS = frozenset({"plan"})
"""The parts of the report that the conversation's page reads from the delivery's host."""

_ANSWER_FIELDS = 20
"""Most fields of an agent's answer that are shown one by one: the largest has seven."""


@dataclass(frozen=True)
class SentMessage:
    """A message of a person to the agents. `read_by`: the turn that has read it, as `implement, turn 3`; empty: none
    has."""

    text: str
    read_by: str


@dataclass(frozen=True)
class PlanTask:
    """A task of the plan. `state`: `changed` once all its files differ from the base, `begun` once one does, or empty:
    history does not say more."""

    title: str
    state: str


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [web.get("/deliveries/{id}/conversation", show_rows)]


async def show_rows(request: web.Request) -> web.Response:
    """Render the ROWS_SHOWN rows before offset `before` as a fragment, with a link to those before them; with `of`
    alone the row of that event, once more. Raises BadInput for anything else than numbers."""
    watched = watched_delivery(request)
    seen = await watched.read_description()
    events = await watched.read_events(seen)
    if "of" in request.query:
        offset = parse_offset(request.query["of"], len(events))
        rows, older = events[offset : offset + 1], 0
    else:
        rows, older = rows_before(events, parse_offset(request.query.get("before", ""), len(events)))
    report = await watched.read_report(seen, STORY_PARTS)
    values = await row_values(watched, report, rows)
    return render(request, "conversation_rows.html", id=watched.delivery.id, older=older, **values)


def parse_offset(text: str, most: int) -> int:
    """Parse a place in the events, at most `most`; empty: that. Raises BadInput for anything else than a number."""
    if text and not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise BadInput("that is no place in the conversation", where="before", fix="open the page again")
    return min(int(text), most) if text else most


def has_row(event: Event) -> bool:
    """Return whether an event has a row of its own: it says what no row beside it says."""
    if event.type is EventType.GATE:
        return bool(event.data.get("gate"))
    if event.type is EventType.STEP_ENDED and event.data.get("ending") == "done" and event.turn:
        return False  # its last turn says it
    return event.type is not EventType.PHASE and not is_repetition(event)


def rows_before(events: Sequence[Event], end: int) -> tuple[list[Event], int]:
    """Return the last ROWS_SHOWN events with a row before the place `end`, oldest first, and the place of the first of
    them where others with a row are before it, else 0."""
    rows = [event for event in events[:end] if has_row(event)]
    shown = rows[-ROWS_SHOWN:]
    return shown, shown[0].offset if len(rows) > len(shown) else 0


async def row_values(watched: WatchedDelivery, report: DeliveryReport, rows: Sequence[Event]) -> dict[str, Any]:
    """Return the values of conversation_rows.html but `id` and `older`: the rows, and the turns that are among them."""
    checkpoints = [checkpoint_of(event) for event in rows if checkpoint_of(event)]
    turns, unread = await watched.read_turns(checkpoints, report.queue) if checkpoints else ({}, "")
    values = {
        "events": rows,
        "turn_of": turns.get,
        "turns_unread": unread,
        "sentence": event_sentence,
        "place": _place_of,
    }
    return values | {"checkpoint": checkpoint_of, "diff_lines": diff_lines, "answer": answer_fields}


def answer_fields(text: str) -> list[tuple[str, str]]:
    """Return the fields of an answer that an agent gave as a JSON object, as name and text, at most _ANSWER_FIELDS;
    empty for any other text."""
    if not text.startswith("{"):
        return []
    try:
        fields = json.loads(text)
        return [(str(name), _plain_value(value)) for name, value in list(fields.items())[:_ANSWER_FIELDS]]
    except (ValueError, RecursionError):  # no JSON, or nested so deeply that nobody reads it so
        return []


def _plain_value(value: object) -> str:
    """Return a value of JSON as people read it: of an object the texts of its fields, its title first and numbers left
    out, as nobody knows what they count; of a list a line for each."""
    if isinstance(value, list):
        return "\n".join(map(_plain_value, value)) or "none"
    if isinstance(value, dict):
        named = sorted(value.items(), key=lambda field: field[0] != "title")
        texts = (_plain_value(part) for _, part in named if isinstance(part, str | list | dict))
        return " · ".join(text for text in texts if text not in ("", "none"))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def checkpoint_of(event: Event) -> str:
    """Return the checkpoint that a turn ended with; empty for any other event."""
    return str(event.data.get("checkpoint") or "") if event.type is EventType.ACTIVITY else ""


def _place_of(event: Event) -> str:
    """Return a turn as `perdure rewind --to` takes it, `implement.2:4`."""
    return f"{event.step}.{event.attempt}:{event.turn}" if (event.attempt or 1) > 1 else f"{event.step}:{event.turn}"


def sent_messages(events: Sequence[Event]) -> list[SentMessage]:
    """Return the last MESSAGES_SHOWN messages of people, oldest first, each with the turn that has read it."""
    readers = dict[str, str]()
    texts = dict[str, str]()
    for event in events:
        if event.type is EventType.ACTIVITY:
            place = f"{(event.step or '').replace('_', ' ')}, turn {event.turn}"
            readers |= {str(id): place for id in event.data.get("read") or ()}
        elif event.type is EventType.SAID and event.data.get("name") == "say":
            message = event.data.get("said")
            if isinstance(message, Mapping) and isinstance(message.get("text"), str):
                texts.setdefault(str(message.get("id") or event.offset), message["text"])
    return [SentMessage(text, readers.get(id, "")) for id, text in list(texts.items())[-MESSAGES_SHOWN:]]


def plan_tasks(report: DeliveryReport, newest: ConversationTurn | None) -> list[PlanTask]:
    """Return the plan's tasks, each by how many of its files differ from the base after the newest turn."""
    changed = set(newest.all_changed) if newest is not None else set[str]()
    return [
        PlanTask(task.title, _task_state([file in changed for file in task.files]))
        for task in (report.plan.tasks if report.plan else ())
    ]


def _task_state(files: Sequence[bool]) -> str:
    return "" if not any(files) else "changed" if all(files) else "begun"


async def newest_turn(watched: WatchedDelivery, seen: RunDescription, queue: str) -> ConversationTurn | None:
    """Return the last turn that ended, None where there is none or it cannot be read now."""
    events = await watched.read_events(seen)
    checkpoint = next((checkpoint_of(event) for event in reversed(events) if checkpoint_of(event)), "")
    turns, _ = await watched.read_turns([checkpoint], queue) if checkpoint else ({}, "")
    return turns.get(checkpoint)
