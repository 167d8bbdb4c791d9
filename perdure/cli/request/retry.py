"""The end of a delivery, and another beginning: `retry`, `cancel`."""

from __future__ import annotations

import shlex
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.ids import DeliveryId, resolve_id
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected, with_delivery, worker_started
from perdure.models.errors import BadInput, PerdureError
from perdure.models.limits import WATCH_SILENCE_S
from perdure.text import span

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.models.result import DeliveryResult

CANCEL_TURN_S = 120.0
"""For the turn that runs to end before a cancellation: most take less than a minute. Later its tools are ended."""


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def retry(
    id: DeliveryId,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0.01, help="A new limit for all its runs together.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and leave.")] = False,
    json: Json = False,
) -> None:
    """Go on from the last checkpoint of a delivery that ended without delivering."""
    from perdure.cli.look.watch import detached

    screen = Screen(json=json)
    started: list[str] = []
    try:
        raise typer.Exit(carry_out(_retry(id, screen, started, budget=budget, detach=detach)))
    except KeyboardInterrupt:
        if not started:
            raise
        raise detached(screen, started[0]) from None


def cancel(
    id: DeliveryId,
    now: Annotated[bool, typer.Option("--now", help="End its running tools at once.")] = False,
    json: Json = False,
) -> None:
    """Stop a delivery and wait until it has ended. Its branch and last checkpoint stay; retry goes on from there.

    The turn that runs may end first, so that nothing of it is lost, unless --now.
    """
    from perdure.cli.look.closing import closing
    from perdure.models.result import Status

    screen, found = Screen(json=json), list[str]()

    async def work(delivery: Delivery) -> int:
        from temporalio.service import RPCError, RPCStatusCode

        described = await delivery.describe()
        if not described.running:
            raise BadInput(f"{delivery.id} has ended: there is nothing to cancel", fix=f"perdure show {delivery.id}")
        found.append(delivery.id)
        if now:
            screen.say(f"cancelling {delivery.id}: its running tools are ended")
        else:
            await _rest(delivery, described.asked is not None, screen)
        try:
            await delivery.cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise  # ended meanwhile: its result says how
        result = await _ended(delivery, screen)
        if json:
            screen.data(result.model_dump_json(indent=2))
        else:
            screen.lines(closing(result))
        # What was asked for is that it stops; one that delivered in the last moment did not.
        return 0 if result.status == Status.CANCELLED else 1

    try:
        raise typer.Exit(with_delivery(screen, id, work))
    except KeyboardInterrupt:
        if found:
            typed = shlex.quote(found[0])
            screen.say(f"left: {found[0]} may be held; perdure resume {typed} or perdure cancel {typed} --now")
        raise


async def _rest(delivery: Delivery, waits: bool, screen: Screen) -> None:
    """Let the turn that runs come to its end, if there is one and it does not take too long."""
    if waits:
        return
    screen.say(
        f"cancelling {delivery.id}: what runs may end first, for at most {span(CANCEL_TURN_S)}; --now ends it at once"
    )
    await delivery.come_to_rest(timedelta(seconds=CANCEL_TURN_S))


async def _ended(delivery: Delivery, screen: Screen) -> DeliveryResult:
    """The result; says so when nobody is there who could end the delivery."""
    import asyncio

    from perdure.cli.host.workers import absent
    from perdure.cli.look.story import no_worker

    ending = asyncio.ensure_future(delivery.result())
    done, _ = await asyncio.wait([ending], timeout=WATCH_SILENCE_S)
    if not done and (await delivery.describe()).running:
        try:
            await delivery.progress()
        except PerdureError:
            screen.say(no_worker(absent(), "it is cancelled then"))
    return await ending


async def _retry(id: str, screen: Screen, started: list[str], *, budget: float | None, detach: bool) -> int:
    from perdure.cli.look.watch import follow

    await worker_started(screen)
    perdure = await connected(screen)
    delivery = perdure.delivery(await resolve_id(perdure, id))
    known = (await delivery.describe()).resume
    await delivery.retry(budget_usd=budget)
    started.append(delivery.id)
    begun = known is not None and known.state.get("checkpoint")
    screen.say(f"{delivery.id} goes on from its last checkpoint" if begun else f"{delivery.id} starts again")
    if detach:
        if screen.json:
            screen.data({"delivery_id": delivery.id})
        return 0
    return await follow(delivery, screen)
