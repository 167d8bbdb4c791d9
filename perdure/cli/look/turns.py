"""`perdure turns`, `perdure rewind`, `perdure fork`: the turns of a delivery, the way back to one of them, and a
sibling from it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, ensure_worker, resolve_id, run_with_delivery
from perdure.client import Delivery
from perdure.client.delivery.rewinding import Fork
from perdure.client.delivery.rewinding import fork as forked
from perdure.client.delivery.rewinding import rewind as rewound
from perdure.client.delivery.turns import TurnRecord
from perdure.client.delivery.turns import turns as turns_of
from perdure.text import format_count, format_money, one_line, shell_word


def fork(id: str, at: str, say: str, model: str, agent: str, name: str, json: bool) -> None:
    """Fork a delivery before a turn, starting server and worker where they are missing; print the sibling and what it
    inherits, or JSON.

    The same call again finds the same sibling. Raises BadInput when `id` names no single delivery, there is no such
    turn or it cannot be forked, or there is no key for the model.
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
    cost = format_money(sibling.origin.usd, unknown="what they cost is not known", digits=4)
    screen.print_lines(
        [
            f"{sibling.delivery.id} {state}: {sibling.origin.delivery} before {sibling.origin.at}",
            f"{format_count(sibling.origin.turns, 'turn')} ({cost}) not paid again",
            f"perdure watch {shell_word(sibling.delivery.id)}",
            f"perdure compare {shell_word(sibling.origin.delivery)} {shell_word(sibling.delivery.id)}",
        ]
    )


async def _start_sibling(
    screen: Screen, delivery_id: str, turn: str, message: str, model: str, agent: str, name: str
) -> Fork:
    """Start a worker if need be, find the delivery and fork it before `turn`; return the sibling.

    `turn` is `STEP[:TURN]`; `message` is for the agent in that turn. `name`: the sibling's id; empty: one is made.
    Raises BadInput where the delivery or the turn cannot be found.
    """
    home = Home.find()
    await ensure_worker(screen)
    perdure = await connect_client(screen)
    delivery = perdure.delivery(await resolve_id(perdure, delivery_id))
    key = home.key() if home.root.is_dir() else None
    return await forked(delivery, turn, say=message, model=model, agent=agent, id=name, key=key)


def turns(id: str, json: bool) -> None:
    """Print the turns that a delivery stands on: what each did, its cost, its checkpoint; as lines or JSON.

    Read from history; no worker is needed. Raises BadInput when `id` names no single delivery.
    """
    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        records = await turns_of(delivery)
        if json:
            screen.print_json([_turn_fields(turn) for turn in records])
        elif records:
            place_width = max(len(turn.place) for turn in records)
            screen.print_lines([_format_turn(turn, place_width) for turn in records])
        else:
            screen.print_lines([f"{delivery.id} has taken no turn yet"])

    run_with_delivery(screen, id, work)


def _turn_fields(turn: TurnRecord) -> dict[str, Any]:
    """Return a turn as an object for `--json`."""
    fields = asdict(turn)
    run_id = fields.pop("run_id")
    return {"place": turn.place, **fields, "began": turn.began.isoformat(), "run": run_id}


def _format_turn(turn: TurnRecord, place_width: int) -> str:
    """Return a turn in one line: when it began (UTC), place, checkpoint, cost, then its summary or why it has none."""
    cost = format_money(turn.cost_usd, unknown="unknown", digits=4) if turn.checkpoint else ""
    outcome = turn.summary if turn.checkpoint else f"failed: {turn.failure}" if turn.failure else "has not ended"
    place = f"{turn.began:%H:%M:%S}  {turn.place:<{place_width}}  {turn.checkpoint[:8]:<8}  {cost:>8}"
    return f"{place}  {one_line(outcome, 100)}".rstrip()


def rewind(id: str, to: str, say: str, model: str, agent: str, repeat: bool, json: bool) -> None:
    """Go back to before a turn of a delivery, and print which turn it takes again, or JSON.

    One that has ended gets a new run; server and worker are started for it where they are missing. The same rewind
    again does nothing and says so, unless `repeat`. Raises BadInput when `id` names no single delivery, or there is no
    such turn or it cannot be taken again, or it has ended and there is no key for the model; PerdureError when the
    server refuses.
    """
    screen = Screen(json=json)

    async def work(delivery: Delivery) -> None:
        if not (await delivery.describe()).running:
            await ensure_worker(screen)
        result = await rewound(delivery, to, say=say, model=model, agent=agent, repeat=repeat)
        if json:
            data = {
                "delivery_id": delivery.id,
                "rewound_to": result.place,
                "run_id": result.run_id,
                "before": result.already_done,
            }
            screen.print_json(data)
        elif result.already_done:
            message = f"{delivery.id} was rewound to {result.place} before, with the same words: nothing was done now"
            screen.print_lines([message, "--again takes it anew once more"])
        else:
            screen.print_lines(
                [f"rewound: {delivery.id} takes {result.place} anew", f"perdure watch {shell_word(delivery.id)}"]
            )

    run_with_delivery(screen, id, work)
