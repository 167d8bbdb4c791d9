"""`perdure top`: all that runs, live, what waits for you first; and the decisions, each by a key."""

from __future__ import annotations

import asyncio
import webbrowser
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

from rich.live import Live
from rich.text import Text
from temporalio.service import RPCError

from perdure.adapters.system.home import Home, login_name
from perdure.cli.decide.gate import decide_at_gate, gate_choices
from perdure.cli.event_loop import handle_interrupts, run_coroutine
from perdure.cli.keys import TerminalKeys, is_at_terminal
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client
from perdure.client import Delivery, Perdure
from perdure.client.server.overview import LOOK_S, Overview, OverviewRow, row_data
from perdure.local.page import page_address
from perdure.models.delivery.result_text import pending_text
from perdure.models.errors import PerdureError
from perdure.models.limits import NAME_CHARS
from perdure.render.decision_lines import pending_lines, resolve_answer
from perdure.render.formatting import align_columns, time_ago
from perdure.render.step_lines import phase_bar
from perdure.text import cut_middle, format_money, one_line, shell_word, shorten

SHOWN_ENDED = 5
"""Rows shown of what has ended, the newest: the rest stands in `perdure list`."""

HELP = "n/p or arrows choose · a decide · s say · h hold or resume · o open the page · q quit"
_WIDE_ID, _NARROW = 28, 78
_WIDE, _TITLE, _CHANGE = 132, 32, 48
"""Columns of a terminal that has room for titles and the size of changes, and of these two."""
_ACTION_KEYS = ("a", "r", "s", "h", "o")


def top(once: bool, json: bool) -> None:
    """Show all deliveries and backlogs in a live table, what waits for a person first, until q or Ctrl-C; keys decide
    and steer.

    Prints one table, or with `json` the rows as JSON, and leaves with `once` or when there is no terminal. No worker is
    needed. Raises TemporalUnreachable when no server runs.
    """
    screen = Screen(json=json)

    async def work() -> None:
        perdure = await connect_client(screen)
        overview = Overview(perdure.client)
        if json:
            screen.print_json([row_data(row) for row in await overview.rows()])
        elif once or not screen.is_terminal or not is_at_terminal():
            rows = await overview.rows()
            screen.print_lines(table_lines(rows, screen.width if screen.is_terminal else None) or ["nothing runs"])
            if overview.trouble:
                screen.say(f"! {overview.trouble}")
        else:
            await _run_live(perdure, overview, screen)

    with suppress(KeyboardInterrupt):
        run_coroutine(work())


async def _run_live(perdure: Perdure, overview: Overview, screen: Screen) -> None:
    """Show the live table until q is pressed; carry out each other key for the row that was chosen when it was
    pressed."""
    chosen_id, message = "", ""
    with screen.console.status("reading what runs"):
        await overview.rows()
    while True:
        key, row = await _show_until_key(overview, screen, chosen_id, message)
        if key == "q":
            return
        message, chosen_id = "", row.id if row is not None else ""
        if row is not None:
            message = await _apply_key(key, row, perdure, screen)


async def _show_until_key(
    overview: Overview, screen: Screen, chosen_id: str, message: str
) -> tuple[str, OverviewRow | None]:
    """Show the table, read again as it ages, until a key that does something is pressed; return that key and the chosen
    row.

    n, p and the arrows choose a row meanwhile. The row is None where nothing runs.
    """

    rows = await overview.rows()
    chosen_index = next((index for index, row in enumerate(rows) if row.id == chosen_id), 0)
    with Live(console=screen.console, auto_refresh=False, screen=True) as live:
        async with TerminalKeys.read_terminal() as keys:
            keys.discard_pressed()  # Keys pressed before were meant for what was shown then.
            while True:
                chosen_index = max(0, min(chosen_index, len(rows) - 1))
                current_id = rows[chosen_index].id if rows else ""
                live.update(_render_screen(rows, chosen_index, screen, message, overview.trouble), refresh=True)
                try:
                    async with asyncio.timeout(LOOK_S):
                        key = await keys.next_key()
                except TimeoutError:
                    rows = await overview.rows()
                    chosen_index = next((index for index, row in enumerate(rows) if row.id == current_id), chosen_index)
                    continue
                if key in _ACTION_KEYS or key == "q":
                    return key, rows[chosen_index] if rows else None
                chosen_index += {"n": 1, "down": 1, "p": -1, "up": -1}.get(key, 0)


def _render_screen(rows: Sequence[OverviewRow], chosen_index: int, screen: Screen, message: str, trouble: str) -> Text:
    """Return the whole screen: counts, as many rows as fit with the chosen one among them, a message, the keys.

    `trouble`, why the rows could not be read, stands in the place of the message.
    """
    height, width = max(screen.console.height - 4, 3), screen.console.width
    lines = table_lines(rows, width)
    first = max(0, min(chosen_index + 1 - height // 2, len(lines) - height))
    text = Text(no_wrap=True, overflow="crop")
    waiting = sum(row.waits for row in rows)
    text.append(f"{waiting} wait for you · {sum(row.closed is None for row in rows)} run\n", style="bold")
    for number, line in enumerate(lines[:1] + lines[1:][first : first + height], -1):
        style = "dim" if number == -1 else "reverse" if number + first == chosen_index else ""
        text.append(f"{line}\n", style=style)
    if not rows:
        text.append("nothing runs\n")
    notice = f"! {trouble}" if trouble else message
    text.append(f"{notice}\n" if notice else "\n", style="yellow")
    text.append(HELP if width > _NARROW else "n p · a s h o · q", style="dim")
    return text


def table_lines(rows: Sequence[OverviewRow], width: int | None, now: datetime | None = None) -> list[str]:
    """Return one line a delivery or backlog under a heading, at most `width` wide; empty where there is none. Titles
    stand in the place of ids where there is no room for both.

    The rows keep their order, what waits first; of what has ended there are the first SHOWN_ENDED.
    """
    now = now or datetime.now(UTC)
    narrow, wide = width is not None and width <= _NARROW, width is None or width >= _WIDE
    ended = [row for row in rows if row.closed is not None][:SHOWN_ENDED]
    shown = [row for row in rows if row.closed is None] + ended
    limit = _WIDE_ID // 2 if narrow else _WIDE_ID
    names = [_cut_id(row, limit) for row in shown] if wide else row_names(shown, limit)
    cells = [_cells_of(row, name, now, wide=wide) for row, name in zip(shown, names, strict=True)]
    heading = ("", "delivery", *(("title",) if wide else ()), "phase", "since", "cost")
    heading += (*(("change",) if wide else ()), "doing")
    lines = align_columns([heading, *cells], width) if cells else []
    return [line if width is None else shorten(line, width) for line in lines]


def row_names(rows: Sequence[OverviewRow], limit: int) -> list[str]:
    """Return the name of each row, at most `limit` characters: its title, its id where it has none, and the title with
    the end of the id where two would be alike."""
    names = [one_line(row.title, limit) or _cut_id(row, limit) for row in rows]
    counts, id_limit = Counter(names), limit // 2
    return [
        name
        if counts[name] == 1 or not row.title
        else f"{one_line(row.title, limit - id_limit - 1)} {_cut_id(row, id_limit, head_share=0.0)}"
        for row, name in zip(rows, names, strict=True)
    ]


def _cut_id(row: OverviewRow, limit: int, head_share: float = 0.5) -> str:
    return cut_middle(one_line(row.id, NAME_CHARS), limit, "…", head_share=head_share)


def _cells_of(row: OverviewRow, name: str, now: datetime, *, wide: bool) -> tuple[str, ...]:
    """Return the cells of a row: mark, name, on a wide screen title, phase, since when, cost, on a wide screen change,
    what it does."""
    title = (one_line(row.title, _TITLE),) if wide else ()
    since = time_ago((now - (row.since or row.closed or row.started)).total_seconds())
    cost = format_money(row.cost_usd) if row.cost_usd is not None else ""
    change = (one_line(row.change, _CHANGE),) if wide else ()
    return mark_of(row), name, *title, phase_cell(row), since, cost, *change, activity_text(row)


def mark_of(row: OverviewRow) -> str:
    """Return the mark of a row: `!` waits for you, `▸` runs, `✓` and `✗` have ended, `?` its worker is silent."""
    if row.closed is not None:
        return "✓" if row.status in ("delivered", "completed", "draft", "no_changes") else "✗"
    return "!" if row.waits else "?" if row.silent_since is not None else "▸"


def phase_cell(row: OverviewRow) -> str:
    """Return how far a delivery has come among the phases, `▰▰▱▱▱ build`; of a backlog, which has none, `backlog`."""
    if row.kind == "backlog":
        return "backlog"
    return phase_bar(row.phase, over=row.closed is not None and row.status in ("delivered", "completed"))


def activity_text(row: OverviewRow) -> str:
    """Return in one line what a row does at this moment or what it waits for; of one that has ended, its status."""
    if row.closed is not None:
        return one_line(": ".join(filter(None, (row.status.replace("_", " "), row.reason))), 120)
    if row.pending_decision is not None:
        return one_line(f"{row.pending_decision.gate.replace('_', ' ')}: {pending_text(row.pending_decision)}", 120)
    if row.waits:
        return one_line(row.held, 120) if row.held else "held, or waits for a host"
    turn = f"turn {row.turn}: " if row.turn else ""
    attempt_note = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return one_line(f"{turn}{row.doing or row.status}{attempt_note}", 120)


async def _apply_key(key: str, row: OverviewRow, perdure: Perdure, screen: Screen) -> str:
    """Carry out a key for one row: decide, say, hold or resume, open the page; return in words what came of it.

    An error of Perdure or of the server is returned in words, too.
    """

    try:
        if key == "o":
            return await asyncio.to_thread(_open_page, row)
        if row.kind == "backlog":
            return f"{row.id} is a backlog: perdure backlog status {shell_word(row.id)}"
        delivery = perdure.delivery(row.id)
        match key:
            case "s":
                text = _ask_for_line(f"say to {row.id}: ")
                return f"recorded: {await delivery.say(text)}" if text else "nothing was said"
            case "h":
                if row.status == "waiting" and row.pending_decision is None:
                    await delivery.resume()
                    return f"{row.id} goes on"
                await delivery.hold(by=login_name())
                return f"{row.id} begins no further turn"
            case _:
                return await _decide_row(row, delivery, screen)
    except (PerdureError, RPCError) as error:
        return f"! {getattr(error, 'what', '') or getattr(error, 'message', '')}"


async def _decide_row(row: OverviewRow, delivery: Delivery, screen: Screen) -> str:
    """Ask the person for the decision that a row waits for, send it, and return in words what came of it.

    An approval, a rejection or an answer counts only for the decision that was shown; at a limit, dollars are added.
    Nothing is sent for an empty line, or when the row waits for no decision. Raises NotCounted when the delivery
    refuses an answer or amount, and BadInput when it has ended.
    """
    if (pending_decision := row.pending_decision) is None or row.closed is not None:
        return f"{row.id} waits for no decision"
    if gate_choices(pending_decision):
        is_decided = await decide_at_gate(delivery, pending_decision, screen)
        return f"{row.id}: decided" if is_decided else f"{row.id}: left for later"
    screen.print_lines(pending_lines(pending_decision, row.id))
    if pending_decision.question is not None:
        text = _ask_for_line("answer: ")
        return (
            (
                await delivery.answer(
                    resolve_answer(pending_decision.question, text), pending_decision.target, by=login_name()
                )
            ).message
            if text
            else "left"
        )
    text = _ask_for_line("dollars more: ")
    try:
        return (await delivery.add_budget(float(text), by=login_name())).message if text else "left for later"
    except ValueError:
        return f"{text!r} is no number of dollars"


def _ask_for_line(prompt: str) -> str:
    """Ask the person for a line and return it; empty where they interrupt it or end the input."""
    try:
        with handle_interrupts(interrupts=True):
            return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


def _open_page(row: OverviewRow) -> str:
    """Open the local page in a browser; return its path for the row, or that no page runs."""
    address = page_address(Home.find())
    if not address:
        return "no page runs: perdure page, or perdure up"
    webbrowser.open(address)
    return f"opened; there: /{'backlogs' if row.kind == 'backlog' else 'deliveries'}/{quote(row.id, safe='')}"
