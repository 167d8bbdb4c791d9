"""Watching a backlog until it ends: changes line by line, and on a terminal the present state below them."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import TYPE_CHECKING

import typer

from perdure.cli.backlog.text import change_lines, headline, status_lines, waiting_item_rows
from perdure.cli.host.workers import no_worker_reason
from perdure.cli.look.step_lines import WARN
from perdure.cli.look.watch import AWAY, EXIT_CANCELLED, EXIT_DETACHED, EXIT_MISSING, WATCH_LOST_S
from perdure.cli.screen import Screen
from perdure.cli.session import describe_on_own_server
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.decisions import PendingDecision
from perdure.models.errors import BadInput, PerdureError, TemporalUnreachable
from perdure.models.limits import WATCH_SILENCE_S
from perdure.text import visible

if TYPE_CHECKING:
    from rich.live import Live

    from perdure.client import Backlog

BACKLOG_LOOK_S = 1.0
"""Seconds between two looks at a backlog: a thousand items are 200 KB, and none changes within a second."""


def exit_code(progress: BacklogProgress) -> int:
    """Return the exit code for an ended backlog: 0 if every item landed, was skipped or was decomposed, 1 if not, 5 if
    it was cancelled."""
    if progress.status == "cancelled":
        return EXIT_CANCELLED
    return 0 if all(view.phase in ("landed", "skipped", "decomposed") for view in progress.items) else EXIT_MISSING


def leave_backlog(screen: Screen, id: str) -> typer.Exit:
    """Print that the backlog goes on and the commands to come back or cancel it; return the exit to raise after
    Ctrl-C."""
    quoted_id = shlex.quote(id)
    for line in ("", f"Left: {id} goes on", f"  come back  perdure backlog status {quoted_id} --watch"):
        screen.say(line)
    screen.say(f"  cancel     perdure backlog cancel {quoted_id}")
    return typer.Exit(EXIT_DETACHED)


async def follow_backlog(backlog: Backlog, screen: Screen) -> int:
    """Show the backlog until it ends, print its result and return the exit code.

    Servers and workers may go away and come back meanwhile; both are reported. Raises TemporalUnreachable when the
    server has been away for WATCH_LOST_S.
    """
    from temporalio.exceptions import TemporalError
    from temporalio.service import RPCError

    previous: BacklogProgress | None = None
    reached_at = answered_at = time.monotonic()
    is_silence_reported = is_server_away = False
    with screen.live_display() as live:
        while True:
            try:
                described, backlog = await describe_on_own_server(screen, backlog)
            except (RPCError, TemporalUnreachable) as error:
                if time.monotonic() - reached_at > WATCH_LOST_S:
                    fix = f"perdure up --detach, then perdure backlog status {backlog.id} --watch: the work is safe"
                    where = visible(str(error))[:200]
                    raise TemporalUnreachable("Temporal went away", where=where, fix=fix) from None
                described = None
                if not is_server_away:
                    screen.say(AWAY)
                is_server_away = True
            if described is not None:
                reached_at, is_server_away = time.monotonic(), False
                if not described.running:
                    break
                try:
                    progress = await backlog.progress(once=True)
                except (PerdureError, RPCError, TemporalError):
                    if not is_silence_reported and reached_at - answered_at > WATCH_SILENCE_S:
                        is_silence_reported = True
                        screen.say(f"{WARN} {_no_worker_reason()}")
                else:
                    answered_at, is_silence_reported = reached_at, False
                    _show_progress(screen, live, previous, progress)
                    previous = progress
            await asyncio.sleep(BACKLOG_LOOK_S)
    result = await backlog.result()
    if screen.json:
        screen.print_json(result.model_dump_json(indent=2))
    else:
        screen.print_lines(change_lines(previous, result))
        quoted_id = shlex.quote(backlog.id)
        screen.print_lines(["", *status_lines(result), "", f"next  perdure backlog report {quoted_id}"])
        if exit_code(result):
            screen.print_line(f"      perdure backlog retry {quoted_id}   goes on with what did not land")
    return exit_code(result)


def _show_progress(
    screen: Screen, live: Live | None, previous: BacklogProgress | None, progress: BacklogProgress
) -> None:
    """Print what has changed since `previous`, and update the live lines with headline and waiting items."""
    if not screen.json:
        screen.print_lines(change_lines(previous, progress))
    if live is not None:
        live.update("\n".join([headline(progress), *waiting_item_rows(progress, {})]), refresh=True)


async def read_pending_decisions(backlog: Backlog, progress: BacklogProgress) -> dict[str, PendingDecision]:
    """Ask each delivery that waits for a person which decision it waits for; return these by item.

    A delivery that cannot be found or described is left out.
    """
    from temporalio.service import RPCError

    from perdure.client import Perdure

    perdure, decisions = Perdure(backlog.client), {}
    for view in [view for view in progress.items if view.phase == "waits" and view.delivery]:
        try:
            pending_decision = (await perdure.delivery(view.delivery).describe()).pending_decision
        except (RPCError, BadInput):
            continue
        if pending_decision is not None:
            decisions[view.id] = pending_decision
    return decisions


def _no_worker_reason() -> str:
    return no_worker_reason()
