"""Time as people read it."""

from __future__ import annotations


def span(seconds: float) -> str:
    """`8.2 s`, `19 s`, `1m 12s`, `2h 05m`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
