"""Input made long on purpose is read without coverage, which would multiply what it costs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def untraced() -> Iterator[None]:
    """What this thread does meanwhile is not measured; as a decorator: what a test does."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
