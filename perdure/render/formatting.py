"""Texts for people to read: other people's, bounded and with nothing invisible in them; tables; paths; how long ago
something was. Used by the command line and the other modules of `perdure.render`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from perdure.text import one_line, shorten, visible


def with_tilde(path: Path) -> str:
    """Return a path as text, with `~` for the home directory when it lies below that, else as it is."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


_JSON_FRAGMENT = re.compile(r'^\s*[{\[]\s*["{\[]|"\s*:\s*["{\[\d]|"\s*[\]}]\s*[,\]}]?\s*$|[}\]]\s*,\s*[{"]')


def action_text(doing: object) -> str:
    """Return what an agent does at the moment, as its heartbeat says; a piece of a JSON answer that streams in is
    named, not shown."""
    text = str(doing or "")
    return "writing its answer" if _JSON_FRAGMENT.search(text) else text


def repository_label(repository: str) -> str:
    """Return a repository as people call it: a path as its folder's name, an address without scheme, user and `.git`,
    GitHub's as `owner/name`."""
    path = repository.rstrip("/\\").removesuffix(".git")
    scheme, separator, rest = path.partition("://")
    if separator and scheme != "file":
        address = rest.rpartition("@")[2]
    elif not separator and (match := _SCP.match(path)) is not None:
        address = f"{match[1]}/{path[match.end() :]}"
    else:
        return path.replace("\\", "/").rpartition("/")[2] or repository
    return address.removeprefix("github.com/")


_SCP = re.compile(r"(?:[^/@]+@)?([^/:@]{2,}):")
"""The host of git's short form `git@github.com:owner/name`."""


REPORT_TEXT_CHARS = 20_000
"""Characters of any one text on a report's page: a command's last lines have some 8,000."""


_SLACK = 4
"""Multiple of the limit up to which a text is looked at: colour codes and the like do not count in what is shown."""


def visible_text(text: str, limit: int = REPORT_TEXT_CHARS) -> str:
    """Return the visible part of a text, cut at `limit` characters with a note that it was cut; tabs and line ends
    stay."""
    visible_part = visible(text[: _SLACK * limit])
    if len(visible_part) <= limit and len(text) <= _SLACK * limit:
        return visible_part
    return f"{visible_part[:limit]}\n… cut here: {len(text):,} characters in all"


def visible_line(text: str, limit: int = 300) -> str:
    """Return the visible part of a text in one line of at most `limit` characters."""
    return one_line(text[: _SLACK * limit], limit)


def wrap_visible(text: str, width: int = 86) -> Iterator[str]:
    """Yield the visible part of a text, at most 8,000 characters, wrapped into lines; its own line ends stay."""
    for line in visible_text(text, 8000).strip().splitlines():
        yield from textwrap.wrap(line, width, break_on_hyphens=False) or [""]


def align_columns(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return rows, at least one, as lines of left-aligned columns, two spaces apart.

    Each cell is one line of at most 80 characters, the last of 400. Lines longer than `width` are cut, which shortens
    the last column; at least 12 characters of it stay. `width` None: no line is cut.
    """
    cells = [[one_line(cell, 400 if n == len(row) - 1 else 80) for n, cell in enumerate(row)] for row in rows]
    widths = [max(len(row[n]) for row in cells) for n in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in cells]
    other_width = sum(widths[:-1]) + 2 * (len(widths) - 1)
    limit = max(width, other_width + 12) if width is not None else max(map(len, lines))
    return [shorten(line, limit) for line in lines]


def time_ago(seconds: float) -> str:
    """Return how long ago something was: `just now`, `5 min ago`, `3 h ago`, `12 d ago`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"
