"""Input made long on purpose is read without coverage, which would multiply what it costs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
