"""`perdure compare`: two deliveries side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, resolve_id
from perdure.models.errors import BadInput
from perdure.render.comparison import comparison_lines, load_comparison

if TYPE_CHECKING:
    from perdure.models.delivery.comparison import Comparison


def compare(first: str, second: str, json: bool) -> None:
    """Print two deliveries side by side, as lines or JSON: what each changed, tests, review, cost, turns.

    Read from their histories and hosts. Raises BadInput when one of the ids names no single delivery, or both name the
    same.
    """
    screen = Screen(json=json)

    async def work() -> Comparison:
        perdure = await connect_client(screen)
        ids = [await resolve_id(perdure, typed) for typed in (first, second)]
        if ids[0] == ids[1]:
            raise BadInput(f"{ids[0]} is one delivery", where=f"{first} and {second}", fix="name two")
        return await load_comparison(*(perdure.delivery(id) for id in ids))

    compared = run_coroutine(work())
    if json:
        screen.print_json(compared.model_dump_json(indent=2))
    else:
        screen.print_lines(comparison_lines(compared, screen.width))
