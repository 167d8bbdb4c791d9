"""Decisions of a person: `approve`, `reject`, `answer`."""

from __future__ import annotations

import getpass
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.ids import WAITING, WaitingId
from perdure.cli.screen import Screen
from perdure.cli.session import run_with_delivery
from perdure.models.errors import BadInput
from perdure.models.limits import MESSAGE_BYTES
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import DecisionReply, Delivery
    from perdure.models.decisions import PendingDecision

Json = Annotated[bool, typer.Option("--json", help="Print what was counted as JSON.")]
Of = Annotated[
    str, typer.Option("--of", metavar="NAME", help="Only if it is this plan, commit or question that waits.")
]


def not_read_yet() -> str:
    """The words for a decision that is recorded, and that no worker has counted yet."""
    from perdure.cli.host.workers import NO_WORKER, no_worker_reason

    why = no_worker_reason()
    return f"recorded, not yet read: {'no worker is running (perdure up --detach)' if why == NO_WORKER else why}"


def approve(
    id: WaitingId = WAITING,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A word to go with it, for the record.")] = "",
    of: Of = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show it and ask first, as on a terminal.")] = False,
    edit: Annotated[bool, typer.Option("--edit", help="Edit plan or items first, in $VISUAL or $EDITOR.")] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE|-", help="An edited plan, or items, in the place of what waits."),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Only print plan or items, as --file takes them.")] = False,
    json: Json = False,
) -> None:
    """Say yes to what a delivery waits with: its plan, its items, its pull request, or a price nobody knows.

    What could not land, or was cut off again and again, is tried once more. On a terminal it shows the plan, the items
    or the change first and asks; elsewhere it asks nothing.
    """
    if edit or file is not None or show:
        _edited(id, note, of, yes, file, show, json)
        return

    async def work(delivery: Delivery, asked: PendingDecision, screen: Screen) -> DecisionReply:
        if not yes and screen.is_terminal and sys.stdin.isatty():
            from perdure.cli.decide.gate import at_gate

            raise typer.Exit(0 if await at_gate(delivery, asked, screen, note=note) else _later(screen))
        return await delivery.approve(asked.target, note=note, by=who())

    _decide("approve", id, of, json, work)


def _edited(id: str, note: str, of: str, yes: bool, file: Path | None, show: bool, json: bool) -> None:
    """Another plan in the place of the one that waits, and a yes to it; or that one to edit, printed."""
    from perdure.cli.decide.edit import edit_plan, print_plan

    screen = Screen(json=json)
    if show:
        run_with_delivery(screen, id, lambda delivery: print_plan(delivery, screen, of), decision="edit_plan")
        return
    ask = not yes and screen.is_terminal and sys.stdin.isatty()
    raise typer.Exit(
        run_with_delivery(
            screen,
            id,
            lambda delivery: edit_plan(delivery, screen, file=file, of=of, note=note, ask=ask),
            decision="edit_plan",
        )
    )


def reject(
    id: WaitingId,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT|-", help="What is wrong, and what instead; - reads it.")
    ] = None,
    of: Of = "",
    json: Json = False,
) -> None:
    """Send back what a delivery waits with: planning or fixing begins again with your words.

    What could not land, was cut off again and again, or has no budget left ends; its work is kept, retry goes on.
    """
    words = given(note or "")
    if not words.strip():
        fix = f'perdure reject {id} --note "what is wrong, and what instead"'
        raise BadInput("say why: planning or fixing goes on with it", where="--note", fix=fix)
    _decide("reject", id, of, json, lambda delivery, asked, _: delivery.reject(words, asked.target, by=who()))


def answer(
    id: WaitingId,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The answer; - reads it.")] = None,
    choice: Annotated[
        str | None, typer.Option("--choice", metavar="N|TEXT", help="One of the choices: its number or its beginning.")
    ] = None,
    of: Of = "",
    json: Json = False,
) -> None:
    """Answer the question a delivery waits with; the agent reads it in its next turn.

    A choice may be named by its number or by how it begins, yes and no by y and n.
    """
    from perdure.cli.decide.asking import choices_of, chosen, commands, meant, none_of

    if text is not None and choice is not None:
        raise BadInput("the answer was given twice", where="TEXT and --choice", fix="give one of them")

    async def work(delivery: Delivery, asked: PendingDecision, screen: Screen) -> DecisionReply:
        words = given(text) if text is not None else choice or ""
        question = asked.question
        if choice is not None and question is not None and not choices_of(question):
            fix = commands(asked, delivery.id)[0]
            raise BadInput("the question has no choices: it wants an answer in words", where="--choice", fix=fix)
        if not words.strip():
            raise BadInput("the answer is empty", where="TEXT", fix=" or ".join(commands(asked, delivery.id)))
        if question is not None:
            words = chosen(question, words) if choice is not None else meant(question, words)
            what, fix = none_of(question, words, delivery.id)
            if what:
                raise BadInput(what, where=one_line(question.text), fix=fix)
        answered = await delivery.answer(words, asked.target, by=who())
        ours = answered.message.startswith("answered")  # else somebody's answer that was counted before
        return replace(answered, message=f"answered: {one_line(words)}") if ours else answered

    _decide("answer", id, of, json, work)


def who() -> str:
    """The login name of who decides, for the record."""
    try:
        return getpass.getuser()[:200]
    except (OSError, KeyError):
        return ""


def given(text: str) -> str:
    """Return what was typed, or standard input for `-`."""
    return sys.stdin.buffer.read(MESSAGE_BYTES + 1).decode(errors="replace") if text == "-" else text


def tell(
    screen: Screen, id: str, answered: DecisionReply, facts: dict[str, Any], held: str = "", after: str = "watch"
) -> None:
    """Show what became of a decision: the delivery's own words, or that nobody has read it yet.

    held   it does not go on all the same, because somebody holds it
    after  the command that one types next; empty for nobody
    """
    from perdure.cli.look.step_lines import GOOD, WARN

    if screen.json:
        screen.print_json({"delivery_id": id, **facts, "answer": answered.message, "read": answered.received})
    elif answered.received:
        lines = [f"{GOOD} {one_line(answered.message)}", *([f"{WARN} {one_line(held)}"] if held else [])]
        after = "resume" if held else after
        screen.print_lines([*lines, *([f"  {'next':<8} perdure {after} {shlex.quote(id)}"] if after else [])])
    else:
        screen.print_line(f"{WARN} {not_read_yet()}")


def _later(screen: Screen) -> int:
    screen.say("nothing was decided: it still waits")
    return 1


def _decide(
    update: str,
    id: str,
    of: str,
    json: bool,
    work: Callable[[Delivery, PendingDecision, Screen], Awaitable[DecisionReply]],
) -> None:
    """Find out what waits, refuse what does not decide it, decide it, and say what became of it."""
    from perdure.cli.decide.asking import commands, waiting_words
    from perdure.models.rules.inbox import NotCounted

    screen = Screen(json=json)

    async def decide(delivery: Delivery) -> int:
        try:
            asked = await delivery.waits_for()
        except NotCounted as error:
            watch = f"perdure watch {shlex.quote(delivery.id)}"
            raise BadInput(error.what, where=delivery.id, fix=error.fix or watch) from None
        fix = " or ".join(commands(asked, delivery.id))
        if of and of != asked.target:
            what = f"it waits for {waiting_words(asked)}; not for {of[:64]}"
            raise BadInput(what, where="--of", fix=fix)
        if update not in asked.options:
            what = f"{update} does not decide this: {waiting_words(asked)}"
            raise BadInput(what, where=delivery.id, fix=fix)
        try:
            answered = await work(delivery, asked, screen)
        except NotCounted as error:
            raise BadInput(error.what, where=delivery.id, fix=fix) from None
        facts = {"decided": update, "gate": asked.gate, "of": asked.target}
        tell(screen, delivery.id, answered, facts, await delivery.hold_reason() if answered.received else "")
        return 0

    raise typer.Exit(run_with_delivery(screen, id, decide, decision=update))
