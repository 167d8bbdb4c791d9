"""The commands `perdure backlog status`, `graph` and `report`: they read a backlog and print it, changing nothing."""

from __future__ import annotations

import sys

import typer

from perdure.cli.backlog.receipt import gather_backlog_report
from perdure.cli.look.report import target_of, write_page
from perdure.cli.look.watch import follow_backlog, leave_backlog
from perdure.cli.request.validation import suggest_name
from perdure.cli.screen import Screen
from perdure.cli.session import run_with_backlog
from perdure.client import Backlog
from perdure.client.namespace import read_pending_decisions
from perdure.models.errors import BadInput
from perdure.render.backlog.drawing import FORMATS, draw_graph
from perdure.render.backlog.report import backlog_report_lines, render_backlog_page
from perdure.render.backlog.text import status_lines
from perdure.text import shorten


def status(id: str, watch: bool, json: bool) -> None:
    """Print a backlog's state as lines or JSON: what waits for a person, with the command that decides it, then every
    item. Always ends with typer.Exit: code 0, whatever the state.

    With `watch`, follow it until it ends, and exit with 0 when no item is left to land, 1 when one is, 5 when it was
    cancelled; after Ctrl-C say how to come back, and exit with 130. Raises BadInput when `id` names no single backlog;
    NoWorker, without `watch`, when no worker answers for a running one.
    """
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


def graph(id: str, format: str, json: bool) -> None:
    """Print which item of a backlog depends on which, in `format`: text, mermaid or svg; with `json` inside a JSON
    object.

    Needs a worker while the backlog runs. Raises BadInput when there is no such format or `id` names no single backlog,
    and NoWorker when no worker answers.
    """
    if format not in FORMATS:
        fix = suggest_name("--format", format, list(FORMATS))
        raise BadInput(f"there is no format {shorten(format, 60)!r}", where="--format", fix=fix)
    screen = Screen(json=json)
    progress = run_with_backlog(screen, id, lambda backlog: backlog.progress())
    drawing = draw_graph(progress, format)
    if json:
        screen.print_json({"backlog_id": progress.backlog_id, "format": format, "graph": drawing})
    elif format == "text":
        screen.print_lines(drawing.rstrip("\n").split("\n"))
    else:
        print(drawing.rstrip("\n"))


def report(id: str, html: str, json: bool) -> None:
    """Print the report of a backlog: every item with what came of it, the graph, and the receipt.

    `html`: write it as one page to this file, `-` for standard output; empty: print lines, or with `json` JSON. Raises
    BadInput when both want standard output, the file cannot be written, or `id` names no single backlog; NoWorker when
    no worker answers for a running one.
    """
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
