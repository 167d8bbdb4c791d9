"""The commands that end a delivery and let it go on: `cancel` and `retry`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import typer

from perdure.cli.event_loop import run_coroutine
from perdure.cli.look.watch import follow_delivery, print_detached
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, ensure_worker, resolve_id, run_with_delivery
from perdure.local.connect import no_worker_reason
from perdure.models.delivery.result import DeliveryResult, Status
from perdure.models.errors import BadInput, PerdureError
from perdure.render.progress_lines import closing_lines, no_worker_line
from perdure.text import shell_word, span

if TYPE_CHECKING:
    from perdure.client import Delivery
    from perdure.client.server.view import RunDescription

CANCEL_TURN_S = 120.0
"""Seconds for the running turn to end before a cancellation: most take less than a minute. Later its tools are
ended."""

HOST_LOOK_S = 5.0
"""Seconds between two looks whether its host is there, while the end of a cancelled delivery is waited for."""


def retry(id: str, budget: float | None, detach: bool, json: bool) -> None:
    """Start a delivery that ended without delivering again, from its last checkpoint, and follow it unless `detach`.

    Starts server and worker where they are missing. Raises typer.Exit with the exit code; after Ctrl-C it says how to
    come back and exits with 130. Raises BadInput when `id` names no single delivery, it runs or has delivered, or there
    is no key for the model.
    """
    screen = Screen(json=json)
    started: list[str] = []
    try:
        raise typer.Exit(run_coroutine(_retry_delivery(id, screen, started, budget=budget, detach=detach)))
    except KeyboardInterrupt:
        if not started:
            raise
        raise print_detached(screen, started[0]) from None


def cancel(id: str, now: bool, json: bool) -> None:
    """Stop a delivery, wait until it has ended, and print its result; raise typer.Exit, with code 1 when it was not
    cancelled but ended otherwise.

    The turn that runs may end first, for at most CANCEL_TURN_S, unless `now`; the delivery is held meanwhile, which
    Ctrl-C leaves so and says. Where no worker of its host is there any more, it is not waited for: the delivery is
    cancelled once one is. Raises BadInput when it has ended or `id` names no single delivery.
    """
    screen, delivery_ids = Screen(json=json), list[str]()

    async def work(delivery: Delivery) -> int:
        described = await delivery.describe()
        if not described.running:
            raise BadInput(
                f"{delivery.id} has ended: there is nothing to cancel", fix=f"perdure show {shell_word(delivery.id)}"
            )
        delivery_ids.append(delivery.id)
        if now or _host_wait(described):
            screen.say(f"cancelling {delivery.id}: its running tools are ended")
        else:
            await _let_turn_end(delivery, described.pending_decision is not None, screen)
        with suppress(BadInput):  # ended meanwhile: its result says how
            await delivery.cancel()
        result = await _wait_for_result(delivery, screen)
        if result is None:
            if json:
                screen.print_json({"delivery_id": delivery.id, "status": "cancelling"})
            return 0
        if json:
            screen.print_json(result.model_dump_json(indent=2))
        else:
            screen.print_lines(closing_lines(result))
        # The request was that it stops; one that delivered in the last moment did not.
        return 0 if result.status == Status.CANCELLED else 1

    try:
        raise typer.Exit(run_with_delivery(screen, id, work))
    except KeyboardInterrupt:
        if delivery_ids:
            quoted_id = shell_word(delivery_ids[0])
            screen.say(
                f"left: {delivery_ids[0]} may be held; perdure resume {quoted_id} or perdure cancel {quoted_id} --now"
            )
        raise


def _host_wait(described: RunDescription) -> str:
    """Return that an activity of the delivery waits for its host, which is not there; empty where none does."""
    return next((activity.queue_wait for activity in described.pending if activity.host_away), "")


async def _let_turn_end(delivery: Delivery, waits_for_person: bool, screen: Screen) -> None:
    """Hold the delivery and wait until its running turn has ended, for at most CANCEL_TURN_S; print that first.

    With `waits_for_person` no turn runs: nothing is done then.
    """
    if waits_for_person:
        return
    screen.say(
        f"cancelling {delivery.id}: what runs may end first, for at most {span(CANCEL_TURN_S)}; --now ends it at once"
    )
    await delivery.hold_until_idle(timedelta(seconds=CANCEL_TURN_S))


async def _wait_for_result(delivery: Delivery, screen: Screen) -> DeliveryResult | None:
    """Wait until the delivery has ended and return its result; None, after a line about it, where its host is not
    there to tidy up.

    When it still runs after HOST_LOOK_S, query it once for its progress, and print a line when no worker answers
    that could end it. Raises PerdureError when it ended without a result.
    """
    result = asyncio.ensure_future(delivery.result())
    was_asked = False
    while not (await asyncio.wait([result], timeout=HOST_LOOK_S))[0]:
        described = await delivery.describe()
        if described.running and (wait := _host_wait(described)):
            result.cancel()
            screen.say(f"{delivery.id} is cancelled once its host is back: it {wait}")
            return None
        if described.running and not was_asked:
            was_asked = True
            try:
                await delivery.progress()
            except PerdureError:
                screen.say(no_worker_line(no_worker_reason(), "it is cancelled then"))
    return await result


async def _retry_delivery(id: str, screen: Screen, started: list[str], *, budget: float | None, detach: bool) -> int:
    """Start the delivery again from its last checkpoint, with `budget` as its new limit; return the exit code.

    Starts a worker if need be. Follows the delivery to its end unless `detach`. Its id is appended to `started` once it
    runs: from then on Ctrl-C only leaves. Raises BadInput when `id` names no single delivery, it runs or has delivered,
    or there is no key for the model.
    """
    await ensure_worker(screen)
    perdure = await connect_client(screen)
    delivery = perdure.delivery(await resolve_id(perdure, id))
    resume_point = (await delivery.describe()).resume
    await delivery.retry(budget_usd=budget)
    started.append(delivery.id)
    has_checkpoint = resume_point is not None and resume_point.state.get("turns", {}).get("checkpoint")
    screen.say(f"{delivery.id} goes on from its last checkpoint" if has_checkpoint else f"{delivery.id} starts again")
    if detach:
        if screen.json:
            screen.print_json({"delivery_id": delivery.id})
        return 0
    return await follow_delivery(delivery, screen)
