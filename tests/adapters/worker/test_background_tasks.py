"""What goes on beside a worker's work ends with it, and a failure of it is told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from perdure.adapters.worker.host import run_in_background


async def test_what_goes_on_beside_the_work_has_ended_with_it_and_asyncio_has_nothing_to_complain_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = []

    async def for_ever(name: str) -> None:
        try:
            seen.append(f"{name} begins")
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            seen.append(f"{name} ends")

    with caplog.at_level(logging.ERROR, "asyncio"):
        async with run_in_background(for_ever("a"), for_ever("b")):
            await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "complained of when it is dropped"
    assert seen == ["a begins", "b begins", "a ends", "b ends"]
    assert caplog.text == ""


async def test_one_that_failed_is_told_at_the_end_and_has_not_stopped_the_others() -> None:
    looked = 0

    async def fails() -> None:
        raise ValueError("no descriptors")

    async def looks() -> None:
        nonlocal looked
        while True:
            looked += 1
            await asyncio.sleep(0)

    async def works() -> None:
        async with run_in_background(fails(), looks()):
            await asyncio.sleep(0)
            before = looked
            await asyncio.sleep(0.01)
            assert looked > before

    with pytest.raises(ValueError, match="no descriptors"):
        await works()
    before = looked
    await asyncio.sleep(0.01)
    assert looked == before, "it went on after the work"
