"""How commands end, with everything they started; what is seen of their output, and left on disk."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import sys
import tracemalloc
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.bubblewrap import BubblewrapSandbox
from perdure.adapters.sandbox.status import REGION, StatusFile, empty_if_unused, end_sandboxes, parse_status
from perdure.adapters.sandbox.supervision import SANDBOX_CHECK_S
from perdure.adapters.sandbox.usage import describe_kill
from perdure.adapters.system.output import clean_output, read_excerpt
from perdure.models.config.repository import SandboxGrade
from perdure.models.errors import Superseded, WorkCutOff
from perdure.models.limits import SANDBOX_NICE
from tests.waiting import patient

ROOT = Path(__file__).parents[3]

DAEMON = "(setsid {sleeper} >/dev/null 2>&1 &); (setsid {sleeper} &); "


def locked(lock: Path) -> bool:
    with open(lock, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("true", 0), ("no-such-command", 127), ("kill -9 $$", 137)]
)
async def test_the_exit_code_is_the_commands_own(any_grade, run, script, code):
    finished, _ = await run(any_grade, script)
    assert (finished.exit_code, finished.failure, finished.timed_out) == (code, "", False)


async def test_output_and_errors_go_to_one_file_in_order(any_grade, run):
    _, said = await run(any_grade, "echo one; echo two >&2; echo three")
    assert said == "one\ntwo\nthree\n"


HOLDS = 'exec python3 -c \'import time; held = bytearray(150_000_000); open("up", "w"); time.sleep(60)\''


async def test_a_sandbox_that_is_killed_says_so_with_the_memory_it_was_seen_to_hold(any_grade, run, until, worktree):
    task = asyncio.ensure_future(run(any_grade, HOLDS))
    await until((worktree / "up").exists)
    await asyncio.sleep(8 * SANDBOX_CHECK_S)
    supervisor = max(psutil.Process().children(), key=lambda each: each.create_time())
    assert "\n".join(each.name() for each in (supervisor, *supervisor.children(recursive=True))).count("python") >= 1
    supervisor.kill()
    finished, _ = await task
    assert (finished.exit_code, finished.died) == (None, True)
    assert finished.peak > 140_000_000
    assert re.fullmatch(r"the sandbox was killed, perhaps for memory: peak 1\d\d MB", finished.failure)
    with pytest.raises(WorkCutOff, match="perhaps for memory"):
        finished.raise_for_failure(SandboxCommand("", worktree, worktree, 1.0), "here")


async def test_a_command_that_is_killed_is_a_command_that_failed(any_grade, run, until, worktree):
    task = asyncio.ensure_future(run(any_grade, HOLDS))
    await until((worktree / "up").exists)
    holding: list[psutil.Process] = []

    def alone() -> bool:  # what starts beside it, or is about to become another program, has its words for a moment
        holding[:] = []
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "bytearray" in str(each.cmdline()) and each.name().startswith("python") and not each.children():
                    holding.append(each)
        return len(holding) == 1

    await until(alone)
    holding[0].kill()
    finished, _ = await task
    assert (finished.exit_code, finished.failure, finished.died) == (137, "", False)


def test_a_peak_that_nobody_saw_is_not_made_up():
    assert describe_kill(signal.SIGKILL, 0) == "killed, perhaps for memory"
    assert describe_kill(signal.SIGKILL, 1_990_000_000) == "killed, perhaps for memory: peak 1.9 GB"
    assert describe_kill(signal.SIGTERM, 10**9) == "killed by signal 15"


async def test_survivors_are_dead_when_the_command_has_ended(any_grade, run, sleeper, left):
    finished, _ = await run(any_grade, DAEMON.format(sleeper=sleeper) + "exit 4")
    assert finished.exit_code == 4
    assert left(sleeper) == 0


async def test_a_timeout_ends_the_whole_tree(any_grade, run, sleeper, left):
    script = "trap '' TERM; " + DAEMON.format(sleeper=sleeper) + f"{sleeper}"
    finished, _ = await run(any_grade, script, timeout_s=0.5)
    assert finished.timed_out
    assert finished.exit_code is None
    assert not finished.failure
    assert left(sleeper) == 0


async def test_cancellation_ends_the_whole_tree_before_it_returns(any_grade, run, sleeper, left, until, worktree):
    task = asyncio.ensure_future(run(any_grade, DAEMON.format(sleeper=sleeper) + f"touch up; {sleeper}"))
    await until((worktree / "up").exists)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # a second one, while it waits for the dead, must not cut that short
    with pytest.raises(asyncio.CancelledError):
        await task
    assert left(sleeper) == 0


async def test_whatever_goes_wrong_while_a_command_is_watched_ends_the_whole_tree(
    any_grade, run, sleeper, left, until, worktree, tmp_path
):
    task = asyncio.ensure_future(run(any_grade, f"{DAEMON.format(sleeper=sleeper)} touch up; {sleeper}"))
    await until((worktree / "up").exists)
    (tmp_path / "output").unlink()
    with pytest.raises(FileNotFoundError):
        await task
    assert left(sleeper) == 0


async def test_a_flood_of_output_is_cut_off_and_ends_the_command(home, binds, full, run, sleeper, left):
    sandbox = BubblewrapSandbox(home, binds, output_limit=100_000)
    finished, said = await run(sandbox, f"(setsid {sleeper} &); yes")
    assert finished.truncated
    assert finished.exit_code == 153
    assert len(said) == 100_000
    assert left(sleeper) == 0


async def test_a_large_file_is_not_mistaken_for_a_flood(home, binds, full, run, worktree):
    finished, _ = await run(BubblewrapSandbox(home, binds, output_limit=1000), "head -c 300000 /dev/zero > big")
    assert finished.exit_code == 0
    assert (worktree / "big").stat().st_size == 300_000


async def test_a_failing_sandbox_is_never_a_failing_command(home, binds, full, run, tmp_path):
    for fields in (
        {"worktree": tmp_path / "absent"},
        {"git_dir": tmp_path / "absent"},
        {"results": tmp_path / "absent"},
        {"source": tmp_path / "absent"},
    ):
        finished, _ = await run(full, "true", **fields)
        assert finished.exit_code is None
        assert "absent" in finished.failure
    finished, _ = await run(BubblewrapSandbox(home, binds, bwrap="/no/bwrap"), "true")
    assert "/no/bwrap" in finished.failure
    assert finished.failure.endswith("No such file or directory")
    finished, _ = await run(full, "true " + "x" * 200_000)
    assert finished.exit_code is None
    assert "Argument list too long" in finished.failure


async def test_a_launcher_that_cannot_start_the_command_says_why(off, run, tmp_path):
    finished, _ = await run(off, "true", worktree=tmp_path / "absent")
    assert finished.exit_code is None
    assert "absent" in finished.failure


async def test_commands_run_at_lower_priority_without_core_dumps(any_grade, run):
    _, said = await run(any_grade, "nice; ulimit -c")
    assert said.split() == [str(min(os.nice(0) + SANDBOX_NICE, 19)), "0"], "lower than ours, however low that is"


async def test_the_lock_is_held_while_anything_lives_and_free_afterwards(any_grade, run, until, worktree, tmp_path):
    lock = tmp_path / "lock"
    task = asyncio.ensure_future(run(any_grade, "touch up; while [ ! -e go ]; do sleep 0.02; done", lock=lock))
    await until((worktree / "up").exists)
    assert locked(lock)
    (worktree / "go").touch()
    finished, _ = await task
    assert finished.exit_code == 0
    assert not locked(lock)
    assert lock.stat().st_size == 0


async def test_what_a_command_reported_stays_until_it_was_read_whoever_ends_meanwhile(tmp_path):
    lock = tmp_path / "lock"
    with await StatusFile.open_locked(lock) as first, await StatusFile.open_locked(lock) as second:
        os.write(first.fd, b'{"exit-code": 3}\n')
        first.hand_over()  # both sandboxes have ended: nobody holds the lock
        second.hand_over()
        empty_if_unused(lock)
        assert first.read_status().exit_code == 3
    with await StatusFile.open_locked(lock) as last:
        last.hand_over()
        empty_if_unused(lock)
    assert lock.stat().st_size == 0


async def test_two_commands_share_a_lock_without_mixing_what_they_report(full, worktree, tmp_path, home, binds):
    from perdure.adapters.sandbox.base import SandboxCommand

    lock = tmp_path / "lock"
    commands = [
        SandboxCommand(f"sleep 0.{n}; exit {n}", worktree, tmp_path / f"out{n}", 20.0, lock=lock) for n in range(1, 6)
    ]
    codes = [finished.exit_code for finished in await asyncio.gather(*map(full.run_command, commands))]
    assert codes == [1, 2, 3, 4, 5]
    assert not locked(lock)


async def test_a_command_is_refused_while_someone_owns_the_workspace(full, run, tmp_path, worktree):
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Superseded):
            await run(full, "touch ran", lock=tmp_path / "lock")
    assert not (worktree / "ran").exists()


async def test_the_fence_is_asked_under_the_lock_and_can_refuse(any_grade, run, tmp_path, worktree):
    lock = tmp_path / "lock"

    def fence() -> None:
        assert locked(lock)
        raise Superseded("a newer attempt owns the worktree")

    with pytest.raises(Superseded):
        await run(any_grade, "touch ran", lock=lock, fence=fence)
    assert not (worktree / "ran").exists()
    assert not locked(lock)


RUNNER = """
import asyncio, os, sys
from pathlib import Path
from perdure.adapters.system.home import Home
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.environment import Binds
from perdure.models.config.repository import SandboxGrade
grade, root, script = sys.argv[1:]
root = Path(root)
sandbox = sandbox_for(SandboxGrade(grade), Home(root / "perdure"), Binds(path=("/usr/bin", "/bin")))
asyncio.run(sandbox.run_command(SandboxCommand(script, root / "tree", root / "out", 60.0, lock=root / "lock")))
"""

WRITER = "while :; do echo x >> written; done"


async def start_worker(grade: SandboxGrade, root: Path, script: str) -> asyncio.subprocess.Process:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "PATH": os.environ["PATH"]}
    return await asyncio.create_subprocess_exec(sys.executable, "-c", RUNNER, grade, str(root), script, env=environment)


@pytest.mark.parametrize("grade", list(SandboxGrade))
async def test_nothing_survives_the_sigkill_of_the_worker(grade, request, worktree, tmp_path, sleeper, left, until):
    request.getfixturevalue(grade)  # skips where the grade cannot be had
    worker = await start_worker(grade, tmp_path, DAEMON.format(sleeper=sleeper) + WRITER)
    await until(lambda: (worktree / "written").exists() and left(sleeper) == 2)
    worker.kill()
    await worker.wait()
    assert await asyncio.to_thread(end_sandboxes, tmp_path / "lock", 5.0)
    size = (worktree / "written").stat().st_size
    assert left(sleeper) == 0
    await asyncio.sleep(0.05)
    assert (worktree / "written").stat().st_size == size
    assert not locked(tmp_path / "lock")


@pytest.mark.parametrize("grade", [SandboxGrade.FULL, SandboxGrade.OFF])
async def test_sandboxes_of_a_stopped_worker_can_be_ended_without_touching_the_worker(
    grade, request, worktree, tmp_path, until
):
    request.getfixturevalue(grade)
    worker = await start_worker(grade, tmp_path, WRITER)
    try:
        await until((worktree / "written").exists)
        worker.send_signal(signal.SIGSTOP)
        assert locked(tmp_path / "lock")
        assert await asyncio.to_thread(end_sandboxes, tmp_path / "lock", 5.0)
        size = (worktree / "written").stat().st_size
        await asyncio.sleep(0.05)
        assert (worktree / "written").stat().st_size == size
        worker.send_signal(signal.SIGCONT)
        assert await asyncio.wait_for(worker.wait(), patient(20)) == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


def test_no_proof_is_given_while_someone_holds_the_lock(tmp_path):
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert not end_sandboxes(tmp_path / "lock", 0.05)
    assert end_sandboxes(tmp_path / "lock", 0.05)
    assert end_sandboxes(tmp_path / "never-made", 0.05)


def test_a_short_output_is_shown_whole(tmp_path):
    (tmp_path / "out").write_text("one\ntwo\n")
    assert read_excerpt(tmp_path / "out", 10, 10) == "one\ntwo\n"
    assert read_excerpt(tmp_path / "absent", 10, 10) == ""


def test_of_a_long_output_head_and_tail_are_shown_with_what_lies_between(tmp_path):
    (tmp_path / "out").write_text("a" * 500 + "b" * 500)
    assert read_excerpt(tmp_path / "out", 5, 3) == "aaaaa\n[… 992 bytes left out …]\nbbb"
    (tmp_path / "out").write_text("a" * 10 + "b" * 10)
    assert read_excerpt(tmp_path / "out", 5, 3) == "aaaaa\n[… 12 bytes left out …]\nbbb"


def test_characters_of_several_bytes_are_not_cut_in_two(tmp_path):
    (tmp_path / "out").write_text("€" * 1001)
    text = read_excerpt(tmp_path / "out", 7, 7)
    assert text.startswith("€€€€€€€\n[… ")
    assert text.endswith("\n€€€€€€€")
    assert "\ufffd" not in text


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    (tmp_path / "out").write_bytes(b"ok \xff\xfe end")
    assert read_excerpt(tmp_path / "out", 50, 50) == "ok \ufffd\ufffd end"


def test_terminal_control_sequences_are_removed():
    assert (
        clean_output("\x1b[31mred\x1b[0m \x1b]0;title\x07x \x1b]8;;http://e\x1b\\link \x1b(B\x00\x9b1m")
        == "red x link 1m"
    )
    assert clean_output("10%\r50%\r100%\ndone\r\n") == "100%\ndone\n"


def test_a_huge_file_is_read_in_bounded_memory(tmp_path):
    with open(tmp_path / "out", "wb") as file:
        file.truncate(200_000_000)
    tracemalloc.start()
    read_excerpt(tmp_path / "out", 1000, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@given(st.binary(max_size=300), st.integers(0, 40), st.integers(0, 40))
def test_an_excerpt_is_never_much_longer_than_asked_for(tmp_path_factory, data, head, tail):
    path = tmp_path_factory.getbasetemp() / "excerpt"
    path.write_bytes(data)
    text = read_excerpt(path, head, tail)
    assert len(text) <= head + tail + len("\n[… 300 bytes left out …]\n")
    assert "\x1b" not in text


def test_a_reused_process_id_is_not_killed(tmp_path):
    """The lock file of a host that was restarted names processes that are someone else's now: this one's."""
    lines = [{"child-pid": os.getpid(), "pid-namespace": 1}, {"child-pid": os.getpid(), "started": 1}]
    lock = tmp_path / "lock"
    lock.write_bytes(b"".join((json.dumps(line).encode() + b"\n").ljust(REGION, b"\n") for line in lines))
    assert end_sandboxes(lock, 1.0)
    assert lock.stat().st_size == 0


def test_a_line_cut_short_by_a_death_counts_as_not_written():
    status = parse_status(b'{ "child-pid": 7, "pid-namespace": 9 }\n\0\0\n{ "exit-co')
    assert status.holder is not None
    assert (status.holder.pid, status.holder.namespace, status.exit_code) == (7, 9, None)


def test_a_lock_file_in_use_is_not_emptied(tmp_path):
    lock = tmp_path / "lock"
    lock.write_bytes(b"x" * REGION)
    with open(lock, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        empty_if_unused(lock)
        assert lock.stat().st_size == REGION
    empty_if_unused(lock)
    assert lock.stat().st_size == 0
