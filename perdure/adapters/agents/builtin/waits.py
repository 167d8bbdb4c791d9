"""Conversations that wait for longer than the cache keeps what was sent: theirs is kept for an hour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.run import calls_of

CACHE_S = 300.0
"""The life of what was sent, after its last use, where nothing else is asked for."""

LONG_S = 240.0
"""A wait for tests that leaves a model less than a minute to write its reply before the cache is gone."""


def waits_long(transcript: Iterable[dict[str, Any]], tests_s: float = 0.0) -> bool:
    """True where a wait over CACHE_S is to be expected again: the tests take long, the conversation has run a command
    with so long a limit, or it has asked a person.

    tests_s  the time of all test commands on the base, in seconds
    """
    if tests_s >= LONG_S:
        return True
    return any(
        call["name"] == ASK.name or (call["name"] == BASH.name and _limit(call["input"]) > CACHE_S)
        for call in calls_of(transcript)
    )


def _limit(given: object) -> float:
    limit = given.get("timeout") if isinstance(given, dict) else None
    return float(limit) if isinstance(limit, int | float) else 0.0
