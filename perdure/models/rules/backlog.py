"""Parsing of a backlog as it is sent, and the reasons for refusing one or an item of it, or for not attaching to one
that exists, each in one line that names item and field. Commands and client check by it before they send, workflow
`Backlog` when it receives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from perdure.models.backlog.request import ITEMS_BYTES, ITEMS_MOST, BacklogItem, BacklogRequest
from perdure.models.base import json_type_name
from perdure.models.delivery.request import describe_invalid_field, first_problem
from perdure.models.errors import InvalidRequest
from perdure.models.ids import digest
from perdure.models.issue import IssueName, is_same_repository
from perdure.models.rules.dependencies import find_cycle, no_place_reason
from perdure.text import nearest, one_line, shorten

if TYPE_CHECKING:
    from perdure.models.backlog.state import BacklogState

OTHER_ITEMS = "a backlog of other items"

_FIELDS_NOT_COMPARED = (
    *("parallel", "budget_usd", "window", "overlap", "attempts", "after_red"),
    *("gates", "questions", "labels", "model", "agent", "config"),
)
"""Fields by which two backlogs do not differ: a backlog goes on with the values that it was started with."""

_ITEM_FIELD = re.compile(r"(items\.\d+): (\w+: )")


def parse_backlog(raw: Any) -> BacklogRequest:
    """Return the checked backlog that a client sent.

    Raises InvalidRequest for what is no object, a bad or unknown field, no or too many items, items that are too large
    together, ids used twice, issues of another repository, unknown or circular dependencies, and items that have no
    place in a stack: it names the field and, as its place, the item: `items.3.depends_on: …`, `item page`.
    """
    if not isinstance(raw, dict):
        fix = 'send {"repository": …, "items": [{"id": "api", "request": …}]}'
        raise InvalidRequest(f"expected one JSON object, got {json_type_name(raw)}", fix=fix)
    raw_items = raw.get("items")
    if isinstance(raw_items, list | tuple) and len(raw_items) > ITEMS_MOST:
        raise InvalidRequest(f"items: {len(raw_items)} of them, at most {ITEMS_MOST} fit: make two backlogs of it")
    if isinstance(raw_items, list | tuple) and not raw_items and raw.get("issues") is None:
        raise InvalidRequest("items: there is none")
    try:
        request = BacklogRequest.model_validate(raw)
    except ValidationError as error:
        location = first_problem(error)["loc"]
        index = location[1] if len(location) > 1 and location[0] == "items" and isinstance(location[1], int) else None
        reason = _describe_error(error, BacklogRequest if index is None else BacklogItem)
        raise InvalidRequest(reason, where=_item_label(raw_items, index)) from None
    if not request.items and request.issues is None:
        raise InvalidRequest("items: required field is missing")
    if reason := oversize_reason(request.items):
        raise InvalidRequest(reason)
    for index, reason in _find_mistakes(request):
        raise InvalidRequest(f"items.{index}.{reason}", where=_item_label(request.items, index))
    return request


def parse_item(raw: Any) -> BacklogItem:
    """Return the checked item that an update `add` or `edit` brings. Raises InvalidRequest that names the field."""
    try:
        return BacklogItem.model_validate(raw)
    except ValidationError as error:
        raise InvalidRequest(_describe_error(error, BacklogItem)) from None


def oversize_reason(items: Iterable[BacklogItem]) -> str:
    """Return the reason why these items are too large for one backlog, as `field: why`: their JSON together has more
    than ITEMS_BYTES; empty: they fit."""
    size = sum(len(item.model_dump_json(exclude_defaults=True).encode()) for item in items)
    if size <= ITEMS_BYTES:
        return ""
    return f"items: {size / 1e6:.2f} MB of them, at most {ITEMS_BYTES / 1e6:.0f} MB fits: shorten them, or make two"


def invalid_item_reason(item: BacklogItem, items: Mapping[str, BacklogItem], repository: str = "") -> str:
    """Return the reason why an item cannot stand in a backlog, as `field: why`; empty: it can.

    It cannot when it depends on itself or on an item that does not exist, or is an issue of another repository. Cycles
    are found by `describe_cycle`, not here.

    items       all of the backlog, by id
    repository  the backlog's; empty: issues are not checked
    """
    if item.id in item.depends_on:
        return f"depends_on: {item.id} depends on itself"
    if unknown := next((id for id in item.depends_on if id not in items), ""):
        return f"depends_on: there is no item {unknown}{nearest(unknown, items)}"
    if item.issue is not None and repository and not IssueName.parse(item.issue).may_belong_to(repository):
        return f"issue: {shorten(item.issue, 200)} is not an issue of {shorten(repository, 200)}"
    return ""


def describe_cycle(items: Iterable[BacklogItem]) -> str:
    """Return `api → page → api` when items wait for each other in a circle; empty when there is an order in which all
    can begin."""
    return " → ".join(find_cycle({item.id: item.depends_on for item in items}))


def digest_of_items(request: BacklogRequest) -> str:
    """Return a digest of a backlog's items that is the same in whatever order they stand."""
    items = sorted(request.items, key=lambda item: item.id)
    return digest(*(json.dumps(item.model_dump(mode="json"), sort_keys=True) for item in items))


def conflicting_backlog(existing: BacklogRequest, sent: BacklogRequest) -> str:
    """Return, in words, how the existing backlog differs from the one that was sent; empty when they are the same.

    Repository, base, branch, way to land, query for issues and items count; how many are built at once, money and the
    like do not.
    """
    if conflict := _conflicting_terms(existing, sent):
        return conflict
    before, now = ({item.id: item for item in request.items} for request in (existing, sent))
    different_ids = [id for id in dict.fromkeys([*before, *now]) if before.get(id) != now.get(id)]
    return (
        f"{OTHER_ITEMS}: {', '.join(different_ids[:5])}{' …' if len(different_ids) > 5 else ''}"
        if different_ids
        else ""
    )


def is_bare_issue(item: BacklogItem) -> bool:
    """Return True when an item is an issue and sets no other field, as a query for issues makes it."""
    return item.issue is not None and item == parse_item({"issue": item.issue})


def backlog_attach_refusal(existing: BacklogRequest, state: BacklogState, raw: Any) -> str:
    """Return the reason why whoever sent `raw` cannot attach to the existing backlog; empty: they can.

    existing  its request, which has its items in its first run only; `state` has the digest of those that were sent
    raw       the backlog as it was sent; None or {} fits every backlog. The reason for an invalid one names its field
    """
    if raw is None or raw == {}:
        return ""
    try:
        sent = parse_backlog(raw)
    except InvalidRequest as error:
        return error.what
    if existing.items:
        conflict = conflicting_backlog(existing, sent)
    else:
        conflict = _conflicting_terms(existing, sent)
        if not conflict and state.items_digest not in ("", digest_of_items(sent)):
            conflict = OTHER_ITEMS
    return f"the id is taken by {conflict}" if conflict else ""


def ignored_fields(existing: BacklogRequest, sent: BacklogRequest) -> tuple[str, ...]:
    """Return the fields of _FIELDS_NOT_COMPARED that differ from the existing backlog's: sending them changes
    nothing."""
    return tuple(name for name in _FIELDS_NOT_COMPARED if getattr(existing, name) != getattr(sent, name))


def continued_request(raw: Any) -> BacklogRequest:
    """Return the request of a backlog's later run, without its items, and checked for the types of its fields and for
    its window.

    All else was checked when the first run began, and its items are in the state. Raises InvalidRequest, which names
    the field, where that is wrong: anybody can start a run with a state.
    """
    if not isinstance(raw, dict):
        raise InvalidRequest(f"expected one JSON object, got {json_type_name(raw)}")
    try:
        BacklogRequest.model_validate({"repository": "", **raw, "items": [{"id": "x", "request": "x"}]})
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_context=False, include_input=False):
            is_number_wrong = problem["msg"].endswith("write a number")  # require_number raises a plain ValueError
            is_window_wrong = problem["loc"] == ("window",)  # parsed before the state is verified
            if (
                is_number_wrong
                or is_window_wrong
                or problem["type"].endswith(("_type", "_parsing", "enum", "literal_error"))
            ):
                raise InvalidRequest(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}") from None
    listed = {name: tuple(raw.get(name, ())) for name in ("gates", "labels")}
    return BacklogRequest.model_construct(**({"repository": ""} | dict(raw) | listed | {"items": ()}))


def _conflicting_terms(existing: BacklogRequest, sent: BacklogRequest) -> str:
    """Return, in words, how the existing backlog differs from the one that was sent in repository, base, branch, way to
    land or query for issues, whichever comes first; empty: in none."""
    if not is_same_repository(existing.repository, sent.repository):
        return f"a backlog of another repository, {shorten(existing.repository, 200)}"
    if (existing.base, existing.branch) != (sent.base, sent.branch):
        return "a backlog of another base or branch"
    if existing.land != sent.land:
        return f"a backlog that lands as a {existing.land}, not as a {sent.land}"
    if existing.issues != sent.issues:
        return f"a backlog of other issues, {existing.issues or 'those that it was given'}"
    return ""


def _find_mistakes(request: BacklogRequest) -> Iterable[tuple[int, str]]:
    """Yield the mistakes that show only when items are compared: the item's index, and `field: why`.

    They are ids used twice, items that `invalid_item_reason` refuses, cycles, and items that fit into no place of a
    stack.
    """
    first_indexes = dict[str, int]()
    for index, item in enumerate(request.items):
        if item.id in first_indexes:
            yield index, f"id: {item.id} is the id of item {first_indexes[item.id] + 1}, too"
        first_indexes.setdefault(item.id, index)
    items_by_id = {item.id: item for item in request.items}
    for index, item in enumerate(request.items):
        if reason := invalid_item_reason(item, items_by_id, request.repository):
            yield index, reason
    if reason := describe_cycle(request.items):
        yield first_indexes[reason.split(" ")[0]], f"depends_on: none of these can be the first: {reason}"
    elif request.is_stack:
        yield from (
            (first_indexes[id], reason)
            for id, item in items_by_id.items()
            if (reason := no_place_reason(item, items_by_id))
        )


def _describe_error(error: ValidationError, model: type[BacklogItem | BacklogRequest]) -> str:
    """Return a validation error's first problem as `field: what is wrong`; for a bad id, with what ids consist of.

    model  the model whose field names are proposed instead of an unknown one
    """
    problem = first_problem(error)
    text = _ITEM_FIELD.sub(r"\1.\2", describe_invalid_field(error, tuple(model.model_fields)))
    if problem["type"] == "string_pattern_mismatch":
        id = one_line(str(problem["input"]), 60)
        text = f"{text.partition(':')[0]}: {id!r} is no id: lower case letters, digits and dashes, at most 40"
    return text


def _item_label(items: Any, index: int | None) -> str:
    """Return how errors name the item at this index: `item page`, or `item 4`, counted from 1, when it has no id; empty
    when the index is None."""
    if index is None:
        return ""
    item = items[index] if isinstance(items, list | tuple) and index < len(items) else None
    id = item.get("id") if isinstance(item, dict) else getattr(item, "id", None)
    return f"item {one_line(id, 60)}" if isinstance(id, str) and id else f"item {index + 1}"
