"""Looking at a backlog: `status`, `graph`, `report`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.backlog.ids import BacklogId, with_backlog
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
    from perdure.cli.backlog.watch import asked_of, detached, follow

    screen, found = Screen(json=json), list[str]()

    async def work(backlog: Backlog) -> int:
        found.append(backlog.id)
        if watch:
            return await follow(backlog, screen)
        progress = await backlog.progress()
        if json:
            screen.data(progress.model_dump_json(indent=2))
        else:
            screen.lines(status_lines(progress, await asked_of(backlog, progress)))
        return 0

    try:
        raise typer.Exit(with_backlog(screen, id, work))
    except KeyboardInterrupt:
        if not (watch and found):
            raise
        raise detached(screen, found[0]) from None


def graph(
    id: BacklogId = LAST,
    format: Annotated[
        str, typer.Option("--format", metavar="text|mermaid|svg", help="To read, for Markdown, or as a picture.")
    ] = "text",
    json: Json = False,
) -> None:
    """Draw which item depends on which, with states, and the longest chain marked."""
    from perdure.cli.backlog.drawing import FORMATS, draw
    from perdure.cli.request.validation import nearest

    if format not in FORMATS:
        fix = nearest("--format", format, list(FORMATS))
        raise BadInput(f"there is no format {format[:60]!r}", where="--format", fix=fix)
    screen = Screen(json=json)
    progress = with_backlog(screen, id, lambda backlog: backlog.progress())
    drawn = draw(progress, format)
    if json:
        screen.data({"backlog_id": progress.backlog_id, "format": format, "graph": drawn})
    elif format == "text":
        screen.lines(drawn.rstrip("\n").split("\n"))
    else:
        print(drawn.rstrip("\n"))


def report(
    id: BacklogId = LAST,
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Write one self-contained page; - is standard output.")
    ] = "",
    json: Json = False,
) -> None:
    """One page: every item with what came of it, the graph, and the night's receipt, counted from history and git."""
    from perdure.cli.backlog.report import gather, page_of, report_lines

    if html == "-" and json:
        raise BadInput("--html - and --json both want standard output", fix="name a file for the page")
    target = target_of(html)
    screen = Screen(json=json or html == "-")
    found = with_backlog(screen, id, gather)
    if target is not None:
        write_page(target, page_of(found).encode())
    elif html:
        sys.stdout.buffer.write(page_of(found).encode())
        sys.stdout.flush()
    if json:
        screen.data(found.as_data())
    elif not html:
        screen.lines(report_lines(found))
    elif target is not None:
        screen.line(f"✓ {target}")
