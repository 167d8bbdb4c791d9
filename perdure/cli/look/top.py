"""`perdure top`: all that runs, what waits for you first, live; and the decisions, by a key."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from perdure.cli.decide.answer import who
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected, person_at_work
from perdure.cli.table import ago, columns
from perdure.cli.words import money
from perdure.models.errors import PerdureError
from perdure.text import one_line

if TYPE_CHECKING:
    from rich.text import Text

    from perdure.client import Delivery, Perdure
    from perdure.client.overview import Overview, Row

SHOWN_ENDED = 5
"""Of what has ended, the newest: the rest stands in `perdure list`."""

HELP = "n/p or arrows choose · a decide · s say · h hold or resume · o open the page · q quit"
_WIDE_ID, _NARROW = 28, 78
_WIDE, _CHANGE = 132, 48
"""Of a terminal with room for the size of changes, and of that column."""
_ACTS = ("a", "r", "s", "h", "o")


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one table and leave, as where there is no terminal.")] = (
        False
    ),
    json: Annotated[bool, typer.Option("--json", help="Print one table as JSON and leave.")] = False,
) -> None:
    """All deliveries and backlogs, live: what waits for you first, with phase, turn, worker and cost.

    Looking wakes nothing and writes nothing.
    """
    from perdure.cli.keys import at_a_terminal
    from perdure.client.overview import Overview, as_data

    screen = Screen(json=json)

    async def work() -> None:
        perdure = await connected(screen)
        overview = Overview(perdure.client)
        if json:
            screen.data([as_data(row) for row in await overview.rows()])
        elif once or not screen.terminal or not at_a_terminal():
            rows = await overview.rows()
            screen.lines(table(rows, screen.width if screen.terminal else None) or ["nothing runs"])
            if overview.trouble:
                screen.say(f"! {overview.trouble}")
        else:
            await _live(perdure, overview, screen)

    with suppress(KeyboardInterrupt):
        carry_out(work())


async def _live(perdure: Perdure, overview: Overview, screen: Screen) -> None:
    """Until q: show, and carry out what a key asks for with the row that was chosen as it was pressed."""
    chosen, said = "", ""
    while True:
        key, row = await _screenful(overview, screen, chosen, said)
        if key == "q":
            return
        said, chosen = "", row.id if row is not None else ""
        if row is not None:
            said = await _act(key, row, perdure, screen)


async def _screenful(overview: Overview, screen: Screen, chosen: str, said: str) -> tuple[str, Row | None]:
    """Show it until a key is pressed that does something; that key and the row that is chosen."""
    import asyncio

    from rich.live import Live

    from perdure.cli.keys import Keys
    from perdure.client.overview import LOOK_S

    rows = await overview.rows()
    place = next((at for at, row in enumerate(rows) if row.id == chosen), 0)
    with Live(console=screen.console, auto_refresh=False, screen=True) as live:
        async with Keys.of_terminal() as keys:
            keys.forget()  # they were meant for what was shown before
            while True:
                place = max(0, min(place, len(rows) - 1))
                here = rows[place].id if rows else ""
                live.update(_shown(rows, place, screen, said, overview.trouble), refresh=True)
                try:
                    async with asyncio.timeout(LOOK_S):
                        key = await keys.next()
                except TimeoutError:
                    rows = await overview.rows()
                    place = next((at for at, row in enumerate(rows) if row.id == here), place)
                    continue
                if key in _ACTS or key == "q":
                    return key, rows[place] if rows else None
                place += {"n": 1, "down": 1, "p": -1, "up": -1}.get(key, 0)


def _shown(rows: Sequence[Row], place: int, screen: Screen, said: str, trouble: str) -> Text:
    """The whole screen: as many rows as there is room for, with the chosen one among them."""
    from rich.text import Text

    height, width = max(screen.console.height - 4, 3), screen.console.width
    lines = table(rows, width)
    first = max(0, min(place + 1 - height // 2, len(lines) - height))
    text = Text(no_wrap=True, overflow="crop")
    waiting = sum(row.waits for row in rows)
    text.append(f"{waiting} wait for you · {sum(row.closed is None for row in rows)} run\n", style="bold")
    for number, line in enumerate(lines[:1] + lines[1:][first : first + height], -1):
        style = "dim" if number == -1 else "reverse" if number + first == place else ""
        text.append(f"{line}\n", style=style)
    if not rows:
        text.append("nothing runs\n")
    told = f"! {trouble}" if trouble else said
    text.append(f"{told}\n" if told else "\n", style="yellow")
    text.append(HELP if width > _NARROW else "n p · a s h o · q", style="dim")
    return text


def table(rows: Sequence[Row], width: int | None, now: datetime | None = None) -> list[str]:
    """One line a delivery or backlog under a heading, what waits first; at most `width` wide. Empty where none is."""
    now = now or datetime.now(UTC)
    narrow, wide = width is not None and width <= _NARROW, width is None or width >= _WIDE
    ended = 0
    shown = list[tuple[str, ...]]()
    for row in rows:
        ended += row.closed is not None
        if ended <= SHOWN_ENDED or row.closed is None:
            shown.append(_cells(row, now, narrow=narrow, wide=wide))
    heading = ("", "delivery", "phase", "since", "cost", *(("change",) if wide else ()), "doing")
    lines = columns([heading, *shown], width) if shown else []
    return [line if width is None or len(line) <= width else f"{line[: width - 1]}…" for line in lines]


def _cells(row: Row, now: datetime, *, narrow: bool, wide: bool) -> tuple[str, ...]:
    id = row.id if not narrow or len(row.id) <= _WIDE_ID // 2 else f"{row.id[: _WIDE_ID // 2 - 1]}…"
    since = ago((now - (row.since or row.closed or row.started)).total_seconds())
    cost = money(row.cost_usd) if row.cost_usd is not None else ""
    change = (one_line(row.change, _CHANGE),) if wide else ()
    return mark(row), one_line(id, _WIDE_ID), bar(row), since, cost, *change, doing(row)


def mark(row: Row) -> str:
    """`!` waits for you, `▸` runs, `✓` and `✗` have ended, `?` its worker is silent."""
    if row.closed is not None:
        return "✓" if row.status in ("delivered", "completed", "draft", "no_changes") else "✗"
    return "!" if row.waits else "?" if row.silent_since is not None else "▸"


def bar(row: Row) -> str:
    """`▰▰▱▱▱ build`: how far it has come among the phases; a backlog has none."""
    from perdure.cli.look.chapters import phase_bar

    if row.kind == "backlog":
        return "backlog"
    return phase_bar(row.phase, over=row.closed is not None and row.status in ("delivered", "completed"))


def doing(row: Row) -> str:
    """The work of this moment, or for what it waits, in one line."""
    if row.closed is not None:
        return row.status.replace("_", " ")
    if row.asked is not None:
        words = row.asked.question.text if row.asked.question is not None else row.asked.words
        return one_line(f"{row.asked.gate.replace('_', ' ')}: {words}", 120)
    if row.waits:
        return one_line(row.held, 120) if row.held else "held, or waits for a host"
    turn = f"turn {row.turn}: " if row.turn else ""
    again = f" (attempt {row.attempt})" if row.attempt > 1 else ""
    return one_line(f"{turn}{row.doing or row.status}{again}", 120)


async def _act(key: str, row: Row, perdure: Perdure, screen: Screen) -> str:
    """Carry out a key for one row; the words that say what came of it."""
    import asyncio

    from temporalio.service import RPCError

    try:
        if key == "o":
            return await asyncio.to_thread(_open, row)
        if row.kind == "backlog":
            return f"{row.id} is a backlog: perdure backlog status {row.id}"
        delivery = perdure.delivery(row.id)
        match key:
            case "s":
                words = _typed(f"say to {row.id}: ")
                return f"recorded: {await delivery.say(words)}" if words else "nothing was said"
            case "h":
                if row.status == "waiting" and row.asked is None:
                    await delivery.resume()
                    return f"{row.id} goes on"
                await delivery.hold(by=who())
                return f"{row.id} begins no further turn"
            case _:
                return await _decide(row, delivery, screen)
    except (PerdureError, RPCError) as error:
        return f"! {getattr(error, 'what', '') or getattr(error, 'message', '')}"


async def _decide(row: Row, delivery: Delivery, screen: Screen) -> str:
    """The decision that it waits for, as it was shown: another one is never decided in its place."""
    from perdure.cli.decide.asking import meant, waits_for_you
    from perdure.cli.decide.gate import at_gate, choices

    if (asked := row.asked) is None or row.closed is not None:
        return f"{row.id} waits for no decision"
    if choices(asked):
        decided = await at_gate(delivery, asked, screen)
        return f"{row.id}: decided" if decided else f"{row.id}: left for later"
    screen.lines(waits_for_you(asked, row.id))
    if asked.question is not None:
        text = _typed("answer: ")
        return (await delivery.answer(meant(asked.question, text), asked.of, by=who())).words if text else "left"
    text = _typed("dollars more: ")
    try:
        return (await delivery.add_budget(float(text), by=who())).words if text else "left for later"
    except ValueError:
        return f"{text!r} is no number of dollars"


def _typed(prompt: str) -> str:
    """A line of the person; empty where they think better of it."""
    try:
        with person_at_work(interrupts=True):
            return input(prompt).strip()
    except (EOFError, KeyboardInterrupt):
        return ""


def _open(row: Row) -> str:
    """Open it on the page, where that runs."""
    from perdure.adapters.system.home import Home
    from perdure.local.page import page_address

    address = page_address(Home.find())
    if not address:
        return "no page runs: perdure page, or perdure up"
    webbrowser.open(address)
    return f"opened; there: /{'backlogs' if row.kind == 'backlog' else 'deliveries'}/{quote(row.id, safe='')}"
