"""`perdure logs`: what the agent said and did, turn by turn, also while it works."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId
from perdure.cli.look.delivery_commands import read_pages
from perdure.cli.screen import Screen
from perdure.cli.session import describe_on_own_server, run_with_delivery
from perdure.models.errors import BadInput, PerdureError
from perdure.text import visible

if TYPE_CHECKING:
    from perdure.client import Delivery

LOGS_EVERY_S = 1.0
"""Seconds between two looks of `logs --follow` whether a turn has ended: turns take seconds."""


def logs(
    id: DeliveryId = "@last",
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only its turns: plan, implement, fix_tests, review…")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until it ends.")] = False,
) -> None:
    """Show what the agent said and did, turn by turn, with times (UTC)."""
    from perdure.cli.look.watch import EXIT_DETACHED

    step_name = _parse_step(step) if step is not None else ""
    screen = Screen()
    try:
        run_with_delivery(
            screen,
            id,
            lambda delivery: _follow_logs(delivery, screen, step_name) if follow else _print_logs(delivery, step_name),
        )
    except KeyboardInterrupt:
        if not follow:
            raise
        raise typer.Exit(EXIT_DETACHED) from None


async def _print_logs(delivery: Delivery, step: str) -> None:
    """Print the logs that there are: page by page as they arrive, or those of one step where `step` is not empty.

    Says on standard error where that step has taken no turn yet.
    """
    if not step:
        async for text in read_pages(delivery, "logs"):
            print(visible(text), end="", flush=True)
        return
    lines = list(turns_of_step("".join([text async for text in read_pages(delivery, "logs")]).splitlines(), step))
    if lines:
        print(visible("\n".join(lines)), flush=True)
    else:
        print(f"{delivery.id} has taken no turn of {step} yet", file=sys.stderr)


async def _follow_logs(delivery: Delivery, screen: Screen, step: str) -> None:
    """Print what is added to the logs, once a second, until the delivery ends; after a rewind print all of them again.

    An error of the host is raised only when the delivery has ended: until then another look is made.
    """
    import asyncio

    from perdure.cli.look.progress_lines import REWOUND

    printed: list[str] = []
    last_state: object = None
    while True:
        described, delivery = await describe_on_own_server(screen, delivery)
        if described is None:
            continue
        # A host is asked only when there may be something new: that costs it a reading of the whole conversation.
        activities = [(entry.activity, entry.details.get("turn")) for entry in described.pending]
        state = (described.run_id, described.running, activities)
        if state != last_state:
            try:
                lines = "".join([page async for page in read_pages(delivery, "logs")]).splitlines()
            except PerdureError:  # No worker runs that could read them: the next look tries again.
                if not described.running:
                    raise
                lines = printed
            else:
                last_state = state
                lines = list(turns_of_step(lines, step)) if step else lines
            if lines[: len(printed)] != printed:
                print(REWOUND, file=sys.stderr)
                printed = []
            for line in lines[len(printed) :]:
                print(visible(line), flush=True)
            printed = lines
        if not described.running:
            return
        await asyncio.sleep(LOGS_EVERY_S)


def turns_of_step(lines: Iterable[str], step: str) -> Iterator[str]:
    """Yield the lines of the turns of one step, each from the line with which the turn begins."""
    from perdure.models.turn import TURN_BEGINS

    is_wanted = False
    for line in lines:
        if line.startswith(TURN_BEGINS):
            parts = line.split("  ")
            is_wanted = len(parts) > 2 and parts[2].split()[0] == step
        if is_wanted:
            yield line


def _parse_step(text: str) -> str:
    """Return the name, as in the logs, of a step in which a model works; `build` means implement. Raises BadInput for
    another."""
    from perdure.cli.request.validation import suggest_name
    from perdure.models.steps import AGENTIC

    name = text.strip().lower().replace("-", "_")
    step_names = [str(step) for step in AGENTIC]
    name = "implement" if name == "build" else name
    if name not in step_names:
        raise BadInput(
            f"no model works in a step {text[:60]!r}", where="--step", fix=suggest_name("", name, step_names)
        )
    return name
