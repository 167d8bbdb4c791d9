"""Durations and sizes as people write them in settings."""

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

    Raises ValueError, which says what was expected, for anything else, for zero and for more than ten years.
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


def parse_size(text: str) -> int:
    """Return the bytes of a size such as `"500m"` or `"4g"`: mebibytes or gibibytes, with or without a `b` at the end.

    Raises ValueError, which says what was expected, for anything else and for zero.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([mg])b?", text.lower()) if len(text) < 16 else None
    if match is None or not float(match[1]):
        raise ValueError("this is no size: write for example 500m or 4g")
    return int(float(match[1]) * 1024 ** (2 if match[2] == "m" else 3))


def _check_size(text: str) -> str:
    """Return the text itself. Raises ValueError where it is no size."""
    parse_size(text)
    return text


Size = Annotated[str, AfterValidator(_check_size)]
