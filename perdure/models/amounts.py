"""Durations and sizes as people write them in settings."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

DURATION_CHARS = 32
DURATION_MOST_S = 10 * 366 * 24 * 3600.0
"""Of a duration as it is written, and how long one may be: ten years, which the server's timers can still hold."""


_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """`"90s"`, `"10m"`, `"1h30m"` → seconds. ValueError says what was expected."""
    if len(text) > DURATION_CHARS:  # before the expression, which looks again from every digit
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


def _duration(text: str) -> str:
    seconds(text)
    return text


Duration = Annotated[str, AfterValidator(_duration)]


def size(text: str) -> int:
    """`"500m"`, `"4g"` → bytes. ValueError says what was expected."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?([mg])b?", text.lower()) if len(text) < 16 else None
    if found is None or not float(found[1]):
        raise ValueError("this is no size: write for example 500m or 4g")
    return int(float(found[1]) * 1024 ** (2 if found[2] == "m" else 3))


def _size(text: str) -> str:
    size(text)
    return text


Size = Annotated[str, AfterValidator(_size)]
