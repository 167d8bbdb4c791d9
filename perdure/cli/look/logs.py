"""The record of what happened, also while it happens: `perdure events`, one event a line, and `perdure logs`, what the
agent said and did, turn by turn."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from perdure.cli.commands.options import LAST
from perdure.cli.event_loop import run_coroutine
from perdure.cli.look.watch import EXIT_DETACHED
from perdure.cli.request.validation import suggest_name
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, describe_on_own_server, read_pages, resolve_id, run_with_delivery
from perdure.client import Delivery, Perdure
from perdure.client.history.event_feed import all_events, backlog_events
from perdure.client.server.view import exact_id_query
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.turn import TURN_BEGINS
from perdure.models.duration import parse_duration
from perdure.models.errors import BadInput, PerdureError
from perdure.models.ids import BACKLOG_WORKFLOW
from perdure.render.lists import format_event
from perdure.render.progress_lines import REWOUND
from perdure.text import shell_word, shorten, visible

if TYPE_CHECKING:
    from perdure.models.events import Event


LOGS_EVERY_S = 1.0
"""Seconds between two looks of `logs --follow` whether a turn has ended: turns take seconds."""


def logs(id: str, step: str | None, follow: bool) -> None:
    """Print what the agent said and did, turn by turn, with times (UTC); `step`: only the turns of this step.

    `follow`: go on with what is added until the delivery ends; Ctrl-C then exits with 130. Raises BadInput when no
    model works in that step or `id` names no single delivery, PerdureError when the delivery's host does not answer.
    """
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

    Says on standard error when that step has taken no turn yet. Raises NoWorker, HostSilent or HostRefused when the
    delivery's host does not answer or fails.
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

    printed: list[str] = []
    last_state: object = None
    own_runs: set[str] = set()
    while True:
        described, delivery = await describe_on_own_server(screen, delivery, own_runs)
        if described is None:
            await asyncio.sleep(LOGS_EVERY_S)
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
    name = text.strip().lower().replace("-", "_")
    step_names = [str(step) for step in AGENTIC]
    name = "implement" if name == "build" else name
    if name not in step_names:
        raise BadInput(
            f"no model works in a step {shorten(text, 60)!r}", where="--step", fix=suggest_name("", name, step_names)
        )
    return name


def events(id: str, follow: bool, since: str, first: int, json: bool) -> None:
    """Print what happened, an event a line, as text or JSON: of a delivery, of a backlog, or without `id` of all that
    ran since.

    `first` is the offset to begin at. `follow`: go on until the delivery or backlog ends, without `id` for ever; Ctrl-C
    then exits with 130. Raises BadInput when `id` names nothing, or `since` or `first` do not fit. No worker is needed.
    """
    screen = Screen(json=json)

    async def work() -> None:
        async for event in await _open_stream(await connect_client(screen), id, since, first, follow=follow):
            print(event.model_dump_json() if json else format_event(event), flush=True)

    try:
        run_coroutine(work())
    except KeyboardInterrupt:
        if not follow:
            raise
        raise typer.Exit(EXIT_DETACHED) from None


async def _open_stream(perdure: Perdure, id: str, since: str, first: int, *, follow: bool) -> AsyncIterator[Event]:
    """Return the stream of events of a delivery, of a backlog, or without an id of all that ran since then.

    `first`: the offset to begin at. Raises BadInput for an offset without one delivery, and for a `since` that is no
    duration.
    """
    if not id:
        if first:
            raise BadInput("offsets count within one delivery", where="--from", fix="name it: perdure events ID")
        try:
            age = timedelta(seconds=parse_duration(since))
        except ValueError as error:
            raise BadInput(str(error), where="--since", fix="write 30m or 24h") from None
        return all_events(perdure.client, datetime.now(UTC) - age, follow=follow)
    if id != LAST and await perdure.list(limit=1, query=exact_id_query(id), workflow=BACKLOG_WORKFLOW):
        if first:
            fix = f"perdure events {shell_word(id)}/ITEM --from {first} is about one of its deliveries"
            raise BadInput("a backlog's deliveries have offsets of their own", where="--from", fix=fix)
        return backlog_events(perdure.client, id, follow=follow)
    return perdure.events(await resolve_id(perdure, id), follow=follow, since=first)
