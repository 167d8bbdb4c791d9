"""`perdure logs`: what the agent said and did, turn by turn, also as it goes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId
from perdure.cli.look.read import pages
from perdure.cli.screen import Screen
from perdure.cli.session import look_at, with_delivery
from perdure.models.errors import BadInput, PerdureError
from perdure.text import visible

if TYPE_CHECKING:
    from perdure.client import Delivery

LOGS_EVERY_S = 1.0
"""Between two looks of `logs --follow` whether a turn has ended: turns take seconds."""


def logs(
    id: DeliveryId = "@last",
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only its turns: plan, implement, fix_tests, review…")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until it ends.")] = False,
) -> None:
    """Show what the agent said and did, turn by turn, with times (UTC)."""
    from perdure.cli.look.watch import EXIT_DETACHED

    wanted = _step(step) if step is not None else ""
    screen = Screen()
    try:
        with_delivery(
            screen, id, lambda delivery: _follow(delivery, screen, wanted) if follow else _once(delivery, wanted)
        )
    except KeyboardInterrupt:
        if not follow:
            raise
        raise typer.Exit(EXIT_DETACHED) from None


async def _once(delivery: Delivery, step: str) -> None:
    """Everything; page by page as it arrives where all of it is wanted."""
    if not step:
        async for text in pages(delivery, "logs"):
            print(visible(text), end="", flush=True)
        return
    told = list(of_step("".join([text async for text in pages(delivery, "logs")]).splitlines(), step))
    if told:
        print(visible("\n".join(told)), flush=True)
    else:
        print(f"{delivery.id} has taken no turn of {step} yet", file=sys.stderr)


async def _follow(delivery: Delivery, screen: Screen, step: str) -> None:
    """Print what has been added since the last look, again and again; after a rewind all of it once more."""
    import asyncio

    from perdure.cli.look.story import REWOUND

    told: list[str] = []
    seen: object = None
    while True:
        described, delivery = await look_at(screen, delivery)
        if described is None:
            continue
        # A host is asked only when there may be something new: that costs it a reading of the whole conversation.
        doing = [(one.activity, one.details.get("turn")) for one in described.pending]
        state = (described.run_id, described.running, doing)
        if state != seen:
            try:
                lines = "".join([page async for page in pages(delivery, "logs")]).splitlines()
            except PerdureError:  # nobody runs who could read them: what is asked for will come
                if not described.running:
                    raise
                lines = told
            else:
                seen = state
                lines = list(of_step(lines, step)) if step else lines
            if lines[: len(told)] != told:
                print(REWOUND, file=sys.stderr)
                told = []
            for line in lines[len(told) :]:
                print(visible(line), flush=True)
            told = lines
        if not described.running:
            return
        await asyncio.sleep(LOGS_EVERY_S)


def of_step(lines: Iterable[str], step: str) -> Iterator[str]:
    """The turns of one step, each from the line that begins it."""
    from perdure.models.turn import TURN_BEGINS

    inside = False
    for line in lines:
        if line.startswith(TURN_BEGINS):
            words = line.split("  ")
            inside = len(words) > 2 and words[2].split()[0] == step
        if inside:
            yield line


def _step(text: str) -> str:
    """The name of a step in which a model works, as it is written in the logs; BadInput for another."""
    from perdure.cli.request.validation import nearest
    from perdure.models.steps import AGENTIC

    name = text.strip().lower().replace("-", "_")
    known = [str(step) for step in AGENTIC]
    name = "implement" if name == "build" else name
    if name not in known:
        raise BadInput(f"no model works in a step {text[:60]!r}", where="--step", fix=nearest("", name, known))
    return name
