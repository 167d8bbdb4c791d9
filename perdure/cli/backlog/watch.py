"""Watching a backlog until it ends: what changes line by line, and on a terminal all of it below."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import TYPE_CHECKING

import typer

from perdure.cli.backlog.text import changes, headline, status_lines, waiting_rows
from perdure.cli.host.workers import absent
from perdure.cli.look.chapters import STOPS
from perdure.cli.look.watch import AWAY, EXIT_CANCELLED, EXIT_DETACHED, EXIT_MISSING, WATCH_LOST_S
from perdure.cli.screen import Screen
from perdure.cli.session import look_at
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.decisions import Asked
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
from perdure.models.limits import WATCH_SILENCE_S
from perdure.text import visible

if TYPE_CHECKING:
    from rich.live import Live

    from perdure.client import Backlog

BACKLOG_LOOK_S = 1.0
"""Between two looks at all of a backlog: a thousand items are 200 KB, and none changes within a second."""


def exit_code(progress: BacklogProgress) -> int:
    """0: every item landed, was skipped by somebody, or its parts took its place; 1: not so; 5: cancelled."""
    if progress.status == "cancelled":
        return EXIT_CANCELLED
    return 0 if all(view.phase in ("landed", "skipped", "decomposed") for view in progress.items) else EXIT_MISSING


def detached(screen: Screen, id: str) -> typer.Exit:
    """Leave on Ctrl-C: the work goes on."""
    typed = shlex.quote(id)
    for line in ("", f"Left: {id} goes on", f"  come back  perdure backlog status {typed} --watch"):
        screen.say(line)
    screen.say(f"  cancel     perdure backlog cancel {typed}")
    return typer.Exit(EXIT_DETACHED)


async def follow(backlog: Backlog, screen: Screen) -> int:
    """Show it until it ends, say how, and return the exit code. Survives servers and workers that go and come back."""
    from temporalio.exceptions import TemporalError
    from temporalio.service import RPCError

    before: BacklogProgress | None = None
    reached = answered = time.monotonic()
    silent = away = False
    with screen.live() as live:
        while True:
            try:
                described, backlog = await look_at(screen, backlog)
            except (RPCError, TemporalUnreachable) as error:
                if time.monotonic() - reached > WATCH_LOST_S:
                    fix = f"perdure up --detach, then perdure backlog status {backlog.id} --watch: the work is safe"
                    where = visible(str(error))[:200]
                    raise TemporalUnreachable("Temporal went away", where=where, fix=fix) from None
                described = None
                if not away:
                    screen.say(AWAY)
                away = True
            if described is not None:
                reached, away = time.monotonic(), False
                if not described.running:
                    break
                try:
                    found = await backlog.progress(once=True)
                except (PerdureError, RPCError, TemporalError):
                    if not silent and reached - answered > WATCH_SILENCE_S:
                        silent = True
                        screen.say(f"{STOPS} {_why()}")
                else:
                    answered, silent = reached, False
                    _tell(screen, live, before, found)
                    before = found
            await asyncio.sleep(BACKLOG_LOOK_S)
    result = await backlog.result()
    if screen.json:
        screen.data(result.model_dump_json(indent=2))
    else:
        screen.lines(changes(before, result))
        typed = shlex.quote(backlog.id)
        screen.lines(["", *status_lines(result), "", f"next  perdure backlog report {typed}"])
        if exit_code(result):
            screen.line(f"      perdure backlog retry {typed}   goes on with what did not land")
    return exit_code(result)


def _tell(screen: Screen, live: Live | None, before: BacklogProgress | None, found: BacklogProgress) -> None:
    if not screen.json:
        screen.lines(changes(before, found))
    if live is not None:
        live.update("\n".join([headline(found), *waiting_rows(found, {})]), refresh=True)


async def asked_of(backlog: Backlog, progress: BacklogProgress) -> dict[str, Asked]:
    """The questions of its waiting deliveries, by item: those know their choices. Nothing of one that is silent."""
    from temporalio.service import RPCError

    from perdure.client import Perdure

    perdure, found = Perdure(backlog.client), {}
    for view in [view for view in progress.items if view.phase == "waits" and view.delivery]:
        try:
            asked = (await perdure.delivery(view.delivery).describe()).asked
        except (RPCError, BadInput):
            continue
        if asked is not None:
            found[view.id] = asked
    return found


def _why() -> str:
    return absent()
