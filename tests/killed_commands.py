"""Killing commands of a sandbox of this process from outside, as a person or a kernel without memory does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import psutil

from tests.processes import children_of
from tests.waiting import until


def first_process(process: psutil.Process) -> psutil.Process | None:
    """The first process of the sandbox that a process is in, that of its pid namespace."""
    inside = [each for each in process.parents() if each.name() == "bwrap"]
    return inside[0] if len(inside) > 1 else None


def shell(process: psutil.Process) -> psutil.Process | None:
    """What the sandbox's first process waits for."""
    first = first_process(process)
    return next((each for each in process.parents() if first is not None and each.ppid() == first.pid), None)


@asynccontextmanager
async def killed_once(
    sleep: Sequence[str], pick: Callable[[psutil.Process], psutil.Process | None]
) -> AsyncIterator[None]:
    """While the block runs, a sandbox in which a process with this command line sleeps is hit once: what is picked."""

    def kill() -> bool:
        for process in children_of(os.getpid()):
            with suppress(psutil.Error):
                if process.cmdline() == [*sleep] and (target := pick(process)) is not None:
                    target.kill()
                    return True
        return False

    killing = asyncio.create_task(until(kill, every=0.05))
    try:
        yield
        assert killing.done(), "nothing was killed"
    finally:
        killing.cancel()
        await asyncio.gather(killing, return_exceptions=True)
