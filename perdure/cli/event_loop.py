"""The event loop of a command, and how Ctrl-C ends what runs in it. Used by every command that waits for Temporal, a
process or a person."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import startup

if TYPE_CHECKING:
    pass


T = TypeVar("T")

LOADED_AFTER_S = 5.0
"""Seconds after which a command has loaded all it needs; one that ends sooner leaves no garbage worth collecting."""


def run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own, wait for it and return its result, or raise its error.

    asyncio is imported only here: help and mistakes do not need it. After LOADED_AFTER_S seconds garbage collection
    begins, without what is loaded by then.
    """

    async def run_after_start() -> T:
        asyncio.get_running_loop().call_later(LOADED_AFTER_S, startup.resume_garbage_collection)
        return await work

    return asyncio.run(run_after_start())


@contextmanager
def handle_interrupts(*, interrupts: bool) -> Iterator[None]:
    """Handle Ctrl-C directly while the context is open, for a person who types inside a coroutine.

    asyncio would only note the first Ctrl-C and drop what follows.

    interrupts  True: Ctrl-C raises KeyboardInterrupt at once; False: it is ignored, since it belongs to an editor that
    runs
    """

    def on_interrupt(number: int, frame: object) -> None:
        if interrupts:
            raise KeyboardInterrupt

    previous_handler = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
