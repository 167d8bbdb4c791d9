"""`perdure logs`: one step of it, and as it goes on."""

from __future__ import annotations

import asyncio

import pytest

from tests.cli.decision_fixtures import Desk, desk

__all__ = ["desk"]

PLAN = "── 2026-05-04 14:02:11 UTC  3f9c1d2a4b  plan  turn 1 · read calc.py\n  I shall look.\n"
BUILD = "── 2026-05-04 14:02:15 UTC  5aa90f3b11  implement 2  turn 1 · edit calc.py\n  ── plan  is what I said\n"


@pytest.mark.timeout(120)
async def test_logs_show_one_step_and_follow_until_the_delivery_ends(desk: Desk) -> None:
    async with desk.worker():
        await desk.submit("logged")
        await desk.asked("logged")
        desk.scene.log = PLAN + BUILD
        assert (await desk("logs", "logged")).out == PLAN + BUILD
        assert (await desk("logs", "logged", "--step", "plan")).out == PLAN
        assert (await desk("logs", "logged", "--step", "build")).out == BUILD
        assert "logged has taken no turn of review yet" in (await desk("logs", "logged", "--step", "review")).err
        told = await desk.refused("logs", "logged", "--step", "implemnt")
        assert "did you mean implement?" in told

        desk.scene.log, before = PLAN, desk.scene.logs_read
        following = asyncio.create_task(desk("logs", "logged", "--follow"))

        async def read() -> bool:
            return desk.scene.logs_read > before

        await desk.until(read)
        assert not following.done()
        desk.scene.log = PLAN + BUILD
        await desk("approve", "logged")
        assert (await following).out == PLAN + BUILD
        assert (await desk("logs", "logged", "-f")).out == PLAN + BUILD, "of one that has ended all of it, once"
