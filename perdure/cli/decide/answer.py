"""Commands by which a person answers or steers a delivery: `approve`, `reject`, `answer`, `say`, `hold`, `resume`."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from perdure.adapters.system.home import login_name
from perdure.cli.decide.gate import decide_at_gate, edit_plan, print_plan, report_decision
from perdure.cli.screen import Screen, text_or_stdin
from perdure.cli.session import run_with_delivery
from perdure.models.errors import BadInput, PerdureError
from perdure.models.rules.inbox import NotCounted
from perdure.render.decision_lines import (
    choices_of,
    commands_for_decision,
    explain_invalid_answer,
    pending_summary,
    resolve_answer,
    resolve_choice,
)
from perdure.render.step_lines import GOOD
from perdure.text import one_line, shell_word, shorten

if TYPE_CHECKING:
    from perdure.client import DecisionReply, Delivery
    from perdure.models.delivery.decisions import PendingDecision


def approve(id: str, note: str, target: str, yes: bool, edit: bool, file: Path | None, show: bool, json: bool) -> None:
    """Say yes to what a delivery waits with: its plan, its items, its pull request, or a price nobody knows.

    On a terminal, without `yes`, show it and ask first; elsewhere send it at once. `show`: only print plan or items;
    `edit`, `file`: approve an edited version. `target`: what is meant to be decided; empty: whatever waits. Raises
    typer.Exit with the exit code, and BadInput where it waits for nothing, for another target, or not for an approval.
    """
    if edit or file is not None or show:
        _approve_edited(id, note, target, yes, file, show, json)
        return

    async def approve_pending(delivery: Delivery, pending_decision: PendingDecision, screen: Screen) -> DecisionReply:
        if not yes and screen.is_terminal and sys.stdin.isatty():
            raise typer.Exit(
                0 if await decide_at_gate(delivery, pending_decision, screen, note=note) else _report_undecided(screen)
            )
        return await delivery.approve(pending_decision.target, note=note, by=login_name())

    _run_decision("approve", id, target, json, approve_pending)


def _approve_edited(id: str, note: str, target: str, yes: bool, file: Path | None, show: bool, json: bool) -> None:
    """Print the plan or items that wait, with `show`; else put an edited version in their place and approve it, and
    exit with its code.

    `file`: the edited version, None opens the editor. Raises BadInput when no plan waits.
    """
    screen = Screen(json=json)
    if show:
        run_with_delivery(screen, id, lambda delivery: print_plan(delivery, screen, target), decision="edit_plan")
        return
    ask = not yes and screen.is_terminal and sys.stdin.isatty()
    raise typer.Exit(
        run_with_delivery(
            screen,
            id,
            lambda delivery: edit_plan(delivery, screen, file=file, target=target, note=note, ask=ask),
            decision="edit_plan",
        )
    )


def reject(id: str, note: str | None, target: str, json: bool) -> None:
    """Send back what a delivery waits with; planning or fixing begins again with `note`, `-` for standard input.

    Prints what became of it and raises typer.Exit with code 0. Raises BadInput when no reason is given, `id` names no
    single delivery, or it waits for nothing, for another `target`, or for something that cannot be rejected.
    """
    reason = text_or_stdin(note or "")
    if not reason.strip():
        fix = f'perdure reject {shell_word(id)} --note "what is wrong, and what instead"'
        raise BadInput("say why: planning or fixing goes on with it", where="--note", fix=fix)
    _run_decision(
        "reject",
        id,
        target,
        json,
        lambda delivery, pending_decision, _: delivery.reject(reason, pending_decision.target, by=login_name()),
    )


def answer(id: str, text: str | None, choice: str | None, target: str, json: bool) -> None:
    """Send the answer to the question a delivery waits with: `text`, `-` for standard input, or the `choice` it names.

    A choice may be meant by its number or beginning. Prints what became of it and raises typer.Exit with code 0. Raises
    BadInput when both or neither are given, the answer is none of the choices, `id` names no single delivery, or it
    waits for no question or for another `target`.
    """
    if text is not None and choice is not None:
        raise BadInput("the answer was given twice", where="TEXT and --choice", fix="give one of them")

    async def send_answer(delivery: Delivery, pending_decision: PendingDecision, screen: Screen) -> DecisionReply:
        reply = text_or_stdin(text) if text is not None else choice or ""
        question = pending_decision.question
        if choice is not None and question is not None and not choices_of(question):
            fix = commands_for_decision(pending_decision, delivery.id)[0]
            raise BadInput("the question has no choices: it wants an answer in words", where="--choice", fix=fix)
        if not reply.strip():
            raise BadInput(
                "the answer is empty",
                where="TEXT",
                fix=" or ".join(commands_for_decision(pending_decision, delivery.id)),
            )
        if question is not None:
            reply = resolve_choice(question, reply) if choice is not None else resolve_answer(question, reply)
            what, fix = explain_invalid_answer(question, reply, delivery.id)
            if what:
                raise BadInput(what, where=one_line(question.text), fix=fix)
        answered = await delivery.answer(reply, pending_decision.target, by=login_name())
        ours = answered.message.startswith("answered")  # else somebody's answer that was counted before
        return replace(answered, message=f"answered: {one_line(reply)}") if ours else answered

    _run_decision("answer", id, target, json, send_answer)


def _report_undecided(screen: Screen) -> int:
    """Print that nothing was decided; return the exit code, 1."""
    screen.say("nothing was decided: it still waits")
    return 1


def _run_decision(
    decision: str,
    id: str,
    target: str,
    json: bool,
    send: Callable[[Delivery, PendingDecision, Screen], Awaitable[DecisionReply]],
) -> None:
    """Find out what the delivery waits for, send the decision and print what became of it; exits with code 0.

    decision  the name of the update
    target    what the person means to decide; empty: whatever waits
    send      sends the decision

    Raises BadInput when the delivery waits for nothing, for another target, or for something that this decision does
    not decide.
    """
    screen = Screen(json=json)

    async def check_and_send(delivery: Delivery) -> int:
        try:
            pending_decision = await delivery.waits_for()
        except NotCounted as error:
            watch = f"perdure watch {shell_word(delivery.id)}"
            raise BadInput(error.what, where=delivery.id, fix=error.fix or watch) from None
        fix = " or ".join(commands_for_decision(pending_decision, delivery.id))
        if target and target != pending_decision.target:
            what = f"it waits for {pending_summary(pending_decision)}; not for {shorten(target, 64)}"
            raise BadInput(what, where="--of", fix=fix)
        if decision not in pending_decision.options:
            what = f"{decision} does not decide this: {pending_summary(pending_decision)}"
            raise BadInput(what, where=delivery.id, fix=fix)
        try:
            answered = await send(delivery, pending_decision, screen)
        except NotCounted as error:
            raise BadInput(error.what, where=delivery.id, fix=fix) from None
        facts = {"decided": decision, "gate": pending_decision.gate, "of": pending_decision.target}
        report_decision(screen, delivery.id, answered, facts, await delivery.hold_reason() if answered.received else "")
        return 0

    raise typer.Exit(run_with_delivery(screen, id, check_and_send, decision=decision))


def say(id: str, text: str, json: bool) -> None:
    """Send a message for the agent's next turn, which reads it exactly once; `-` reads it from standard input.

    No worker needs to run. Prints that it is recorded, or its id as JSON. Raises BadInput when it is empty, `id` names
    no single delivery, or the delivery has ended; InvalidRequest when it is too long.
    """
    message = text_or_stdin(text)
    if not message.strip():
        raise BadInput("there are no words", where="TEXT", fix=f'perdure say {shell_word(id)} "…"')

    async def send_message(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        message_id = await delivery.say(message)
        return "recorded: the next turn reads it", {"said": message_id}

    _run_signal(id, json, send_message)


def hold(id: str, note: str, json: bool) -> None:
    """Send the signal after which a delivery begins no further turn until `resume`; the one that runs goes on to its
    end.

    No worker needs to run. Prints that it is recorded. Raises BadInput when `id` names no single delivery, or it has
    ended.
    """

    async def begin_hold(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await delivery.hold(note, by=login_name())
        return "recorded: no further turn begins", {"held": True}

    _run_signal(id, json, begin_hold, next_command="resume")


def resume(id: str, json: bool) -> None:
    """Send the signal that ends a hold, and print that it is recorded; no worker needs to run.

    Raises BadInput when nobody holds the delivery, as far as a worker can tell, when `id` names none, or it has ended.
    """

    async def end_hold(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await _check_is_held(delivery)
        await delivery.resume()
        return "recorded: it goes on", {"held": False}

    _run_signal(id, json, end_hold)


async def _check_is_held(delivery: Delivery) -> None:
    """Raise BadInput, which says what the delivery does or waits for, when no person holds it.

    Nothing is raised when it has ended, no worker can tell, or messages wait that no worker has read: a hold may be
    among them.
    """
    if not (await delivery.describe()).running:
        return  # delivery.resume refuses it with a message of its own
    try:
        progress = await delivery.progress()
    except PerdureError:
        return
    if progress.held or await delivery.unread_messages():  # a hold may be among what no worker has read yet
        return
    step = progress.steps[-1].step.replace("_", " ") if progress.steps else "prepare"
    what, fix = f"it is at {step}", f"perdure watch {shell_word(delivery.id)}"
    if progress.pending_decision is not None:
        what = f"it waits for {pending_summary(progress.pending_decision)}"
        fix = " or ".join(commands_for_decision(progress.pending_decision, delivery.id))
    elif progress.waiting:
        what = f"it waits: {one_line(progress.waiting, 300)}"
    raise BadInput(f"nobody holds it: {what}", where=delivery.id, fix=fix)


def _run_signal(
    id: str, json: bool, send: Callable[[Delivery], Awaitable[tuple[str, dict[str, Any]]]], next_command: str = "watch"
) -> None:
    """Find the delivery, call `send` with it and print the message that it returns with the next command, or its facts
    as JSON.

    `send` sends a signal and returns (message, facts). Raises BadInput when `id` names no single delivery, and what
    `send` raises.
    """
    screen = Screen(json=json)

    async def send_and_report(delivery: Delivery) -> None:
        message, facts = await send(delivery)
        if json:
            screen.print_json({"delivery_id": delivery.id, **facts})
        else:
            screen.print_lines([f"{GOOD} {message}", f"  {'next':<8} perdure {next_command} {shell_word(delivery.id)}"])

    run_with_delivery(screen, id, send_and_report)
