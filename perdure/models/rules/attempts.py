"""The choice among several attempts at one plan, by verdict. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.models.attempts import Attempted


def best(attempts: Iterable[Attempted]) -> Attempted | None:
    """The one that ships: of those that may, the smallest change; of equal ones the cheapest, then the first begun.

    An unknown price is no cheap one. None: none of them may ship. The order in which they end decides nothing.
    """
    return min((one for one in attempts if one.sound), key=_order, default=None)


def _order(one: Attempted) -> tuple[int, bool, float, int]:
    return one.lines, one.cost_usd is None, one.cost_usd or 0.0, one.number
