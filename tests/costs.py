"""Keep the suite cheap: fewer examples, long input without coverage, long tests shared out and begun first."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def examples(count: int) -> int:
    """`count` where CI is set, as hypothesis counts them."""
    return count if os.environ.get("CI") else max(10, count // 3)


@contextmanager
def untraced() -> Iterator[None]:
    """Leave out of coverage this thread and processes that are started meanwhile. As a decorator: all of a test."""
    tracer, told = sys.gettrace(), {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    for name in told:
        del os.environ[name]
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
        os.environ.update(told)


def shares(ranks: list[int], workers: int) -> list[int]:
    """The positions of `ranks` anew: cut into as many equal pieces as there are workers, each begins with the lowest.

    pytest-xdist's `worksteal` cuts the list so and gives the first piece to the first worker: with all long tests in
    front, one worker would run them one after another, and they would be left over for the end of the run. Neighbours
    stay beside each other: they share servers and fixtures.
    """
    *lower, rest = [[at for at, each in enumerate(ranks) if each == rank] for rank in sorted({*ranks, 0})]
    left, order = len(ranks), []
    for worker in range(workers):
        size = left // (workers - worker)
        left -= size
        own = [at for tier in lower for at in tier[worker * len(tier) // workers : (worker + 1) * len(tier) // workers]]
        room = max(0, size - len(own))
        order += own + rest[:room]
        rest = rest[room:]
    return order + rest
