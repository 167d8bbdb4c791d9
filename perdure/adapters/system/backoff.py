"""Pauses before something is tried again: they double, and are spread, so that not everybody comes back at once."""

from __future__ import annotations

import random
from datetime import timedelta


def doubled_pause(failures: int, first: timedelta, longest: timedelta) -> timedelta:
    """Return the pause after so many failures, at least 1: `first` after one, doubled by each further one, `longest` at
    most."""
    return min(longest, first * (1 << min(failures - 1, 20)))


def spread_pause(pause: timedelta, share: float) -> timedelta:
    """Return the pause with up to `share` of it added at random: never before it, and not at the same moment."""
    factor: float = random.uniform(1, 1 + share)  # noqa: S311  # no secret
    return pause * factor
