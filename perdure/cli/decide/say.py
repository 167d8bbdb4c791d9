"""A word to a running delivery, and a halt: `say`, `hold`, `resume`."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.decide.answer import given, who
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
    words = given(text)
    if not words.strip():
        raise BadInput("there are no words", where="TEXT", fix=f'perdure say {id} "…"')

    async def work(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        said = await delivery.say(words)
        return "recorded: the next turn reads it", {"said": said}

    _signal(id, json, work)


def hold(
    id: DeliveryId = "@last",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for those who wonder.")] = "",
    json: Json = False,
) -> None:
    """Begin no further turn until resume; the one that runs goes on to its end."""

    async def work(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await delivery.hold(note, by=who())
        return "recorded: no further turn begins", {"held": True}

    _signal(id, json, work, after="resume")


def resume(id: DeliveryId = "@last", json: Json = False) -> None:
    """Go on after a hold."""

    async def work(delivery: Delivery) -> tuple[str, dict[str, Any]]:
        await _check_held(delivery)
        await delivery.resume()
        return "recorded: it goes on", {"held": False}

    _signal(id, json, work)


async def _check_held(delivery: Delivery) -> None:
    """BadInput that says what it waits for, where nobody holds it. Where no worker can say, it may be held."""
    from perdure.cli.decide.asking import commands, waiting_words

    if not (await delivery.describe()).running:
        return  # refused in its own words
    try:
        progress = await delivery.progress()
    except PerdureError:
        return
    if progress.held or await delivery.unread_messages():  # a hold may be among what no worker has read yet
        return
    doing = progress.steps[-1].step.replace("_", " ") if progress.steps else "prepare"
    what, fix = f"it is at {doing}", f"perdure watch {shlex.quote(delivery.id)}"
    if progress.pending_decision is not None:
        what = f"it waits for {waiting_words(progress.pending_decision)}"
        fix = " or ".join(commands(progress.pending_decision, delivery.id))
    elif progress.waiting:
        what = f"it waits: {one_line(progress.waiting, 300)}"
    raise BadInput(f"nobody holds it: {what}", where=delivery.id, fix=fix)


def _signal(
    id: str, json: bool, work: Callable[[Delivery], Awaitable[tuple[str, dict[str, Any]]]], after: str = "watch"
) -> None:
    from perdure.cli.look.step_lines import GOOD

    screen = Screen(json=json)

    async def do(delivery: Delivery) -> None:
        words, facts = await work(delivery)
        if json:
            screen.print_json({"delivery_id": delivery.id, **facts})
        else:
            screen.print_lines([f"{GOOD} {words}", f"  {'next':<8} perdure {after} {shlex.quote(delivery.id)}"])

    run_with_delivery(screen, id, do)
