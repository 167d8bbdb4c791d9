"""Waiting for what becomes true, as long as a busy machine may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any


async def until(what: Callable[[], Any], timeout: float = 60, every: float = 0.0) -> Any:
    """Wait for something to become true; the last value is returned.

    `every`: seconds between two looks; by default fewer where a server has to be asked than where a file is looked at.
    """
    end = time.monotonic() + timeout
    while True:
        found = what()
        if asked := asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"waited {timeout} s for {getattr(what, '__name__', what)}"
        await asyncio.sleep(every or (0.25 if asked else 0.05))
