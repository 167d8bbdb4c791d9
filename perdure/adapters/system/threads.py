"""Blocking work in threads, for which a cancelled caller waits."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

tree_walk_lock = threading.Lock()
"""Held while a tree of files is walked through, so that one thread of the process does at a time.

Each look at a file gives the interpreter away: three walks of 30,000 files beside each other took three and a half
times the processor of one after the other, and twice the time.
"""


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread, and return its result or raise its error; when cancelled, wait until the thread has
    returned, drop its result or error, and only then raise the cancellation.

    `asyncio.to_thread` lets go of its thread at once: a superseded attempt's `git read-tree` went on inside its
    successor's worktree. Every blocking call has its own timeout, so this wait ends.
    """
    future, cancelled = await _run_to_end(functools.partial(work, *args, **kwargs))
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # Marks the exception as retrieved.
        raise cancelled  # The very same error: its message tells a takeover from Temporal's own cancellation.
    return future.result()


async def in_thread_to_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread as `in_thread` does, but return its result even where a cancellation came meanwhile, which
    is dropped.

    For effects on the outside world: a pull request that exists must not be reported as one that does not.
    """
    future, _ = await _run_to_end(functools.partial(work, *args, **kwargs))
    return future.result()


async def _run_to_end(work: Callable[[], T]) -> tuple[asyncio.Future[T], asyncio.CancelledError | None]:
    """Run `work` in a thread, and return its finished future and the first cancellation that came meanwhile, or
    None."""
    context = contextvars.copy_context()
    future = asyncio.get_running_loop().run_in_executor(None, context.run, work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    return future, cancelled
