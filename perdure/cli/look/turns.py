"""`perdure turns` and `perdure rewind`: the turns of a delivery, and the way back to one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId, Json
from perdure.cli.request.fork import Agent, Model
from perdure.cli.screen import Screen
from perdure.cli.session import with_delivery, worker_started
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.client.turns import Turn


def turns(id: DeliveryId = "@last", json: Json = False) -> None:
    """List the turns a delivery stands on: what each did, its cost, its checkpoint. Read from Temporal's history."""
    from perdure.client.turns import turns as turns_of

    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        found = await turns_of(delivery)
        if json:
            screen.data([{"place": one.place, **asdict(one), "began": one.began.isoformat()} for one in found])
        elif found:
            wide = max(len(one.place) for one in found)
            screen.lines([_row(one, wide) for one in found])
        else:
            screen.lines([f"{delivery.id} has taken no turn yet"])

    with_delivery(screen, id, work)


def _row(turn: Turn, wide: int) -> str:
    cost = "" if not turn.checkpoint else "unknown" if turn.cost_usd is None else f"${turn.cost_usd:.4f}"
    words = turn.summary if turn.checkpoint else f"failed: {turn.failure}" if turn.failure else "has not ended"
    place = f"{turn.began:%H:%M:%S}  {turn.place:<{wide}}  {turn.checkpoint[:8]:<8}  {cost:>8}"
    return f"{place}  {one_line(words, 100)}".rstrip()


def rewind(
    id: DeliveryId,
    to: Annotated[
        str, typer.Option("--to", metavar="STEP[:TURN]", help="The turn to take anew, as perdure turns names it.")
    ],
    say: Annotated[str, typer.Option("--say", metavar="TEXT", help="Words for that turn.")] = "",
    model: Model = "",
    agent: Agent = "",
    again: Annotated[bool, typer.Option("--again", help="Also where it was rewound just so before.")] = False,
    json: Json = False,
) -> None:
    """Go back to before a turn of a delivery: files and conversation as they were, taken anew from there.

    One that has ended goes on in a new run; its pull request is brought up to date.
    """
    from perdure.client.rewinding import rewind as rewound

    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        if not (await delivery.describe()).running:
            await worker_started(screen)
        done = await rewound(delivery, to, say=say, model=model, agent=agent, again=again)
        if json:
            told = {"delivery_id": delivery.id, "rewound_to": done.place, "run_id": done.run_id, "before": done.before}
            screen.data(told)
        elif done.before:
            words = f"{delivery.id} was rewound to {done.place} before, with the same words: nothing was done now"
            screen.lines([words, "--again takes it anew once more"])
        else:
            screen.lines([f"rewound: {delivery.id} takes {done.place} anew", f"perdure watch {delivery.id}"])

    with_delivery(screen, id, work)
