"""A backlog as it is sent: read, and refused in one line that names the item and the field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from perdure.models.backlog import ITEMS_BYTES, ITEMS_MOST, BacklogItem, BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.base import kind_of
from perdure.models.errors import InvalidRequest
from perdure.models.ids import digest
from perdure.models.issue import IssueName, same_repository
from perdure.models.request import explain, first_problem
from perdure.models.rules.dependencies import cycle
from perdure.models.rules.stack import no_place
from perdure.text import nearest, one_line

OTHER_ITEMS = "a backlog of other items"

_KEPT = (
    *("parallel", "budget_usd", "window", "overlap", "attempts", "after_red"),
    *("gates", "questions", "labels", "model", "agent", "config"),
)
"""A backlog is the same whatever these say, and goes on with those that it was started with."""

_FIELD_WITHIN = re.compile(r"(items\.\d+): (\w+: )")


def parse_backlog(raw: Any) -> BacklogRequest:
    """The backlog a client sent. InvalidRequest: `items.3.depends_on: …`, at `item page`."""
    if not isinstance(raw, dict):
        fix = 'send {"repository": …, "items": [{"id": "api", "request": …}]}'
        raise InvalidRequest(f"expected one JSON object, got {kind_of(raw)}", fix=fix)
    sent = raw.get("items")
    if isinstance(sent, list | tuple) and len(sent) > ITEMS_MOST:
        raise InvalidRequest(f"items: {len(sent)} of them, at most {ITEMS_MOST} fit: make two backlogs of it")
    if isinstance(sent, list | tuple) and not sent and raw.get("issues") is None:
        raise InvalidRequest("items: there is none")
    try:
        request = BacklogRequest.model_validate(raw)
    except ValidationError as error:
        place = first_problem(error)["loc"]
        at = place[1] if len(place) > 1 and place[0] == "items" and isinstance(place[1], int) else None
        words = _explained(error, BacklogRequest if at is None else BacklogItem)
        raise InvalidRequest(words, where=_where(sent, at)) from None
    if not request.items and request.issues is None:
        raise InvalidRequest("items: required field is missing")
    if words := oversized(request.items):
        raise InvalidRequest(words)
    for at, words in _wrong(request):
        raise InvalidRequest(f"items.{at}.{words}", where=_where(request.items, at))
    return request


def parse_item(raw: Any) -> BacklogItem:
    """One item, as `add` and `edit` take it. InvalidRequest names the field."""
    try:
        return BacklogItem.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest(_explained(error, BacklogItem)) from None


def oversized(items: Iterable[BacklogItem]) -> str:
    """Say that these are too much for one backlog, as `field: why`; empty when they are not."""
    size = sum(len(item.model_dump_json(exclude_defaults=True).encode()) for item in items)
    if size <= ITEMS_BYTES:
        return ""
    return f"items: {size / 1e6:.2f} MB of them, at most {ITEMS_BYTES / 1e6:.0f} MB fits: shorten them, or make two"


def unfit(item: BacklogItem, others: Mapping[str, BacklogItem], repository: str = "") -> str:
    """Say why an item cannot stand beside these, as `field: why`; empty when it can. A circle: see `circle`."""
    if item.id in item.depends_on:
        return f"depends_on: {item.id} depends on itself"
    if unknown := next((id for id in item.depends_on if id not in others), ""):
        return f"depends_on: there is no item {unknown}{nearest(unknown, others)}"
    if item.issue is not None and repository and not IssueName.parse(item.issue).belongs_to(repository):
        return f"issue: {str(item.issue)[:200]} is not an issue of {repository[:200]}"
    return ""


def circle(items: Iterable[BacklogItem]) -> str:
    """`api → page → api` where these wait for each other; empty: there is an order."""
    return " → ".join(cycle({item.id: item.depends_on for item in items}))


def sent_digest(request: BacklogRequest) -> str:
    """The same for the same items, in whatever order."""
    items = sorted(request.items, key=lambda item: item.id)
    return digest(*(json.dumps(item.model_dump(mode="json"), sort_keys=True) for item in items))


def taken(there: BacklogRequest, sent: BacklogRequest) -> str:
    """Name what the backlog there is, where that is not what was sent; how many at once, and money, do not count."""
    if words := _elsewhere(there, sent):
        return words
    before, now = ({item.id: item for item in request.items} for request in (there, sent))
    differ = [id for id in dict.fromkeys([*before, *now]) if before.get(id) != now.get(id)]
    return f"{OTHER_ITEMS}: {', '.join(differ[:5])}{' …' if len(differ) > 5 else ''}" if differ else ""


def is_issue(item: BacklogItem) -> bool:
    """True of an item that is an issue and nothing else, as a selector finds it."""
    return item.issue is not None and item == parse_item({"issue": item.issue})


def refusal(there: BacklogRequest, state: BacklogState, raw: Any) -> str:
    """Say why somebody who sent this cannot attach; empty when they can. Nothing sent fits every backlog.

    `there` has its items in its first run only; state.sent: their digest, as they were sent.
    """
    if raw is None or raw == {}:
        return ""
    try:
        sent = parse_backlog(raw)
    except InvalidRequest as error:
        return error.what
    if there.items:
        other = taken(there, sent)
    else:
        other = _elsewhere(there, sent)
        if not other and state.sent not in ("", sent_digest(sent)):
            other = OTHER_ITEMS
    return f"the id is taken by {other}" if other else ""


def not_counted(there: BacklogRequest, sent: BacklogRequest) -> tuple[str, ...]:
    """Fields in which the same backlog was sent otherwise than the one there was started: they change nothing."""
    return tuple(name for name in _KEPT if getattr(there, name) != getattr(sent, name))


def unlisted(raw: Mapping[str, Any]) -> BacklogRequest:
    """The request of a run that goes on: it was checked when the first one began, and its items are in the state."""
    listed = {name: tuple(raw.get(name, ())) for name in ("gates", "labels")}
    return BacklogRequest.model_construct(**({"repository": ""} | dict(raw) | listed | {"items": ()}))


def _elsewhere(there: BacklogRequest, sent: BacklogRequest) -> str:
    if not same_repository(there.repository, sent.repository):
        return f"a backlog of another repository, {there.repository[:200]}"
    if (there.base, there.branch) != (sent.base, sent.branch):
        return "a backlog of another base or branch"
    if there.land != sent.land:
        return f"a backlog that lands as a {there.land}, not as a {sent.land}"
    if there.issues != sent.issues:
        return f"a backlog of other issues, {there.issues or 'those that it was given'}"
    return ""


def _wrong(request: BacklogRequest) -> Iterable[tuple[int, str]]:
    """Mistakes that no item alone can tell: the item's place, and `field: why`."""
    first = dict[str, int]()
    for at, item in enumerate(request.items):
        if item.id in first:
            yield at, f"id: {item.id} is the id of item {first[item.id] + 1}, too"
        first.setdefault(item.id, at)
    known = {item.id: item for item in request.items}
    for at, item in enumerate(request.items):
        if words := unfit(item, known, request.repository):
            yield at, words
    if words := circle(request.items):
        yield first[words.split(" ")[0]], f"depends_on: none of these can be the first: {words}"
    elif request.land == "stack":
        yield from ((first[id], words) for id, item in known.items() if (words := no_place(item, known)))


def _explained(error: ValidationError, shape: type[BacklogItem | BacklogRequest]) -> str:
    problem = first_problem(error)
    words = _FIELD_WITHIN.sub(r"\1.\2", explain(error, tuple(shape.model_fields)))
    if problem["type"] == "string_pattern_mismatch":
        id = one_line(str(problem["input"]), 60)
        words = f"{words.partition(':')[0]}: {id!r} is no id: lower case letters, digits and dashes, at most 40"
    return words


def _where(items: Any, at: int | None) -> str:
    """`item page`; `item 4` where it has no name."""
    if at is None:
        return ""
    item = items[at] if isinstance(items, list | tuple) and at < len(items) else None
    id = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return f"item {one_line(id, 60)}" if isinstance(id, str) and id else f"item {at + 1}"
