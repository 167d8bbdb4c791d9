"""Text of models, tests and strangers as a page may show it: nothing hidden, nothing reordered, nothing without end."""

from __future__ import annotations

from perdure.text import one_line, visible

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
