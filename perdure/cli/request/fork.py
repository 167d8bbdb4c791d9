"""`perdure fork`: start a sibling of a delivery from one of its turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.formatting import pluralise
from perdure.cli.ids import DeliveryId, Json, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, ensure_worker, run_coroutine

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
    sibling = run_coroutine(_start_sibling(screen, id, at, say, model, agent, name))
    if json:
        origin = {
            "delivery_id": sibling.delivery.id,
            "before": sibling.existed,
            **sibling.origin.model_dump(mode="json"),
        }
        screen.print_json({**origin, "forked_from": origin["delivery"]})
        return
    state = "was there before" if sibling.existed else "begins"
    cost = "what they cost is not known" if sibling.origin.usd is None else f"${sibling.origin.usd:.4f}"
    screen.print_lines(
        [
            f"{sibling.delivery.id} {state}: {sibling.origin.delivery} before {sibling.origin.at}",
            f"{pluralise(sibling.origin.turns, 'turn')} ({cost}) not paid again",
            f"perdure watch {sibling.delivery.id}",
            f"perdure compare {sibling.origin.delivery} {sibling.delivery.id}",
        ]
    )


async def _start_sibling(
    screen: Screen, delivery_id: str, turn: str, message: str, model: str, agent: str, name: str
) -> Fork:
    """Start a worker if need be, find the delivery and fork it before `turn`; return the sibling.

    `turn` is `STEP[:TURN]`; `message` is for the agent in that turn. `name`: the sibling's id; empty: one is made.
    Raises BadInput where the delivery or the turn cannot be found.
    """
    from perdure.adapters.system.home import Home
    from perdure.client.forking import fork as forked

    home = Home.find()
    await ensure_worker(screen)
    perdure = await connect_client(screen)
    delivery = perdure.delivery(await resolve_id(perdure, delivery_id))
    key = home.key() if home.root.is_dir() else None
    return await forked(delivery, turn, say=message, model=model, agent=agent, id=name, key=key)
