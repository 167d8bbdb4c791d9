"""Watches and locks of setup end with whoever took them, however early that is cancelled."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import cast

import pytest

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.opened_files import watch_opened_files
from perdure.adapters.worker.lease import Lease
from perdure.adapters.worker.workspace_setup import _hold_setup_lock


class Unfenced:
    def check(self) -> None: ...


async def cut_short(block: AbstractAsyncContextManager[object]) -> None:
    async def enter() -> None:
        async with block:
            await asyncio.sleep(60)

    task = asyncio.create_task(enter())
    await asyncio.sleep(0)  # begun, and waiting for its first thread if it starts one
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_whoever_is_cancelled_while_it_takes_the_lock_of_a_setup_leaves_it_to_the_next(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "one"
    await cut_short(_hold_setup_lock(lock, cast("Lease", Unfenced())))
    descriptor = try_lock(lock)
    assert descriptor is not None, "nobody could set up the same files until the worker ends"
    os.close(descriptor)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="LINUX'S /proc TELLS WHAT IS OPEN")
async def test_whoever_is_cancelled_while_it_begins_to_watch_leaves_no_descriptor(tmp_path: Path) -> None:
    def watches() -> int:
        found = 0
        for number in os.listdir("/proc/self/fd"):
            try:
                found += "inotify" in os.readlink(f"/proc/self/fd/{number}")
            except FileNotFoundError:
                continue
        return found

    before = watches()
    await cut_short(watch_opened_files(tmp_path, [""]))
    assert watches() == before
