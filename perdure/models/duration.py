"""A duration as people write it: `90s`, `10m`, `1h30m`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

DURATION_CHARS = 32
DURATION_MOST_S = 10 * 366 * 24 * 3600.0
"""Bounds of a duration: characters as written, and seconds: ten years, which the server's timers can still hold."""


_UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as `"90s"`, `"10m"` or `"1h30m"`.

    Raises ValueError, with a message that says what was expected, for anything else, for zero and for more than ten
    years.
    """
    if len(text) > DURATION_CHARS:  # Checked first: the expression starts again at every digit.
        raise ValueError("this is no duration: write for example 90s, 10m or 1h30m")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
    if not parts or "".join(n + u for n, u in parts) != text.replace(" ", ""):
        raise ValueError(f"{text!r} is not a duration: write for example 90s, 10m or 1h30m")
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total <= 0:
        raise ValueError("a duration must be longer than zero")
    if total > DURATION_MOST_S:
        raise ValueError("a duration is at most ten years")
    return total


def _check_duration(text: str) -> str:
    """Return the text itself. Raises ValueError where it is no duration."""
    parse_duration(text)
    return text


Duration = Annotated[str, AfterValidator(_check_duration)]
