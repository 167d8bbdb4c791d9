"""A message to a running delivery, and a halt: the commands `say`, `hold`, `resume`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.decide.answer import login_name, text_or_stdin
from perdure.cli.ids import DeliveryId
from perdure.cli.screen import Screen
from perdure.cli.session import run_with_delivery
from perdure.models.errors import BadInput, PerdureError
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Delivery

Json = Annotated[bool, typer.Option("--json", help="Print what was recorded as JSON.")]


def say(
    id: DeliveryId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agent shall know; - reads it.")],
    json: Json = False,
) -> None:
    """Tell the agent something: its next turn reads it, exactly once, worker up or down."""
    message = text_or_stdin(text)
    if not message.strip():
        raise BadInput("there are no words", where="TEXT", fix=f'perdure say {id} "…"')

    async def send_message(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        message_id = await delivery.say(message)
        return "recorded: the next turn reads it", {"said": message_id}

    _run_signal(id, json, send_message)


def hold(
    id: DeliveryId = "@last",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for those who wonder.")] = "",
    json: Json = False,
) -> None:
    """Begin no further turn until resume; the one that runs goes on to its end."""

    async def begin_hold(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await delivery.hold(note, by=login_name())
        return "recorded: no further turn begins", {"held": True}

    _run_signal(id, json, begin_hold, next_command="resume")


def resume(id: DeliveryId = "@last", json: Json = False) -> None:
    """Go on after a hold."""

    async def end_hold(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await _check_is_held(delivery)
        await delivery.resume()
        return "recorded: it goes on", {"held": False}

    _run_signal(id, json, end_hold)


async def _check_is_held(delivery: Delivery) -> None:
    """Raise BadInput, which says what the delivery does or waits for, when no person holds it. Nothing is raised where
    no worker can tell, or the hold may not be received yet."""
    from perdure.cli.decide.pending_text import commands_for_decision, pending_summary

    if not (await delivery.describe()).running:
        return  # delivery.resume refuses it with a message of its own
    try:
        progress = await delivery.progress()
    except PerdureError:
        return
    if progress.held or await delivery.unread_messages():  # a hold may be among what no worker has read yet
        return
    step = progress.steps[-1].step.replace("_", " ") if progress.steps else "prepare"
    what, fix = f"it is at {step}", f"perdure watch {shlex.quote(delivery.id)}"
    if progress.pending_decision is not None:
        what = f"it waits for {pending_summary(progress.pending_decision)}"
        fix = " or ".join(commands_for_decision(progress.pending_decision, delivery.id))
    elif progress.waiting:
        what = f"it waits: {one_line(progress.waiting, 300)}"
    raise BadInput(f"nobody holds it: {what}", where=delivery.id, fix=fix)


def _run_signal(
    id: str, json: bool, send: Callable[[Delivery], Awaitable[tuple[str, dict[str, Any]]]], next_command: str = "watch"
) -> None:
    """Find the delivery, send it a signal by `send` and print the message that it returns, with the next command, or
    its facts as JSON."""
    from perdure.cli.look.step_lines import GOOD

    screen = Screen(json=json)

    async def send_and_report(delivery: Delivery) -> None:
        message, facts = await send(delivery)
        if json:
            screen.print_json({"delivery_id": delivery.id, **facts})
        else:
            screen.print_lines(
                [f"{GOOD} {message}", f"  {'next':<8} perdure {next_command} {shlex.quote(delivery.id)}"]
            )

    run_with_delivery(screen, id, send_and_report)
