"""Amounts as a person reads them, and texts of others, bounded and with nothing hidden; pure functions."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from perdure.text import one_line, visible
from perdure.text import span as span


def money(usd: float | None) -> str:
    """`$0.43`; an unknown cost is unknown, never zero."""
    if usd is None:
        return "cost unknown"
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def tokens(count: int) -> str:
    """`950`, `118k`, `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def count(number: int, one: str, many: str = "") -> str:
    """`1 turn`, `3 turns`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def short(sha: str) -> str:
    """A commit as people write it."""
    return sha[:7]


def tilde(path: Path) -> str:
    """A path with `~` for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


def typed_here() -> str:
    """This very program as it is typed here: by its name, by its path where no directory of PATH has it, by Python."""
    beside = Path(sys.executable).parent / "perdure"
    found = shutil.which("perdure")
    if found is not None and (not beside.exists() or Path(found).resolve() == beside.resolve()):
        return "perdure"
    if not beside.exists():
        return f"{shlex.quote(sys.executable)} -m perdure.cli"
    near = os.path.relpath(beside)
    return shlex.quote(near if not near.startswith("..") else str(beside))


REPORT_TEXT_CHARS = 20_000
"""Of any one text on a report's page: a command's last lines have some 8,000."""


_SLACK = 4
"""Times the limit: how much of a text is looked at, for colours and the like are not counted in what is shown."""


def shown(text: str, limit: int = REPORT_TEXT_CHARS) -> str:
    """The visible part of it, at most `limit` characters; tabs and ends of lines stay. What is cut says so."""
    kept = visible(text[: _SLACK * limit])
    if len(kept) <= limit and len(text) <= _SLACK * limit:
        return kept
    return f"{kept[:limit]}\n… cut here: {len(text):,} characters in all"


def shown_line(text: str, limit: int = 300) -> str:
    """The same in one line."""
    return one_line(text[: _SLACK * limit], limit)


def paragraphs(text: str, width: int = 86) -> Iterator[str]:
    """Its visible part, broken into lines; its own ends of lines stay."""
    for line in shown(text, 8000).strip().splitlines():
        yield from textwrap.wrap(line, width, break_on_hyphens=False) or [""]
