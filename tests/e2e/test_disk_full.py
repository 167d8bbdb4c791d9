"""A full disk stops a delivery where it is: nothing is paid for, nothing is lost, and it goes on by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.disks import small_disk
from tests.engine import BUILT, BUILT_CALLS, HAPPY, Engine, check_shipped, finished, make_target, until

SLOW = HAPPY.replace("sleep 0.5", "touch started && sleep 3 && rm started")


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Path]:
    """What is known about workspaces (journals, replies, indexes) lies on a disk of its own."""
    with small_disk(tmp_path / "home" / "workspaces") as place:
        yield place


def _fill(disk: Path) -> Path:
    """Take what is free, to the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass
    space = os.statvfs(disk)
    assert space.f_bavail * space.f_frsize < 65536
    return filler


@pytest.mark.timeout(120)
async def test_a_full_disk_is_waited_for_without_paying_and_named(workspaces: Path, tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports, measured=True) as engine:
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        filler = _fill(workspaces)
        calls = engine.model_calls()

        async def named() -> bool:
            pending = (await submitted.delivery.describe()).pending
            return any("no room" in activity.failure for activity in pending)

        await until(named)
        assert engine.model_calls() == calls
        filler.unlink()
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert engine.model_calls() == BUILT_CALLS
        assert result.receipt.replies_cut == 0
