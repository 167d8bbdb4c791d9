"""`perdure report`: everything about one delivery, for a person to read or to keep. `perdure backlog report` uses the
functions for the page's file, too; the report itself is made in `perdure.render.report`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from perdure.adapters.system.files import write_whole
from perdure.cli.screen import Screen
from perdure.cli.session import run_with_delivery
from perdure.models.errors import BadInput
from perdure.render.report.gather import gather_report
from perdure.render.report.page import page_of
from perdure.render.report.text import lines_of
from perdure.text import shell_word


def report(id: str, html: str, json: bool) -> None:
    """Print everything about a delivery, running or ended: as lines, with `html` as a page in a file, with `json` as
    JSON.

    `html` `-` is standard output. What could not be read is named, on standard error when it is not in the lines.
    Raises BadInput when both want standard output, the file cannot be written, or `id` names no single delivery.
    """
    if html == "-" and json:
        raise BadInput("--html - and --json both want standard output", fix="name a file for the page")
    target = target_of(html)
    screen = Screen(json=json or html == "-")
    loaded = run_with_delivery(screen, id, gather_report)
    if html:
        page = page_of(loaded).encode()
        if target is None:
            sys.stdout.buffer.write(page)
            sys.stdout.flush()
        else:
            write_page(target, page)
    if json:
        screen.print_json(loaded.model_dump_json(indent=2))
    elif not html:
        screen.print_lines(lines_of(loaded))
        return
    for reason in loaded.unread:
        print(f"! not read: {reason}", file=sys.stderr)
    if target is not None and not json:
        screen.print_line(f"✓ {target}")


def target_of(html: str) -> Path | None:
    """Return the path that `--html` names, checked before anything is read; None for standard output and for no page.

    Raises BadInput when no file can be written there.
    """
    if html in ("", "-"):
        return None
    target = Path(os.path.expanduser(html))
    if target.is_dir():
        raise BadInput(f"{html} is a directory", where="--html", fix=f"name a file: --html {target / 'report.html'}")
    if not target.parent.is_dir():
        raise BadInput(
            f"there is no directory {target.parent}", where="--html", fix=f"mkdir -p {shell_word(target.parent)}"
        )
    return target


def write_page(target: Path, page: bytes) -> None:
    """Write the page whole or not at all; others may read it as any new file. A symbolic link stays one.

    A device or a pipe is written to, not replaced. Raises BadInput when the page cannot be written.
    """
    umask = os.umask(0)
    os.umask(umask)
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(page)  # a device or a pipe is written to, never replaced
        else:
            write_whole(target.resolve(), page, mode=0o666 & ~umask)
    except OSError as error:
        raise BadInput(
            f"the page cannot be written: {error.strerror}", where=str(target), fix="name another file"
        ) from None
