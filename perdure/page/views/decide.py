"""Decisions of a person: forms that are posted here, each bound to what it decides."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

from aiohttp import web

from perdure.client import DecisionReply, Delivery
from perdure.client.delivery.decisions import wait_for_next_decision
from perdure.client.yaml_files import fetch_editable_plan, is_blank, parse_plan
from perdure.local.connect import not_received_message
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.errors import BadInput
from perdure.models.rules.inbox import NotCounted
from perdure.page.render import TITLES, delivery_of, path_part, person_of, redirect_with_message, render
from perdure.render.decision_lines import explain_invalid_answer, resolve_answer
from perdure.text import one_line, shorten

Fields = dict[str, str]


def routes() -> list[web.RouteDef]:
    """Return the routes of this view."""
    return [web.post("/deliveries/{id}/decide/{update}", post_decision)]


async def post_decision(request: web.Request) -> web.Response:
    """Send the decision of a posted form to the delivery, and redirect with the reply to the inbox, which offers the
    next question.

    When it does not count, answers with a page that shows why and what was typed: 409 when the delivery refuses it,
    else 400, also for a form that does not say what it decides. Answers 404 for an unknown update.
    """
    delivery, fields = delivery_of(request), await _form_fields(request)
    update = request.match_info["update"]
    if (send := _DECISIONS.get(update)) is None:
        raise web.HTTPNotFound
    if not (target := fields.get("of", "")):
        return _render_refusal(
            request, BadInput("a form has to say what it decides", where="of", fix="open the page again")
        )
    try:
        reply = await send(delivery, target, fields, person_of(request))
    except BadInput as error:
        return _render_refusal(request, error, fields)
    message = reply.message if reply.received else not_received_message()
    title = (await request.app[TITLES].read_titles([delivery.id])).get(delivery.id, delivery.id)
    message = f"{shorten(title, 100)}: {one_line(message, 300)}"
    return redirect_with_message(request, f"/?after={path_part(delivery.id)}", message)


async def _send_approval(delivery: Delivery, target: str, fields: Fields, by: str) -> DecisionReply:
    return await delivery.approve(target, note=fields.get("note", ""), by=by)


async def _send_rejection(delivery: Delivery, target: str, fields: Fields, by: str) -> DecisionReply:
    if not fields.get("note", "").strip():
        raise BadInput("say why: planning or fixing goes on with it", where="note", fix="write it in the comment")
    return await delivery.reject(fields["note"], target, by=by)


async def _send_answer(delivery: Delivery, target: str, fields: Fields, by: str) -> DecisionReply:
    """Send the answer to the delivery's question, as the choice it means.

    Raises BadInput for an empty answer and for none of the choices.
    """
    answer = fields.get("answer", "")
    if not answer.strip():
        raise BadInput("the answer is empty", where="answer", fix="write or choose one")
    pending_decision = (await delivery.describe()).pending_decision
    if pending_decision is not None and pending_decision.target == target and pending_decision.question is not None:
        answer = resolve_answer(pending_decision.question, answer)
        what, _ = explain_invalid_answer(pending_decision.question, answer, delivery.id)
        if what:
            raise BadInput(what, where=one_line(pending_decision.question.text), fix="choose one of them")
    return await delivery.answer(answer, target, by=by)


async def _send_edited_plan(delivery: Delivery, target: str, fields: Fields, by: str) -> DecisionReply:
    """Replace the plan that waits by the edited one, wait for that to be accepted, and approve it; unchanged it is
    approved.

    When no worker takes the edit, its reply is returned and no approval sent. Raises BadInput for an empty or wrong
    plan, NotCounted when the delivery waits for something else by now, and PerdureError when worker or host does not
    answer.
    """
    text = fields.get("plan", "")
    if is_blank(text):
        raise BadInput("the plan is empty", where="plan", fix="approve it as it is, or reject it")
    pending_decision = await _require_pending(delivery, target)
    before, _, markdown = await fetch_editable_plan(delivery)
    if text.strip() == before.strip():
        return await delivery.approve(target, by=by)
    plan, title = parse_plan(text, markdown=markdown)
    reply = await delivery.edit_plan(plan, target, title=title, by=by)
    if not reply.received:
        return reply
    return await delivery.approve((await wait_for_next_decision(delivery, pending_decision)).target, by=by)


async def _require_pending(delivery: Delivery, target: str) -> PendingDecision:
    """Return the decision that the delivery waits for.

    Raises NotCounted when it waits for nothing, or for another one than `target`, and BadInput when it has ended or
    does not exist.
    """
    pending_decision = await delivery.waits_for()
    if pending_decision.target != target:
        raise NotCounted(
            f"it waits for {pending_decision.gate.replace('_', ' ')} {pending_decision.target} by now, "
            f"not for {one_line(target, 64)}"
        )
    return pending_decision


async def _send_budget(delivery: Delivery, target: str, fields: Fields, by: str) -> DecisionReply:
    """Add dollars, tokens or time for what waits, once, however many send the form.

    Raises BadInput for no number and a delivery that has ended, NotCounted when nothing is added or the delivery
    refuses it, and InvalidRequest for an amount that cannot be added.
    """
    usd, tokens = _parse_number(fields, "usd"), _parse_number(fields, "tokens")
    if tokens != int(tokens):
        raise BadInput(f"{shorten(fields['tokens'], 40)!r} is no number of tokens", where="tokens")
    return await delivery.add_budget(usd, int(tokens), fields.get("time") or None, target, by=by, id=f"page-{target}")


def _parse_number(fields: Fields, name: str) -> float:
    """Parse the number in a form's field, with `$` and thousands' commas; 0 where it is empty.

    Raises BadInput for no number.
    """
    text = fields.get(name, "").strip().lstrip("$")
    try:
        number = float(text.replace(",", "")) if text else 0
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(f"{shorten(text, 40)!r} is no number", where=name, fix="such as 5")
    return number


_DECISIONS: dict[str, Callable[[Delivery, str, Fields, str], Awaitable[DecisionReply]]] = {
    "approve": _send_approval,
    "reject": _send_rejection,
    "answer": _send_answer,
    "edit_plan": _send_edited_plan,
    "add_budget": _send_budget,
}


async def _form_fields(request: web.Request) -> Fields:
    """Return the texts of a form by field, with newlines as everywhere else."""
    form = await request.post()
    return {name: value.replace("\r\n", "\n") for name, value in form.items() if isinstance(value, str)}


def _render_refusal(request: web.Request, error: BadInput, fields: Fields | None = None) -> web.Response:
    """Render why a decision does not count, with what was typed, so that it is not lost.

    Status 409 for NotCounted, else 400.
    """
    typed = next((fields[name] for name in ("note", "answer", "plan", "text") if fields and fields.get(name)), "")
    status = 409 if isinstance(error, NotCounted) else 400
    return render(request, "error.html", status=status, what=error.what, where=error.where, fix=error.fix, typed=typed)
