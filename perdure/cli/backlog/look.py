"""The commands that show a backlog: `status`, `graph`, `report`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.backlog.ids import BacklogId, run_with_backlog
from perdure.cli.ids import LAST, Json
from perdure.cli.look.report import target_of, write_page
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput

if TYPE_CHECKING:
    from perdure.client import Backlog


def status(
    id: BacklogId = LAST,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it ends.")] = False,
    json: Json = False,
) -> None:
    """First what waits for you, with the command that decides it; then every item by its state."""
    from perdure.cli.backlog.text import status_lines
    from perdure.cli.backlog.watch import follow_backlog, leave_backlog, read_pending_decisions

    screen, backlog_ids = Screen(json=json), list[str]()

    async def work(backlog: Backlog) -> int:
        backlog_ids.append(backlog.id)
        if watch:
            return await follow_backlog(backlog, screen)
        progress = await backlog.progress()
        if json:
            screen.print_json(progress.model_dump_json(indent=2))
        else:
            screen.print_lines(status_lines(progress, await read_pending_decisions(backlog, progress)))
        return 0

    try:
        raise typer.Exit(run_with_backlog(screen, id, work))
    except KeyboardInterrupt:
        if not (watch and backlog_ids):
            raise
        raise leave_backlog(screen, backlog_ids[0]) from None


def graph(
    id: BacklogId = LAST,
    format: Annotated[
        str, typer.Option("--format", metavar="text|mermaid|svg", help="To read, for Markdown, or as a picture.")
    ] = "text",
    json: Json = False,
) -> None:
    """Draw which item depends on which, with states, and the longest chain marked."""
    from perdure.cli.backlog.drawing import FORMATS, draw_graph
    from perdure.cli.request.validation import suggest_name

    if format not in FORMATS:
        fix = suggest_name("--format", format, list(FORMATS))
        raise BadInput(f"there is no format {format[:60]!r}", where="--format", fix=fix)
    screen = Screen(json=json)
    progress = run_with_backlog(screen, id, lambda backlog: backlog.progress())
    drawing = draw_graph(progress, format)
    if json:
        screen.print_json({"backlog_id": progress.backlog_id, "format": format, "graph": drawing})
    elif format == "text":
        screen.print_lines(drawing.rstrip("\n").split("\n"))
    else:
        print(drawing.rstrip("\n"))


def report(
    id: BacklogId = LAST,
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Write one self-contained page; - is standard output.")
    ] = "",
    json: Json = False,
) -> None:
    """One page: every item with what came of it, the graph, and the night's receipt, counted from history and git."""
    from perdure.cli.backlog.report import backlog_report_lines, gather_backlog_report, render_backlog_page

    if html == "-" and json:
        raise BadInput("--html - and --json both want standard output", fix="name a file for the page")
    target = target_of(html)
    screen = Screen(json=json or html == "-")
    gathered = run_with_backlog(screen, id, gather_backlog_report)
    if target is not None:
        write_page(target, render_backlog_page(gathered).encode())
    elif html:
        sys.stdout.buffer.write(render_backlog_page(gathered).encode())
        sys.stdout.flush()
    if json:
        screen.print_json(gathered.as_data())
    elif not html:
        screen.print_lines(backlog_report_lines(gathered))
    elif target is not None:
        screen.print_line(f"✓ {target}")
