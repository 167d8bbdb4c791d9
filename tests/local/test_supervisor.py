"""The supervisor with a worker of ours that only lives and dies, and when that is started again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.local import forkserver
from perdure.local.identity import find_free_ports
from perdure.local.places import Places, SupervisorRecord, read_running_supervisor
from perdure.local.server import ensure_server, find_server, stop_server
from perdure.local.supervisor import RestartPauses
from tests.engine import until
from tests.waiting import patient

WORKER = """
import os, pathlib, signal, sys, time
home = pathlib.Path(os.environ["PERDURE_HOME"])
def drain(number, frame):
    (home / f"drained-{os.getpid()}").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
(home / f"ready-{os.getpid()}").write_text(os.environ.get("PYTHONSAFEPATH", "absent"))
while True:
    time.sleep(60)
"""

Supervise = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def supervise(home: Home, tmp_path: Path) -> Supervise:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)

    def start(*arguments: str, worker: str = str(script)) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "perdure.local.supervisor", *arguments, "--", sys.executable, worker]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    return start


async def ready(home: Home, *not_these: int | None) -> SupervisorRecord:
    """The supervisor's record once a worker that is not one of `not_these` runs our script."""

    def look() -> SupervisorRecord | None:
        record = read_running_supervisor(home)
        fresh = record is not None and record.worker_pid not in not_these
        return record if fresh and record and (home.root / f"ready-{record.worker_pid}").exists() else None

    found = await until(look, 20)
    assert isinstance(found, SupervisorRecord)
    return found


def gone(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.story
async def test_a_killed_worker_is_started_again_at_once(home: Home, supervise: Supervise) -> None:
    process = supervise()
    first = await ready(home)
    os.kill(first.worker_pid, signal.SIGKILL)
    second = await ready(home, first.worker_pid)
    assert (second.restarts, second.pid) == (1, process.pid)
    process.terminate()
    said, _ = process.communicate(timeout=patient(20))
    assert f"worker {first.worker_pid} died (signal 9): again at once" in said


@pytest.mark.story
async def test_sigterm_drains_the_worker_and_ends_both(home: Home, supervise: Supervise) -> None:
    process = supervise()
    record = await ready(home)
    process.terminate()
    process.communicate(timeout=patient(20))
    assert process.returncode == 0
    assert (home.root / f"drained-{record.worker_pid}").exists()
    assert gone(record.worker_pid)
    assert read_running_supervisor(home) is None
    assert not is_locked(Places(home).worker_lock)


@pytest.mark.story
async def test_a_second_signal_ends_a_worker_that_does_not_drain(
    home: Home, supervise: Supervise, tmp_path: Path
) -> None:
    stubborn = tmp_path / "stubborn.py"
    stubborn.write_text(WORKER.replace("signal.signal(signal.SIGTERM, drain)", "signal.signal(15, signal.SIG_IGN)"))
    process = supervise(worker=str(stubborn))
    record = await ready(home)
    process.terminate()
    assert process.stdout is not None
    while "finishes its turns" not in process.stdout.readline():
        assert process.poll() is None
    assert not gone(record.worker_pid)
    process.terminate()
    process.communicate(timeout=patient(20))
    assert gone(record.worker_pid)


@pytest.mark.story
async def test_a_worker_does_not_outlive_a_killed_supervisor(home: Home, supervise: Supervise) -> None:
    process = supervise()
    record = await ready(home)
    process.kill()
    process.communicate(timeout=patient(20))
    await until(lambda: gone(record.worker_pid), 20)
    assert (home.root / f"drained-{record.worker_pid}").exists(), "SIGTERM, so that it can finish its turn"


@pytest.mark.story
async def test_a_new_supervisor_waits_for_the_worker_of_a_killed_one(
    home: Home, supervise: Supervise, tmp_path: Path
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(WORKER.replace("    sys.exit(0)", "    signal.pause()"))
    first_process = supervise(worker=str(slow))
    first = await ready(home)
    first_process.kill()
    first_process.wait(patient(20))
    second_process = supervise()
    waiting = await until(lambda: read_running_supervisor(home), 20)
    assert waiting.worker_pid == first.worker_pid
    os.kill(first.worker_pid, signal.SIGKILL)
    second = await ready(home, first.worker_pid)
    assert second.pid == second_process.pid
    second_process.terminate()
    second_process.communicate(timeout=patient(20))


@pytest.mark.story
async def test_a_home_has_one_supervisor(home: Home, supervise: Supervise) -> None:
    first = supervise()
    await ready(home)
    second = supervise()
    said, _ = second.communicate(timeout=patient(20))
    assert second.returncode == 2
    assert "supervised already" in said
    first.terminate()
    first.communicate(timeout=patient(20))


@pytest.mark.story
async def test_ctrl_c_reaches_the_worker_through_its_supervisor_only(home: Home, supervise: Supervise) -> None:
    process = supervise()
    record = await ready(home)
    assert os.getpgid(record.worker_pid) != os.getpgid(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patient(20))
    assert process.returncode == 0
    assert (home.root / f"drained-{record.worker_pid}").exists()


@pytest.mark.story
async def test_the_worker_finds_the_packages_beside_its_script_whatever_pythonsafepath_says(
    home: Home, supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    process = supervise()
    record = await ready(home)
    assert (home.root / f"ready-{record.worker_pid}").read_text() == "absent"
    process.terminate()
    process.communicate(timeout=patient(20))


@pytest.mark.story
async def test_without_a_running_delivery_it_ends_by_itself(home: Home, supervise: Supervise) -> None:
    await ensure_server(home, say=lambda _: None, port=find_free_ports().grpc)
    process = supervise("--idle-exit", "1")
    said, _ = process.communicate(timeout=patient(60))
    assert process.returncode == 0
    assert "no delivery for 1 s" in said
    (worker,) = re.findall(r"worker (\d+) runs", said)
    assert gone(int(worker))


@pytest.mark.story
async def test_a_killed_server_or_web_ui_is_started_again_and_a_stopped_one_is_not(
    home: Home, supervise: Supervise
) -> None:
    places = Places(home)
    info = await ensure_server(home, say=lambda _: None, port=find_free_ports().grpc)
    process = supervise()
    await ready(home)
    os.kill(info.pid, signal.SIGKILL)
    await until(lambda: not is_locked(places.server_lock), 10)
    await until(lambda: is_locked(places.server_lock), 20)
    again = await ensure_server(home, say=lambda _: None)
    assert again.address == info.address
    lines = [(one.pid, one.info["cmdline"] or []) for one in psutil.process_iter(["cmdline"])]
    (front,) = [pid for pid, line in lines if str(places.server_lock) in line]
    os.kill(front, signal.SIGKILL)
    await until(lambda: not is_locked(places.ui_lock), 10)
    await until(lambda: is_locked(places.ui_lock), 20)
    await stop_server(home)
    process.terminate()
    said, _ = process.communicate(timeout=patient(20))
    assert said.count("starting Temporal") == 1
    assert not is_locked(places.server_lock)


def children(pid: int) -> list[int]:
    """Fast enough to meet one that lives for a few milliseconds on a busy machine, which a look at all does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    return []


@pytest.mark.story
async def test_a_server_that_is_killed_again_as_it_begins_is_started_once_more(
    home: Home, supervise: Supervise
) -> None:
    """Out of memory, say: what launches it dies with an old record set aside and no new one written."""
    places = Places(home)
    info = await ensure_server(home, say=lambda _: None, port=find_free_ports().grpc)
    process = supervise()
    await ready(home)
    os.kill(info.pid, signal.SIGKILL)
    end, struck = time.monotonic() + patient(30), 0
    while struck < 3 and time.monotonic() < end:
        for pid in children(process.pid):
            with suppress(FileNotFoundError, ProcessLookupError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"detached" in line and os.fsencode(places.database.name) in line:
                    os.kill(pid, signal.SIGKILL)
                    struck += 1
    assert struck
    again = await until(lambda: find_server(home), 30)
    assert again.address == info.address
    process.terminate()
    process.communicate(timeout=patient(20))


@pytest.mark.story
@pytest.mark.skipif(not forkserver.FORKING_POSSIBLE, reason="workers are forked on Linux alone")
async def test_what_forks_workers_is_never_told_for_a_worker(home: Home) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "perdure.local.supervisor"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    told: set[int | None] = set()

    def look() -> bool:
        if record := read_running_supervisor(home):
            told.add(record.worker_pid)
        return bool(told - {None})

    await until(look, 60)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=patient(60))
    assert all(f"worker {pid} runs" in said for pid in told - {None}), said


def test_four_deaths_in_a_row_cost_no_pause() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(now, lived=0.5) for now in range(4)] == [0, 0, 0, 0]


def test_the_fifth_within_ten_seconds_does_and_pauses_double_to_thirty_seconds() -> None:
    pauses = RestartPauses()
    now, seen = 0.0, []
    for _ in range(12):
        pause = pauses.after_death(now, lived=1)
        seen.append(pause)
        now += pause + 1
    assert seen == [0, 0, 0, 0, 1, 2, 4, 8, 16, 30, 30, 30]


def test_deaths_three_seconds_apart_cost_no_pause() -> None:
    pauses = RestartPauses()
    assert {pauses.after_death(now, lived=3) for now in range(0, 300, 3)} == {0}


def test_a_worker_that_lived_for_ten_seconds_clears_the_pause() -> None:
    pauses = RestartPauses()
    for now in range(6):
        pauses.after_death(now, lived=1)
    assert pauses.after_death(60, lived=10) == 0
    assert pauses.after_death(61, lived=1) == 0


def test_workers_that_were_killed_could_start_and_wait_for_a_second_at_most() -> None:
    pauses = RestartPauses()
    assert [pauses.after_death(2.0 * now, lived=1, killed=True) for now in range(12)] == [0] * 4 + [1] * 8


def test_workers_that_were_killed_at_work_cost_no_pause_however_often() -> None:
    pauses = RestartPauses()
    assert {pauses.after_death(2.0 * now, lived=2, killed=True) for now in range(40)} == {0}
