"""No more setups and test commands at once than the host has room for."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.sandbox.base import HostSlots, MachineShare
from perdure.adapters.system.files import try_lock
from perdure.models.config.host import CommandLimits
from tests.waiting import patient

GB = 1024**3


@pytest.mark.timeout(30)
async def test_two_workers_of_a_home_share_its_places(tmp_path: Path) -> None:
    rooms = HostSlots(tmp_path, 2), HostSlots(tmp_path, 2)
    now, most, told = 0, 0, list[str]()

    async def work(number: int) -> None:
        nonlocal now, most
        async with rooms[number % 2].acquire_slot(told.append):
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.02)
            now -= 1

    await asyncio.gather(*(work(number) for number in range(9)))
    assert most == 2
    assert set(told) == {"waiting for one of 2 places: other deliveries' tests or setups run"}


async def test_who_waits_and_is_cancelled_takes_no_place_with_it(tmp_path: Path) -> None:
    room, told = HostSlots(tmp_path, 1), asyncio.Event()
    held = try_lock(tmp_path / "0")
    assert held is not None

    async def wait() -> None:
        async with room.acquire_slot(lambda _: told.set()):
            pass

    waiting = asyncio.create_task(wait())
    await told.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(waiting, patient(5))
    os.close(held)
    async with asyncio.timeout(patient(5)), room.acquire_slot(lambda _: None):
        pass


async def test_a_place_of_a_worker_that_was_killed_is_free(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from perdure.adapters.system.files import try_lock\n"
    code += "assert try_lock(Path(sys.argv[1]) / '0'); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert try_lock(tmp_path / "0") is None
        other.send_signal(signal.SIGKILL)
    async with asyncio.timeout(patient(5)), HostSlots(tmp_path, 1).acquire_slot(lambda _: None):
        pass


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({}, None),
        ({"a/b/cpu.max": "150000 100000", "a/memory.max": str(3 * GB)}, MachineShare(1.5, 3 * GB)),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "50000 100000", "a/b/memory.max": "max"}, MachineShare(0.5, 0)),
        ({"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, None),
        (
            {
                "cpu/a/b/cpu.cfs_quota_us": "20000",
                "cpu/a/b/cpu.cfs_period_us": "100000",
                "memory/a/b/memory.limit_in_bytes": str(GB),
            },
            MachineShare(0.2, GB),
        ),
    ],
)
def test_control_groups_say_how_much_of_the_machine_is_ours(
    tmp_path: Path, files: dict[str, str], size: MachineShare | None
) -> None:
    (tmp_path / "process").mkdir()
    (tmp_path / "process" / "cgroup").write_text("4:memory:/a/b\n1:cpu:/a/b\n0::/a/b\n")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    whole, seen = MachineShare.measure(), MachineShare.measure(tmp_path / "process", tmp_path / "groups")
    wanted = size or whole
    assert seen == MachineShare(
        min(wanted.processors, whole.processors), min(wanted.memory or whole.memory, whole.memory)
    )


def test_places_are_two_a_processor_and_one_for_two_gigabytes_unless_the_owner_says_otherwise(tmp_path: Path) -> None:
    assert MachineShare(8, 64 * GB).slot_count() == 16
    assert MachineShare(8, 5 * GB).slot_count() == 2
    assert MachineShare(0.2, GB).slot_count() == 1
    assert HostSlots.from_limits(tmp_path, CommandLimits(at_once=7)).count == 7
    assert HostSlots.from_limits(tmp_path, CommandLimits()).count == MachineShare.measure().slot_count()
