"""Reads durations."""

import re
from datetime import timedelta

from durations.units import UNITS

_DURATION = re.compile(r"(?P<sign>[+-]?)(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[a-z]*)")


class DurationError(ValueError):
    """The text is not a duration."""


def parse_duration(text):
    """Read a number with its unit, such as "90s", "1.5h" or "-5 min".

    Zero needs no unit; anything else without one is refused, because 90 could be seconds or minutes.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise DurationError(f"not a duration: {text!r}")
    number, unit = float(found["number"]), found["unit"]
    if not unit and number:
        raise DurationError(f"a unit is missing: {text!r}")
    if unit and unit not in UNITS:
        raise DurationError(f"unknown unit {unit!r}: {text!r}")
    seconds = number * UNITS.get(unit, 1)
    return _delta(-seconds if found["sign"] == "-" else seconds, text)


def _delta(seconds, text):
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise DurationError(f"too long: {text!r}") from None
