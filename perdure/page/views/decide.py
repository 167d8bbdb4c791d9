"""Decisions of a person: forms that are posted here, each bound to what it decides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

from perdure.cli.decide.answer import not_read_yet
from perdure.cli.decide.asking import meant, none_of
from perdure.cli.decide.edit import plan_to_edit, put_again
from perdure.cli.decide.planfile import blank, parsed
from perdure.cli.decide.showing import asked_lines
from perdure.client import Answered, Delivery
from perdure.models.decisions import Asked
from perdure.models.errors import BadInput, PerdureError
from perdure.models.rules.inbox import NotCounted
from perdure.page.render import delivery_of, done, part, person_of, render
from perdure.text import one_line

Fields = dict[str, str]


def routes() -> list[web.RouteDef]:
    return [
        web.get("/deliveries/{id}/decide", decide_page),
        web.post("/deliveries/{id}/decide/{update}", decide),
    ]


async def decide_page(request: web.Request) -> web.Response:
    """All of what it waits for, with every way to decide; as a fragment where a card asks for it."""
    delivery = delivery_of(request)
    asked = await delivery.waits_for()
    edit, why = "", ""
    if "edit_plan" in asked.options:
        try:
            edit, *_ = await plan_to_edit(delivery)
        except PerdureError as error:
            why = error.what
    fragment = request.headers.get("HX-Request") == "true"
    template = "asked.html" if fragment else "decide.html"
    lines = await asked_lines(delivery, asked)
    return render(request, template, id=delivery.id, asked=asked, lines=lines, edit=edit, why=why)


async def decide(request: web.Request) -> web.Response:
    delivery, fields = delivery_of(request), await _fields(request)
    update = request.match_info["update"]
    if (way := _DECISIONS.get(update)) is None:
        raise web.HTTPNotFound
    if not (of := fields.get("of", "")):
        return _not_done(request, BadInput("a form has to say what it decides", where="of", fix="open the page again"))
    try:
        answered = await way(delivery, of, fields, person_of(request))
    except BadInput as error:
        return _not_done(request, error, fields)
    words = answered.words if answered.read else not_read_yet()
    return done(request, _back(request, delivery.id), f"{delivery.id}: {one_line(words, 300)}")


async def _approve(delivery: Delivery, of: str, fields: Fields, by: str) -> Answered:
    return await delivery.approve(of, note=fields.get("note", ""), by=by)


async def _reject(delivery: Delivery, of: str, fields: Fields, by: str) -> Answered:
    if not fields.get("note", "").strip():
        raise BadInput("say why: planning or fixing goes on with it", where="note", fix="write it beside Reject")
    return await delivery.reject(fields["note"], of, by=by)


async def _answer(delivery: Delivery, of: str, fields: Fields, by: str) -> Answered:
    words = fields.get("answer", "")
    if not words.strip():
        raise BadInput("the answer is empty", where="answer", fix="write or choose one")
    asked = (await delivery.describe()).asked
    if asked is not None and asked.of == of and asked.question is not None:
        words = meant(asked.question, words)
        what, _ = none_of(asked.question, words, delivery.id)
        if what:
            raise BadInput(what, where=one_line(asked.question.text), fix="choose one of them")
    return await delivery.answer(words, of, by=by)


async def _edit_plan(delivery: Delivery, of: str, fields: Fields, by: str) -> Answered:
    """The edited plan in the place of the one that waits, and approved; unchanged it is an approval."""
    text = fields.get("plan", "")
    if blank(text):
        raise BadInput("the plan is empty", where="plan", fix="approve it as it is, or reject it")
    asked = await _still(delivery, of)
    before, _, markdown = await plan_to_edit(delivery)
    if text.strip() == before.strip():
        return await delivery.approve(of, by=by)
    plan, title = parsed(text, markdown=markdown)
    answered = await delivery.edit_plan(plan, of, title=title, by=by)
    if not answered.read:
        return answered
    return await delivery.approve((await put_again(delivery, asked)).of, by=by)


async def _still(delivery: Delivery, of: str) -> Asked:
    asked = await delivery.waits_for()
    if asked.of != of:
        raise NotCounted(f"it waits for {asked.gate.replace('_', ' ')} {asked.of} by now, not for {one_line(of, 64)}")
    return asked


async def _add_budget(delivery: Delivery, of: str, fields: Fields, by: str) -> Answered:
    """Once for what waits, however many send it."""
    usd, tokens = _number(fields, "usd"), _number(fields, "tokens")
    if tokens != int(tokens):
        raise BadInput(f"{fields['tokens'][:40]!r} is no number of tokens", where="tokens")
    return await delivery.add_budget(usd, int(tokens), fields.get("time") or None, of, by=by, id=f"page-{of}")


def _number(fields: Fields, name: str) -> float:
    text = fields.get(name, "").strip().lstrip("$")
    try:
        return float(text.replace(",", "")) if text else 0
    except ValueError:
        raise BadInput(f"{text[:40]!r} is no number", where=name, fix="such as 5") from None


_DECISIONS: dict[str, Callable[[Delivery, str, Fields, str], Awaitable[Answered]]] = {
    "approve": _approve,
    "reject": _reject,
    "answer": _answer,
    "edit_plan": _edit_plan,
    "add_budget": _add_budget,
}


async def _fields(request: web.Request) -> Fields:
    """The texts of a form, with newlines as everywhere else."""
    form = await request.post()
    return {name: value.replace("\r\n", "\n") for name, value in form.items() if isinstance(value, str)}


def _not_done(request: web.Request, error: BadInput, fields: Fields | None = None) -> web.Response:
    """The delivery's own words, and what was typed, so that it is not lost."""
    typed = next((fields[name] for name in ("note", "answer", "plan", "text") if fields and fields.get(name)), "")
    status = 409 if isinstance(error, NotCounted) else 400
    return render(request, "error.html", status=status, what=error.what, where=error.where, fix=error.fix, typed=typed)


def _back(request: web.Request, id: str) -> str:
    """The delivery's page where the form stood there, else the inbox."""
    its = f"/deliveries/{part(id)}"
    return its if urlsplit(request.headers.get("Referer", "")).path == its else "/"
