"""The run of one command."""

from __future__ import annotations

import asyncio
import gc

import pytest

from perdure.cli import event_loop


@pytest.mark.parametrize(("after", "collects"), [(0.0, True), (60.0, False)])
def test_a_command_that_stays_collects_its_garbage_and_one_that_only_loads_does_not(
    after: float, collects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "LOADED_AFTER_S", after)

    async def stays() -> bool:
        await asyncio.sleep(0.01)
        return gc.isenabled()

    before = gc.isenabled()
    gc.disable()
    try:
        assert event_loop.run_coroutine(stays()) is collects
    finally:
        (gc.enable if before else gc.disable)()
