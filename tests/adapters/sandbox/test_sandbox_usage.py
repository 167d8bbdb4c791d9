"""A command that takes too much of the host is ended, with all its processes, and the result says of what it was."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from perdure.adapters.sandbox import usage
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.environment import UNPACKED
from perdure.adapters.sandbox.grades import LandlockSandbox, OffSandbox
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.models.config.host import CommandLimits, HostConfig
from perdure.models.config.repository import parse_size
from tests.waiting import patient

MB = 1024**2
ROOMY = {"memory": 200 * MB, "processes": 80, "disk": 1000 * MB}
HOLD = "x = bytearray({mb} << 20)\nimport time; time.sleep({s})"


@pytest.fixture(params=["full", "reduced", "off"])
def capped(request, home, binds):
    """A sandbox of each grade with small limits."""
    request.getfixturevalue(request.param)
    kind = {"full": BubblewrapSandbox, "reduced": LandlockSandbox, "off": OffSandbox}[request.param]

    def make(**caps: float) -> Sandbox:
        return kind(home, binds, caps=ResourceCaps(**{**ROOMY, **caps}))  # type: ignore[arg-type]

    return make


async def test_memory_of_many_processes_together_is_limited_and_the_peak_is_told(capped, run, left, sleeper):
    one = HOLD.format(mb=50, s=60)
    script = f"({sleeper} &) ; for n in 1 2 3 4 5 6; do python3 -c '{one}' & done; wait"
    finished, _ = await run(capped(), script)
    assert finished.over.startswith("over its memory limit of 0.2 GB, peak 0.")
    assert (finished.exit_code, finished.failure, finished.timed_out) == (137, "", False)
    assert 200 * MB <= finished.peak < 400 * MB
    assert left(sleeper) == 0
    finished, said = await run(capped(), f"python3 -c '{HOLD.format(mb=50, s=0.5)}'; echo fine")
    assert (finished.exit_code, finished.over, said) == (0, "", "fine\n")
    assert 50 * MB < finished.peak < 200 * MB


async def test_a_worktree_that_takes_long_to_measure_does_not_hold_up_the_look_at_memory(
    capped, run, worktree, monkeypatch
):
    scandir, go_on = os.scandir, threading.Event()

    def slow(path):
        if str(path).startswith(str(worktree)) and threading.current_thread() is not threading.main_thread():
            go_on.wait(patient(120))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slow)
    try:
        finished, _ = await run(capped(), f"python3 -c '{HOLD.format(mb=250, s=60)}'")
    finally:
        go_on.set()
    assert finished.over.startswith("over its memory limit of 0.2 GB")


async def test_pages_that_children_share_with_their_parent_count_once(capped, run):
    script = "x = bytearray(75 << 20)\nimport os, time\nfor n in range(5): os.fork() or (time.sleep(0.6), os._exit(0))"
    finished, _ = await run(capped(), f"python3 -c '{script}; time.sleep(0.6)'")
    assert (finished.exit_code, finished.over) == (0, "")


@pytest.mark.parametrize("place", ["/tmp", f"{UNPACKED}/archive"])
async def test_files_in_private_memory_count_as_memory(full, home, binds, run, tmp_path, place):
    caps = ResourceCaps(**ROOMY)
    (tmp_path / "archive").touch()
    script = f"head -c 250M /dev/zero > {place}/big; sleep 60"
    shown = {"visible_paths": (tmp_path / "archive",), "unpacked": {"archive": tmp_path / "archive"}}
    finished, _ = await run(BubblewrapSandbox(home, binds, caps=caps), script, **shown)
    assert finished.over.startswith("over its memory limit of 0.2 GB")


async def test_a_fork_bomb_ends_for_root_as_well(capped, run, left, sleeper):
    bomb = f"bomb() {{ {sleeper} & bomb; }}; bomb"
    finished, _ = await run(capped(), bomb)
    assert finished.over == "over its limit of 80 processes and threads"
    assert left(sleeper) == 0


async def test_threads_count_as_processes_do(capped, run):
    script = "import threading, time\nfor n in range(120): threading.Thread(target=time.sleep, args=(60,)).start()"
    finished, _ = await run(capped(), f"python3 -c '{script}'")
    assert finished.over == "over its limit of 80 processes and threads"


async def test_processor_time_of_ended_children_counts_too(capped, run):
    burn = "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'"
    finished, _ = await run(capped(cpu_s=1.0), f"while true; do {burn}; done")
    assert finished.over == "over its limit of 1 s of processor time"


async def test_a_worktree_has_a_quota_and_can_be_cleaned_up_when_it_is_full(capped, run, worktree):
    usage._usages.clear()
    fill = "for n in $(seq 1 20); do head -c 4M /dev/zero > big$n; done; sleep 600"
    finished, _ = await run(capped(disk=60 * MB), fill)
    assert finished.over.startswith("over the worktree's limit of 0.1 GB on disk: 0.")
    assert usage.measure_worktree(worktree)[0] < 1000 * MB
    finished, said = await run(capped(disk=60 * MB), "sleep 0.4; rm big*; sleep 0.4; echo cleaned")
    assert (finished.exit_code, said) == (0, "cleaned\n")
    assert usage.measure_worktree(worktree) == (0, True)


@pytest.mark.parametrize(
    "where", ["exec 3> f; rm f; to() { cat >&3; }", "mkdir -m 300 d; cd d; to() { cat > $RANDOM; }"]
)
async def test_what_has_no_name_or_lies_where_nobody_can_look_counts_too(capped, run, where):
    finished, _ = await run(capped(disk=60 * MB), f"{where}; for n in $(seq 500); do head -c 4M /dev/zero | to; done")
    assert finished.over.startswith("over the worktree's limit of 0.1 GB on disk: 0.")


def test_what_commands_cannot_write_is_not_counted_and_links_are_not_followed(tmp_path: Path):
    for name in (".venv", "src/node_modules"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "data").write_bytes(b"x" * MB)
    (tmp_path / "link").symlink_to("/usr")
    assert MB <= usage.measure_worktree(tmp_path)[0] < MB + 10 * usage.LEAST_FILE_BYTES


def test_empty_files_cost_their_place_in_the_disks_table(tmp_path: Path):
    for number in range(100):
        (tmp_path / str(number)).touch()
    assert usage.measure_worktree(tmp_path) == (100 * usage.LEAST_FILE_BYTES, True)


async def test_the_kernel_would_end_a_command_before_the_worker(any_grade, run):
    _, said = await run(any_grade, "cat /proc/self/oom_score_adj; sh -c 'cat /proc/self/oom_score_adj'")
    assert said.split() == ["800", "800"]


def test_limits_are_the_hosts_owners_to_set_and_smaller_hosts_have_smaller_ones():
    given = HostConfig.model_validate({"commands": {"memory": "500m", "disk": "2.5GB", "processes": 100, "cpu": "10m"}})
    assert ResourceCaps.from_limits(given.commands) == ResourceCaps(500 * MB, 100, 2560 * MB, 600.0)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert ResourceCaps.from_limits(CommandLimits()).memory == min(8 * 1024 * MB, int(physical * 0.75))
    for wrong in ("4", "g", "-1g", "4t", "0g", "1" * 100 + "g", "٤g"):
        with pytest.raises(ValueError, match="no size"):
            parse_size(wrong)
