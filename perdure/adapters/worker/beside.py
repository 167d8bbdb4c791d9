"""The tasks of a worker beside its work, for as long as it works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(*doing: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Carry these out until the block ends, and wait for their end. Raises what one of them failed with, the others
    having gone on: nobody would hear of it."""
    tasks = [asyncio.create_task(one) for one in doing]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for error in ended:
        if error is not None and not isinstance(error, asyncio.CancelledError):
            raise error
