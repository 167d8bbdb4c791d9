"""Tasks that run in the background of a worker, for as long as it works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_in_background(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutines as tasks while the block runs, then cancel and await them.

    Raises the first error of a coroutine that was not a cancellation, once the block has ended; the other coroutines go
    on until then.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for error in results:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            raise error
