"""Cases of texts made to exhaust who reads them, by name."""

from __future__ import annotations

from collections.abc import Callable

from perdure.models.errors import PerdureError

CASES: dict[str, Callable[[], str]] = {}
"""Name → what reads it; returns what was seen, and anything but `refused: …` or `read` is a miss."""


def case(read: Callable[[], object]) -> Callable[[], object]:
    def seen() -> str:
        try:
            read()
        except (PerdureError, ValueError) as error:
            return f"refused: {' '.join(str(error).split())[:100]}"
        return "read"

    CASES[read.__name__.replace("_", " ")] = seen
    return read
