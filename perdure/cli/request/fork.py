"""`perdure fork`: a sibling of a delivery, from one of its turns on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId, Json, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected, worker_started
from perdure.cli.words import count

if TYPE_CHECKING:
    from perdure.client.forking import Fork

Model = Annotated[str, typer.Option("--model", metavar="M", help="Another model for all steps from there on.")]
Agent = Annotated[str, typer.Option("--agent", metavar="A", help="Another agent, likewise.")]


def fork(
    id: DeliveryId,
    at: Annotated[
        str, typer.Option("--at", metavar="STEP[:TURN]", help="The turn it begins before, as perdure turns names it.")
    ],
    say: Annotated[str, typer.Option("--say", metavar="TEXT", help="Words for that turn.")] = "",
    model: Model = "",
    agent: Agent = "",
    name: Annotated[str, typer.Option("--id", metavar="NAME", help="The sibling's id.")] = "",
    json: Json = False,
) -> None:
    """Start a sibling from a turn of a delivery, running or ended: its files and conversation, then its own way.

    It has its own branch, workspace and cost; the delivery goes on as if nothing were.
    """

    screen = Screen(json=json)
    made = carry_out(_fork(screen, id, at, say, model, agent, name))
    if json:
        told = {"delivery_id": made.delivery.id, "before": made.before, **made.began.model_dump(mode="json")}
        screen.data({**told, "forked_from": told["delivery"]})
        return
    was = "was there before" if made.before else "begins"
    cost = "what they cost is not known" if made.began.usd is None else f"${made.began.usd:.4f}"
    screen.lines(
        [
            f"{made.delivery.id} {was}: {made.began.delivery} before {made.began.at}",
            f"{count(made.began.turns, 'turn')} ({cost}) not paid again",
            f"perdure watch {made.delivery.id}",
            f"perdure compare {made.began.delivery} {made.delivery.id}",
        ]
    )


async def _fork(screen: Screen, typed: str, at: str, say: str, model: str, agent: str, name: str) -> Fork:
    from perdure.adapters.system.home import Home
    from perdure.client.forking import fork as forked

    home = Home.find()
    await worker_started(screen)
    perdure = await connected(screen)
    delivery = perdure.delivery(await resolve_id(perdure, typed))
    key = home.key() if home.root.is_dir() else None
    return await forked(delivery, at, say=say, model=model, agent=agent, id=name, key=key)
