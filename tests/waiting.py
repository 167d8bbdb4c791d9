"""Waiting for what becomes true, as long as a busy machine may take."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from temporalio.service import RPCError, RPCStatusCode

LEAST_PATIENCE = 3.0
"""Times as long as on an idle machine like ours: another one was seen to take two and a half times as long."""


def patient(seconds: float) -> float:
    """Return the longest a test waits, in seconds, for what takes a fraction of that on an idle machine."""
    return seconds * max(LEAST_PATIENCE, _wanted_processors() / (os.cpu_count() or 1))


def _wanted_processors() -> float:
    """Return how many would be at work if there were enough of them: now, or over the last minute."""
    now = Path("/proc/loadavg")
    running = int(now.read_text().split()[3].partition("/")[0]) if now.exists() else 0
    return max(running, os.getloadavg()[0])


async def until(what: Callable[[], Any], timeout: float = 60, every: float = 0.0) -> Any:
    """Wait for something to become true; the last value is returned.

    A server that does not answer in time is asked again: the machine is busy, or a worker is just being started anew.
    `every`: seconds between two looks; by default fewer where a server has to be asked than where a file is looked at.
    """
    begin = time.monotonic()
    while True:
        found = what()
        if asked := asyncio.iscoroutine(found):
            found = await _answer(found)
        if found:
            return found
        waited = time.monotonic() - begin
        assert waited < patient(timeout), f"waited {waited:.0f} s for {getattr(what, '__name__', what)}"
        await asyncio.sleep(every or (0.25 if asked else 0.05))


async def _answer(asked: Awaitable[Any]) -> Any:
    try:
        return await asked
    except RPCError as error:
        if error.status not in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED):
            raise
        return None
