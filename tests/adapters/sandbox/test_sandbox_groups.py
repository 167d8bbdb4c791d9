"""Where a control group was delegated to us the kernel holds a sandbox's limits; everywhere the worker watches them.

The first part needs such a host: systemd-run --user --scope -p Delegate=yes .venv/bin/python -m pytest …
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.sandbox import control_groups
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.control_groups import GROUP_PREFIX, MARK, OWN_GROUP, ControlGroup, find_delegated_group
from perdure.adapters.sandbox.grades import LandlockSandbox, OffSandbox
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.cli.host.doctor import check_sandbox
from tests import needs

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
