"""`perdure list`: what waits for somebody, and the newest deliveries and backlogs. It loads nothing of what decides or
follows one: it is typed more often than any other command."""

from __future__ import annotations

from perdure.adapters.system.home import Home
from perdure.cli.event_loop import run_coroutine
from perdure.cli.screen import Screen
from perdure.client.server.slots import mark_queue_waits
from perdure.client.server.view import ListEntry, list_newest, list_waiting
from perdure.local.connect import connect_to_temporal
from perdure.models.ids import BACKLOG_WORKFLOW
from perdure.render.lists import delivery_rows, entry_json, waiting_delivery_rows


def list_(limit: int, waiting: bool, json: bool) -> None:
    """Print the deliveries that wait for a person, the longest first, then the newest deliveries and backlogs, `limit`
    of each.

    `waiting`: only those that wait. With `json`, prints one list of objects: those that wait with `waiting`, else the
    newest deliveries and backlogs. No worker is needed.
    """

    screen = Screen(json=json)

    async def read_lists() -> tuple[list[ListEntry], list[ListEntry], list[ListEntry]]:
        client = await connect_to_temporal(Home.find(), start=False, say=screen.say)
        if waiting:
            return await list_waiting(client), [], []
        backlogs = await list_newest(client, limit, workflow=BACKLOG_WORKFLOW)
        newest = await mark_queue_waits(client, await list_newest(client, limit))
        return await list_waiting(client), newest, backlogs

    waiting_entries, newest, backlogs = run_coroutine(read_lists())
    if json:
        deliveries = [entry_json(entry) for entry in (waiting_entries[:limit] if waiting else newest)]
        screen.print_json([*deliveries, *(entry_json(entry, "backlog") for entry in backlogs)])
        return
    if waiting_entries:
        screen.print_lines(waiting_delivery_rows(waiting_entries[:limit], screen.table_width))
        more = f"; {len(waiting_entries) - limit} more wait" if len(waiting_entries) > limit else ""
        screen.print_line(f"perdure show ID says what to type{more}")
    waiting_ids = {entry.delivery_id for entry in waiting_entries}
    if others := [entry for entry in newest if entry.delivery_id not in waiting_ids]:
        screen.print_lines(
            ["", *delivery_rows(others, screen.table_width)]
            if waiting_entries
            else delivery_rows(others, screen.table_width)
        )
    elif not waiting_entries:
        screen.print_line("nothing waits for you" if waiting else 'no delivery yet: perdure deliver "what you want"')
    if backlogs:
        screen.print_lines(["", *delivery_rows(backlogs, screen.table_width, kind="backlog")])
