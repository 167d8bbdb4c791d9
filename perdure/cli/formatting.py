"""Amounts as a person reads them, and other people's texts, bounded and with nothing invisible in them; pure
functions."""

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
    """Return dollars as `$0.43`; None is `cost unknown`, never zero."""
    if usd is None:
        return "cost unknown"
    return "<$0.01" if 0 < usd < 0.005 else f"${usd:,.2f}"


def format_tokens(count: int) -> str:
    """Return a number of tokens as `950`, `118k`, `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def pluralise(number: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: `1 turn`, `3 turns`. `plural` empty: the singular and an s."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def short_sha(sha: str) -> str:
    """Return a commit's first seven digits."""
    return sha[:7]


def with_tilde(path: Path) -> str:
    """Return a path as text, with `~` for the home directory."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path != home and path.is_relative_to(home) else str(path)


def own_command() -> str:
    """Return how to type this very program: `perdure`, its path where PATH does not lead to it, or Python with `-m
    perdure.cli`."""
    own_script = Path(sys.executable).parent / "perdure"
    on_path = shutil.which("perdure")
    if on_path is not None and (not own_script.exists() or Path(on_path).resolve() == own_script.resolve()):
        return "perdure"
    if not own_script.exists():
        return f"{shlex.quote(sys.executable)} -m perdure.cli"
    relative = os.path.relpath(own_script)
    return shlex.quote(relative if not relative.startswith("..") else str(own_script))


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
