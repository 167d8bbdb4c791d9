"""What a delivery may use when nobody says otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Defaults:
    """What a delivery may use when nobody says otherwise."""

    test_fixes: int = 4  # a fifth attempt was not seen to succeed where four failed (reference: seeds, system A)
    review_fixes: int = 3  # a reviewer that still finds blockers after three rounds needs a person
    turns_per_step: int = 60  # three times what a well-sized task needs; ends runaway loops
    time: str = "2h"  # wall time of a whole delivery
    budget_usd: float = 5.00  # several times a typical delivery; a surprise stays small
    host_budget_usd: float = 100.0  # the most one request may ask for on a host nobody configured
    host_time: str = "24h"  # likewise for time
    max_tokens: int = 16_000  # of one reply; a longer edit is better done in two
    environment_gb: float = 10.0  # what setups made and keep for the next one: some thirty environments of a usual size
    slots: int = 32  # activities at once on one host: turns mostly wait for the model


DEFAULTS = Defaults()
