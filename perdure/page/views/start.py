"""`/start`: a delivery or a backlog from a form, made from the shapes that are published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from aiohttp import web
from multidict import MultiDictProxy

from perdure.cli.backlog.file import parsed
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.request import DeliveryRequest
from perdure.page.render import done, part, perdure_of, render, text_of

PATIENCE = timedelta(seconds=5)
"""For a worker to accept it, which takes milliseconds: a person sees then what is wrong with it."""

_FIRST = ("repository", "request", "issue", "base", "phases", "gates", "attempts", "budget_usd")
_NOT_BY_HAND = frozenset({"spec_version", "source", "proof", "landing", "resume", "forked"})
_LONG = frozenset({"request", "plan", "config"})


@dataclass(frozen=True)
class Field:
    """One field of a form. `kind`: text, area, number, switch, or choices of which several may be taken."""

    name: str
    kind: str
    words: str
    choices: tuple[str, ...] = ()
    needed: bool = False
    least: float | None = None
    most: float | None = None


def routes() -> list[web.RouteDef]:
    return [
        web.get("/start", show),
        web.post("/start/delivery", delivery),
        web.post("/start/backlog", backlog),
    ]


async def show(request: web.Request) -> web.StreamResponse:
    """Both forms, empty, or with the repository that a link has named."""
    return render(request, "start.html", fields=fields(), given=request.query, wrong="", text="")


async def delivery(request: web.Request) -> web.StreamResponse:
    """Start a delivery, or come to the one of the same words that runs."""
    form: MultiDictProxy[Any] = await request.post()
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        submitted = await perdure_of(request).submit(asked(form), patience=PATIENCE)
    except (BadInput, InvalidRequest) as error:
        wrong = f"{error.what}{f' ({error.fix})' if error.fix else ''}"
        return render(request, "start.html", status=400, fields=fields(), given=given, wrong=wrong, text="")
    words = "it runs already" if submitted.attached else "it has begun"
    if submitted.accepted is False:
        words = "it waits for a worker: perdure up --detach starts one"
    return done(request, f"/deliveries/{part(submitted.delivery.id)}", words)


async def backlog(request: web.Request) -> web.StreamResponse:
    """Start a backlog from what would stand in its file, YAML or JSON; a mistake is named with its line."""
    text, id = await text_of(request, "backlog"), (await text_of(request, "id")).strip()
    try:
        if not id:
            raise BadInput("the backlog has no name", where="id", fix="give it one, such as night")
        written = parsed(text, "backlog")
        try:
            made = await perdure_of(request).submit_backlog(written.raw, id, patience=PATIENCE)
        except InvalidRequest as error:
            raise written.placed(error) from None
    except BadInput as error:
        wrong = " · ".join(words for words in (error.what, error.where, error.fix) if words)
        given = {"id": id}
        return render(request, "start.html", status=400, fields=fields(), given=given, wrong=wrong, text=text)
    words = "it is there already" if made.attached else "it has begun"
    return done(request, f"/backlogs/{part(made.backlog.id)}", words)


def fields() -> list[Field]:
    """The form of a delivery, from its published shape: what is asked most comes first."""
    schema = DeliveryRequest.model_json_schema()
    words = dict(_field_words(DeliveryRequest.__doc__ or ""))
    found = [
        _field(name, _plain(shape, schema), words.get(name, ""), name in schema.get("required", ()))
        for name, shape in schema["properties"].items()
        if name not in _NOT_BY_HAND
    ]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(found, key=lambda one: order.get(one.name, len(order)))


def asked(form: MultiDictProxy[Any]) -> dict[str, Any]:
    """The request that a form stands for: what was left empty is left out. BadInput for a number that is none."""
    raw: dict[str, Any] = {}
    for one in fields():
        said = [value.strip() for value in form.getall(one.name, []) if isinstance(value, str) and value.strip()]
        if not said:
            continue
        match one.kind:
            case "switch":
                raw[one.name] = said[0] == "true"
            case "number":
                raw[one.name] = _number(one.name, said[0])
            case "choices" | "list":
                raw[one.name] = said if one.kind == "choices" else [part.strip() for part in said[0].split(",")]
            case _:
                raw[one.name] = said[0]
    return raw


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise BadInput(f"{name}: {text[:40]!r} is no number") from None


def _field(name: str, shape: Mapping[str, Any], words: str, needed: bool) -> Field:
    kinds = {"boolean": "switch", "integer": "number", "number": "number", "array": "list"}
    kind = "area" if name in _LONG else kinds.get(str(shape.get("type")), "text")
    choices = tuple(map(str, shape.get("items", {}).get("enum", ()))) if kind == "list" else ()
    kind = "choices" if choices else kind
    least = shape.get("minimum", shape.get("exclusiveMinimum"))
    return Field(name, kind, words, choices, needed, least, shape.get("maximum"))


def _plain(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's shape without null and references."""
    if options := [one for one in shape.get("anyOf", ()) if one.get("type") != "null"]:
        shape = next((one for one in options if one.get("type") == "string"), options[0])
    if ref := shape.get("$ref"):
        shape = schema["$defs"][ref.rpartition("/")[2]]
    items = shape.get("items")
    if isinstance(items, dict) and "$ref" in items:
        return {**shape, "items": schema["$defs"][items["$ref"].rpartition("/")[2]]}
    return shape


def _field_words(doc: str) -> list[tuple[str, str]]:
    """The words of each field, as the shape's description has them: name, two spaces, words, which may go on below."""
    found = list[tuple[str, str]]()
    for line in doc.splitlines():
        name, gap, words = line.strip().partition("  ")
        if gap and name.replace("_", "").isalpha() and name in DeliveryRequest.model_fields:
            found.append((name, words.strip()))
        elif found and line.startswith(" " * 20):
            found[-1] = found[-1][0], f"{found[-1][1]} {line.strip()}"
    return found
