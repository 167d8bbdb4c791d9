"""Limits of a sandbox: held by the kernel where a control group was delegated, watched by the worker elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.adapters.sandbox import control_groups, usage
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.control_groups import GROUP_PREFIX, MARK, OWN_GROUP, ControlGroup, find_delegated_group
from perdure.adapters.sandbox.environment import UNPACKED
from perdure.adapters.sandbox.grades import LandlockSandbox, OffSandbox
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.cli.host.doctor import check_sandbox
from perdure.models.config.host import CommandLimits, HostConfig
from perdure.models.config.repository import parse_size
from tests import needs
from tests.waiting import patient

MB = 1024**2
CAPS = ResourceCaps(400 * MB, 200, 1000 * MB)
HIDDEN = "import os, time\nf = os.memfd_create(str())\nwhile True: os.write(f, bytes(1 << 20))"
"""Memory that no process maps: the watcher does not see it."""


@pytest.fixture
def root() -> Path:
    found = find_delegated_group()
    if found is None:
        pytest.skip(needs.NO_GROUP)
    return found


@pytest.fixture(params=["full", "reduced", "off"])
def held(request, home, binds, root):
    request.getfixturevalue(request.param)
    return {"full": BubblewrapSandbox, "reduced": LandlockSandbox, "off": OffSandbox}[request.param](
        home, binds, caps=CAPS
    )


def sandboxes(root: Path) -> list[str]:
    return [path.name for path in root.glob(f"{GROUP_PREFIX}*")]


async def test_memory_that_nobody_maps_is_limited_and_the_end_is_named_as_what_it_was(held, run, root, left, sleeper):
    finished, _ = await run(held, f"({sleeper} &); python3 -c '{HIDDEN}'", timeout_s=300.0)
    assert finished.over == "over its memory limit of 0.4 GB, peak 0.4 GB"
    assert (finished.exit_code, finished.failure, finished.timed_out) == (137, "", False)
    assert left(sleeper) == 0
    assert sandboxes(root) == []
    finished, said = await run(held, "env | grep -c PERDURE; echo fine")
    assert (finished.exit_code, finished.over, said) == (0, "", "0\nfine\n")


async def test_the_kernel_makes_no_more_processes_than_the_limit(held, run, root, left, sleeper):
    finished, _ = await run(held, f"bomb() {{ {sleeper} & bomb; }}; bomb", timeout_s=300.0)
    assert finished.over == "over its limit of 200 processes and threads"
    assert left(sleeper) == 0
    assert sandboxes(root) == []


async def test_processor_time_of_children_whom_nobody_waits_for_counts(home, binds, run, root):
    many = """import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        while time.process_time() < 0.3: pass
        os._exit(0)
    time.sleep(0.4)"""
    sandbox = OffSandbox(home, binds, caps=ResourceCaps(400 * MB, 200, 1000 * MB, cpu_s=2.0))
    finished, _ = await run(sandbox, f"python3 -c '{many}'", timeout_s=300.0)
    assert finished.over == "over its limit of 2 s of processor time"


def test_a_dead_workers_group_is_removed_by_the_next_and_a_living_ones_is_not(root, tmp_path):
    make = (
        "import sys; from pathlib import Path; from perdure.adapters.sandbox.control_groups import make_control_group\n"
        "from perdure.adapters.sandbox.usage import ResourceCaps\n"
        "kept = make_control_group('dead', ResourceCaps(1 << 28, 9, 1)); print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", make], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        living = ControlGroup(root, "living", CAPS)
        names = sandboxes(root)
        assert len(names) == 2, "the other's was removed although it lives"
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    next_one = ControlGroup(root, "next", CAPS)
    assert sorted(name.split(".")[2] for name in sandboxes(root)) == ["living", "next"]
    living.remove()
    next_one.remove()
    assert sandboxes(root) == []


@pytest.fixture
def laid_out(tmp_path: Path) -> Path:
    """Files as the kernel has them, and a process that is in `app.scope`."""
    group = tmp_path / "cgroup" / "app.scope"
    group.mkdir(parents=True)
    for file, text in {"controllers": "cpu memory pids", "subtree_control": "memory pids", "procs": ""}.items():
        (group / f"cgroup.{file}").write_text(text)
    try:
        os.setxattr(group, MARK, b"1")
    except OSError:
        pytest.skip("this file system has no attributes of users")
    mount = f"41 31 0:38 / {tmp_path / 'cgroup'} rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
    (tmp_path / "mountinfo").write_text("31 23 0:28 / /sys rw - tmpfs tmpfs rw\n" + mount)
    return group


def process(tmp_path: Path, own: str) -> Path:
    found = tmp_path / "process"
    found.mkdir(exist_ok=True)
    (found / "mountinfo").write_text((tmp_path / "mountinfo").read_text())
    (found / "cgroup").write_text(f"4:memory:/elsewhere\n0::{own}\n")
    return found


def test_a_group_is_ours_only_where_its_manager_says_so(laid_out, tmp_path):
    assert find_delegated_group(process(tmp_path, "/app.scope")) == laid_out
    assert find_delegated_group(process(tmp_path, f"/app.scope/{OWN_GROUP}")) == laid_out
    for own in ("/", "/app.scope/somebody", "/../app.scope", "/app.scope/other/" + OWN_GROUP):
        assert find_delegated_group(process(tmp_path, own)) is None, own
    (laid_out / "cgroup.controllers").write_text("cpu pids")
    assert find_delegated_group(process(tmp_path, "/app.scope")) is None
    (laid_out / "cgroup.controllers").write_text("memory")
    os.removexattr(laid_out, MARK)
    assert find_delegated_group(process(tmp_path, "/app.scope")) is None
    assert find_delegated_group(tmp_path / "nothing") is None


def test_what_the_kernel_counted_is_told_in_the_watchers_words(laid_out):
    for file in ("memory.max", "memory.swap.max", "pids.max"):
        assert not (laid_out / file).exists()
    group = ControlGroup(laid_out, "a/b", ResourceCaps(4096 * MB, 100, 1, cpu_s=3.0))
    (path,) = laid_out.glob(f"{GROUP_PREFIX}*")
    assert path.name.startswith(f"{GROUP_PREFIX}a-b.")
    assert ((path / "memory.max").read_text(), (path / "memory.oom.group").read_text()) == (str(4096 * MB), "1")
    assert group.exceeded_limit() == ""
    for file, text, said in (
        ("memory.events", "low 0\nhigh 0\nmax 9\noom 0\noom_kill 1\n", ""),  # the host had no memory left
        ("pids.events", "max 3\n", "over its limit of 100 processes and threads"),
        ("pids.peak", "90\n", ""),  # an outer group's limit
        ("cpu.stat", "usage_usec 3100000\nuser_usec 1\n", "over its limit of 3 s of processor time"),
        ("memory.events", "oom 1\noom_kill 3\n", "over its memory limit of 4 GB, peak 4 GB"),
    ):
        (path / file).write_text(text)
        assert group.exceeded_limit() == said, (file, text)
    group.remove()


def test_a_group_that_cannot_be_made_leaves_the_limits_to_the_watcher(laid_out, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(control_groups, "find_delegated_group", lambda: laid_out / "gone")
    assert control_groups.make_control_group("any", CAPS) is None
    assert "the limits of a command are watched alone" in caplog.text


def test_doctor_says_who_holds_the_limits(tmp_path, monkeypatch):
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    (found,) = check_sandbox()
    how = f"held by the kernel in {find_delegated_group()}, and watched" if find_delegated_group() else "watched"
    assert found.text.endswith(f"processes ({how})"), found


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
