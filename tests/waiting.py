"""Waiting for what becomes true, as long as a busy machine may take."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from temporalio.service import RPCError, RPCStatusCode

PATIENCE = 3.0 if os.environ.get("CI") else 1.0
"""Times as long as here, where nobody knows the machine: one was seen to take two and a half times as long."""


def patient(seconds: float) -> float:
    """Return the longest a test waits, in seconds, for what takes a fraction of that here."""
    return seconds * PATIENCE


async def until(what: Callable[[], Any], timeout: float = 60, every: float = 0.0) -> Any:
    """Wait for something to become true; the last value is returned.

    A server that does not answer in time is asked again: the machine is busy, or a worker is just being started anew.
    `every`: seconds between two looks; by default fewer where a server has to be asked than where a file is looked at.
    """
    timeout = patient(timeout)
    end = time.monotonic() + timeout
    while True:
        found = what()
        if asked := asyncio.iscoroutine(found):
            found = await _answer(found)
        if found:
            return found
        assert time.monotonic() < end, f"waited {timeout} s for {getattr(what, '__name__', what)}"
        await asyncio.sleep(every or (0.25 if asked else 0.05))


async def _answer(asked: Awaitable[Any]) -> Any:
    try:
        return await asked
    except RPCError as error:
        if error.status not in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED):
            raise
        return None
