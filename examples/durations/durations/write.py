"""Writes durations."""

from durations.units import DAY, HOUR, MINUTE, SECOND

_LETTERS = (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", SECOND))


def format_duration(value):
    """Write a timedelta in whole seconds, large units first: "1h30m", "-2d6h", "0s"."""
    seconds = round(value.total_seconds())
    rest, parts = abs(seconds), []
    for letter, size in _LETTERS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{letter}")
    return ("-" if seconds < 0 else "") + ("".join(parts) or "0s")
