"""`/start`: a delivery or a backlog from a form, made from the schemas that are published."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web
from multidict import MultiDictProxy

from perdure.client import Perdure
from perdure.client.server.calls import HostRefused
from perdure.client.yaml_files import parse_backlog_file
from perdure.local.connect import for_this_server
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.issue import ForgeIssue, IssueName
from perdure.page.render import form_text, overview_of, path_part, perdure_of, redirect_with_message, render
from perdure.text import shorten

PATIENCE = timedelta(seconds=5)
"""The time to wait until a worker accepts it, which takes milliseconds: a person sees then what is wrong with it."""

_ROWS_FRESH_S, _ROWS_PATIENCE_S = 10.0, 0.5
"""The greatest age of the rows from which repositories are offered, and the time the form waits for newer ones."""

ISSUE_PATIENCE = timedelta(seconds=6)
"""The time to wait for an issue that is shown before the start, which can be without it."""

ISSUES_SHOWN = 5
"""Issues of a backlog's text that are shown: each is read by a worker."""

_NO_WORKER = "it waits for a worker: perdure up --detach starts one"
"""The message for what was started and has not been accepted within PATIENCE."""

_FIRST = ("repository", "request", "issue", "base", "phases", "gates", "attempts", "budget_usd")
_NOT_BY_HAND = frozenset({"spec_version", "source", "proof", "host", "landing", "resume", "forked"})
SHOWN_FIRST = ("repository", "request", "gates", "budget_usd")
"""Fields of the form itself; all others are under Advanced."""

_KNOWN_REPOSITORIES = 30
"""Repositories that the form offers: those of the deliveries that run and have ended last."""

_ADDRESS = re.compile(r"[a-zA-Z][\w+.-]*://|(?:[^/@\s]+@)?[^/:@\s]{2,}:")
"""The beginning of a repository that is no path: `https://`, or git's short `git@host:`."""

_LONG = frozenset({"request", "plan", "config"})


@dataclass(frozen=True)
class FormField:
    """A field of a form. `kind`: text, area, number, switch, list, or choices of which several may be taken."""

    name: str
    kind: str
    description: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [
        web.get("/start", show_start),
        web.post("/start/preview", preview_delivery),
        web.post("/start/preview/backlog", preview_backlog),
        web.post("/start/delivery", start_delivery),
        web.post("/start/backlog", start_backlog),
    ]


async def show_start(request: web.Request) -> web.StreamResponse:
    """Render both forms, empty, or with the repository that a link has named."""
    return await _render_form(request, request.query)


async def _render_form(
    request: web.Request, typed: Mapping[str, str], wrong: str = "", text: str = "", checked: Sequence[str] = ()
) -> web.StreamResponse:
    """Render both forms with what was typed; with what is wrong with it, if something is, and status 400 then.
    `checked`: the choices that were taken.

    The known repositories are offered, of the deliveries that were seen last.
    """
    rows = await overview_of(request).rows(_ROWS_FRESH_S, _ROWS_PATIENCE_S)
    known = list(dict.fromkeys(row.repository for row in rows if row.repository))[:_KNOWN_REPOSITORIES]
    fields = {field.name: field for field in form_fields()}
    return render(
        request,
        "start.html",
        status=400 if wrong else 200,
        first=[fields.pop(name) for name in SHOWN_FIRST],
        advanced=list(fields.values()),
        known=known,
        given=typed,
        checked=checked,
        wrong=wrong,
        text=text,
    )


def require_local_repository(repository: str) -> str:
    """Return a repository as it is to be sent: an address as it is, a path with the home directory for `~`.

    Raises BadInput for a path that is not whole, does not exist on this host, or is no git repository.
    """
    if _ADDRESS.match(repository):
        return repository
    path = Path(repository).expanduser()
    if not path.is_absolute():
        raise BadInput(
            f"{shorten(repository, 200)} is neither an address nor an absolute path",
            where="repository",
            fix="write it from / on",
        )
    if not path.is_dir():
        raise BadInput(f"there is no directory {shorten(repository, 200)} on this host", where="repository")
    if not (path / ".git").exists() and not (path / "HEAD").is_file():
        raise BadInput(f"{shorten(repository, 200)} is no git repository", where="repository", fix="git init makes one")
    return str(path)


def take_issue_address(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the request with an issue for its words where these are nothing but an issue's address, and with the
    issue's repository where none is named; else as it is."""
    text = raw.get("issue") or raw.get("request", "")
    try:
        name = IssueName.parse(text) if "://" in text else None
    except ValueError:
        return raw
    if name is None or name.repository is None:
        return raw
    replaced = {} if "issue" in raw else {"request": None, "issue": str(name.number)}
    return {"repository": name.repository, **raw, **replaced}


async def preview_delivery(request: web.Request) -> web.StreamResponse:
    """Render what a form's repository and issue are, before it is sent: the issue's title, author and text, or in one
    line why they cannot be shown or started. It starts nothing, and no delivery waits for it."""
    perdure, issue, wrong, unread = perdure_of(request), None, "", ""
    form = await request.post()
    values = {name: str(form.get(name, "")).strip() for name in ("repository", "request", "issue")}
    raw = take_issue_address({name: value for name, value in values.items() if value})
    try:
        if perdure.key is not None and "repository" in raw:
            await asyncio.to_thread(require_local_repository, raw["repository"])
        if "issue" in raw and "repository" in raw:
            IssueName.parse(raw["issue"])
            issue = await perdure.read_issue(raw["repository"], raw["issue"], ISSUE_PATIENCE)
    except BadInput as error:
        wrong = error.what
    except ValueError as error:
        wrong = str(error)
    except HostRefused as error:
        unread = error.failure_message
    except PerdureError as error:
        unread = error.what
    return render(request, "start_preview.html", raw=raw, issue=issue, wrong=wrong, unread=unread)


async def preview_backlog(request: web.Request) -> web.StreamResponse:
    """Render the issues that a backlog's text names, before it is sent: number, title and author of the first
    ISSUES_SHOWN, and in one line why others cannot be shown. It starts nothing, and nothing waits for it."""
    perdure, wrong, issues = perdure_of(request), "", list[tuple[str, ForgeIssue | str]]()
    try:
        text = await form_text(request, "backlog")
        raw = parse_backlog_file(text, "backlog").raw if text.strip() else {}
        items = raw["items"] if isinstance(raw.get("items"), list) else []
        named = [str(item["issue"]) for item in items if isinstance(item, dict) and item.get("issue")]
        if isinstance(repository := raw.get("repository"), str):
            reads = [_read_issue(perdure, repository, issue) for issue in named[:ISSUES_SHOWN]]
            issues = list(zip(named, await asyncio.gather(*reads), strict=False))
    except BadInput as error:
        wrong, named = " · ".join(filter(None, (error.what, error.where))), []
    omitted = len(named) - len(issues)
    return render(request, "start_preview_backlog.html", issues=issues, omitted=omitted, wrong=wrong)


async def _read_issue(perdure: Perdure, repository: str, issue: str) -> ForgeIssue | str:
    """Return an issue as a delivery would get it, or why it cannot be shown."""
    try:
        IssueName.parse(issue)
        return await perdure.read_issue(repository, issue, ISSUE_PATIENCE)
    except HostRefused as error:
        return error.failure_message
    except PerdureError as error:
        return error.what
    except ValueError as error:
        return str(error)


async def start_delivery(request: web.Request) -> web.StreamResponse:
    """Start a delivery from its form, or attach to the one of the same request that runs; redirect to its page.

    Waits PATIENCE for a worker to accept it; without one it is submitted all the same, and the page says so. What is
    wrong with the form is shown on it again, with status 400.
    """
    form: MultiDictProxy[Any] = await request.post()
    values = {name: value for name, value in form.items() if isinstance(value, str)}
    perdure = perdure_of(request)
    try:
        raw = take_issue_address(parse_form(form))
        if perdure.key is not None and raw.get("repository"):  # without the home's key no path of this host counts
            raw["repository"] = await asyncio.to_thread(require_local_repository, raw["repository"])
        submitted = await perdure.submit(raw, patience=PATIENCE)
    except (BadInput, InvalidRequest) as error:
        wrong = f"{error.what}{f' ({error.fix})' if error.fix else ''}"
        checked = [value for value in form.values() if isinstance(value, str)]
        return await _render_form(request, values, wrong, checked=checked)
    message = "it runs already" if submitted.attached else "it has begun"
    if submitted.accepted is False:
        message = for_this_server(_NO_WORKER)
    return redirect_with_message(request, f"/deliveries/{path_part(submitted.delivery.id)}", message)


async def start_backlog(request: web.Request) -> web.StreamResponse:
    """Start a backlog from its file's text, YAML or JSON, or attach to the same one, and redirect to its page.

    A missing name or a mistake in the text is shown on the form, with its line and status 400.
    """
    text, id = await form_text(request, "backlog"), (await form_text(request, "id")).strip()
    try:
        if not id:
            raise BadInput("the backlog has no name", where="id", fix="give it one, such as night")
        written = parse_backlog_file(text, "backlog")
        try:
            submission = await perdure_of(request).submit_backlog(written.raw, id, patience=PATIENCE)
        except InvalidRequest as error:
            raise written.locate_error(error) from None
    except BadInput as error:
        wrong = " · ".join(message for message in (error.what, error.where, error.fix) if message)
        return await _render_form(request, {"id": id}, wrong, text)
    message = "it is there already" if submission.attached else "it has begun"
    if submission.accepted is False:
        message = for_this_server(_NO_WORKER)
    return redirect_with_message(request, f"/backlogs/{path_part(submission.backlog.id)}", message)


def form_fields() -> list[FormField]:
    """Return the fields of a delivery's form, from its published schema: what is asked most comes first."""
    schema = DeliveryRequest.model_json_schema()
    descriptions = dict(_parse_field_texts(DeliveryRequest.__doc__ or ""))
    unordered = [
        _make_field(name, _plain_schema(shape, schema), descriptions.get(name, ""))
        for name, shape in schema["properties"].items()
        if name not in _NOT_BY_HAND
    ]
    order = {name: place for place, name in enumerate(_FIRST)}
    return sorted(unordered, key=lambda field: order.get(field.name, len(order)))


def parse_form(form: MultiDictProxy[Any]) -> dict[str, Any]:
    """Parse a delivery's form to a request: what was left empty is left out.

    Raises BadInput for a number that is none.
    """
    raw: dict[str, Any] = {}
    for field in form_fields():
        texts = [value.strip() for value in form.getall(field.name, []) if isinstance(value, str) and value.strip()]
        if not texts:
            continue
        match field.kind:
            case "switch":
                raw[field.name] = texts[0] == "true"
            case "number":
                raw[field.name] = _parse_number(field.name, texts[0])
            case "choices" | "list":
                raw[field.name] = texts if field.kind == "choices" else [part.strip() for part in texts[0].split(",")]
            case _:
                raw[field.name] = texts[0]
    return raw


def _parse_number(name: str, text: str) -> int | float:
    """Parse the whole or decimal number in a field; raise BadInput for what is none."""
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise BadInput(f"{name}: {shorten(text, 40)!r} is no number") from None


def _make_field(name: str, shape: Mapping[str, Any], description: str) -> FormField:
    """Make the form field of a property from its schema without references."""
    kinds = {"boolean": "switch", "integer": "number", "number": "number", "array": "list"}
    kind = "area" if name in _LONG else kinds.get(str(shape.get("type")), "text")
    choices = tuple(map(str, shape.get("items", {}).get("enum", ()))) if kind == "list" else ()
    kind = "choices" if choices else kind
    least = shape.get("minimum", shape.get("exclusiveMinimum"))
    return FormField(name, kind, description, choices, least, shape.get("maximum"))


def _plain_schema(shape: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve a property's schema: null and references are gone, and of several types text is taken, else the first."""
    if options := [option for option in shape.get("anyOf", ()) if option.get("type") != "null"]:
        shape = next((option for option in options if option.get("type") == "string"), options[0])
    if ref := shape.get("$ref"):
        shape = schema["$defs"][ref.rpartition("/")[2]]
    if isinstance(types := shape.get("type"), list):
        shape = {**shape, "type": next(name for name in types if name != "null")}
    items = shape.get("items")
    if isinstance(items, dict) and "$ref" in items:
        return {**shape, "items": schema["$defs"][items["$ref"].rpartition("/")[2]]}
    return shape


def _parse_field_texts(doc: str) -> list[tuple[str, str]]:
    """Parse the text about each field out of a model's docstring: name, two spaces, text, which may go on below."""
    texts = list[tuple[str, str]]()
    for line in doc.splitlines():
        name, gap, text = line.strip().partition("  ")
        if gap and name.replace("_", "").isalpha() and name in DeliveryRequest.model_fields:
            texts.append((name, text.strip()))
        elif texts and line.startswith(" " * 20):
            texts[-1] = texts[-1][0], f"{texts[-1][1]} {line.strip()}"
    return texts
