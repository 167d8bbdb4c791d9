"""Text of models, tests and strangers as a page may show it: nothing hidden, nothing reordered, nothing without end."""

from __future__ import annotations

import re

from perdure.cli.words import clean

REPORT_TEXT_CHARS = 20_000
"""Of any one text on a report's page: a command's last lines have some 8,000."""


_UNSEEN = re.compile(
    "[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0000-\U000e0fff]"
)
"""Printable to Unicode, invisible to people: fillers and variation selectors."""

_SLACK = 4
"""Times the limit: how much of a text is looked at, for colours and the like are not counted in what is shown."""


def shown(text: str, limit: int = REPORT_TEXT_CHARS) -> str:
    """The visible part of it, at most `limit` characters; tabs and ends of lines stay. What is cut says so."""
    kept = _visible(text[: _SLACK * limit])
    if len(kept) <= limit and len(text) <= _SLACK * limit:
        return kept
    return f"{kept[:limit]}\n… cut here: {len(text):,} characters in all"


def shown_line(text: str, limit: int = 300) -> str:
    """The same in one line."""
    flat = " ".join(_visible(text[: _SLACK * limit]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _visible(text: str) -> str:
    whole = _UNSEEN.sub("", clean(text.replace("\r\n", "\n")))
    return "".join(c if c in "\n\t" or c.isprintable() else " " if c.isspace() else "" for c in whole)
