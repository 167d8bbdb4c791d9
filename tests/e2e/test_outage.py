"""The server goes, the disk is full, all dies while the work is prepared: nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.adapters.git.workspace import worktree_path
from perdure.local.server import find_server
from perdure.models.crash import CrashPoint
from tests.disks import small_disk
from tests.e2e.test_verify import verify
from tests.engine import BUILT, BUILT_CALLS, CALC, HAPPY, Engine, check_shipped, finished, git, make_target, until
from tests.waiting import patient

SHIPPED = {"calc.py": textwrap.dedent(CALC["calc.py"]) + "\n\ndef sub(a, b):\n    return a - b\n"}
SLOW = HAPPY.replace("sleep 0.5", "touch started && sleep 2")


async def _kill_server(engine: Engine) -> None:
    info = await find_server(engine.home)
    assert info is not None
    os.kill(info.pid, signal.SIGKILL)
    await until(lambda: not Path(f"/proc/{info.pid}/cmdline").exists() or _zombie(info.pid))


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.timeout(120)
async def test_server_and_worker_both_killed_and_restarted_on_the_same_home_go_on(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, SLOW, ports=ports, own_server=True) as engine:
        engine.worker()
        await engine.submit(origin, **BUILT)
        await until((engine.home.tree("calc-sub") / "started").exists)
        await _kill_server(engine)
        engine.kill_workers()
        await engine.start_server()
        engine.worker()
        result = await finished(await engine.submit(origin, **BUILT), engine)
        check_shipped(origin, engine, result, SHIPPED)
        assert result.receipt.worker_deaths == 1


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_server_put_back_behind_the_vault_adopts_the_turns_it_has_forgotten(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    asked = {**BUILT, "phases": ["plan", "build", "ship"]}
    async with Engine.open(tmp_path, SLOW, ports=ports, own_server=True) as engine:
        engine.worker()
        await engine.submit(origin, **asked)
        # A consistent copy from before a turn began, as a power cut that loses the last commits would leave it.
        await until(lambda: any("Step: plan" in str(call.body.get("system")) for call in engine.rehearsal.calls))  # type: ignore[union-attr]
        copy = tmp_path / "copy.db"
        source = sqlite3.connect(engine.home.root / "temporal.db")
        target = sqlite3.connect(copy)
        source.backup(target)
        source.close()
        target.close()
        await until((engine.home.tree("calc-sub") / "started").exists)
        await _kill_server(engine)
        engine.kill_workers()
        for suffix in ("", "-wal", "-shm"):
            (engine.home.root / f"temporal.db{suffix}").unlink(missing_ok=True)
        shutil.copyfile(copy, engine.home.root / "temporal.db")
        calls = engine.model_calls()
        await engine.start_server()
        engine.worker()
        result = await finished(await engine.submit(origin, **asked), engine)
        check_shipped(origin, engine, result, SHIPPED)
        report = await engine.report()
        assert report["repeated"] == 0, "a turn whose checkpoint existed was paid for again"
        assert engine.model_calls() <= calls + 3


SLOW_COMMAND = HAPPY.replace("sleep 0.5", "touch started && sleep 3 && rm started")


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
    async with Engine.open(tmp_path, SLOW_COMMAND, ports=ports, measured=True) as engine:
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


TARGET = {
    **CALC,
    "README.rst": "Calc\n====\n",
    "perdure.toml": CALC["perdure.toml"].replace(
        "commands = []",
        """commands = ["grep -q Calc README.rst && test ! -e stray.txt && echo kept > made-by-setup"]""",
    ),
}


@pytest.mark.timeout(240)
async def test_files_damaged_while_everything_is_dead_during_prepare_do_not_ship(tmp_path: Path, ports: int) -> None:
    """A power cut can do that: the files of a worktree are not synced. Before setup, and after it."""
    origin = make_target(tmp_path / "calc.git", TARGET)
    points = (CrashPoint.DURING_PREPARE, CrashPoint.DURING_TESTS)
    async with Engine.open(tmp_path, HAPPY, ports=ports, env={"PERDURE_CRASH_AT": ",".join(points)}) as engine:
        submitted = await engine.submit(origin)
        for point in points:
            engine.worker().wait(patient(60))
            assert (engine.home.crashes / f"{point}.0").exists(), engine.worker_log()
            tree = worktree_path(engine.home, "calc-sub", 0)
            os.truncate(tree / "README.rst", 0)
            (tree / "tests" / "__init__.py").unlink()
            (tree / "stray.txt").write_text("nobody's")
        assert (tree / "made-by-setup").exists(), "the second death is after setup"
        engine.worker()
        result = await finished(submitted, engine, timeout=120)
        check_shipped(origin, engine, result, SHIPPED)
        assert git(origin, "diff", "--name-only", "main", str(result.branch)) == "calc.py"
        said = await verify(engine)
        assert said.claims["begins at the base"][0] == "verified", said
        assert said.code == 0, said
