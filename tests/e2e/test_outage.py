"""The server goes too: killed, restarted, put back by a second."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import textwrap
from pathlib import Path

import pytest

from perdure.local.server import find_server
from tests.engine import BUILT, CALC, HAPPY, Engine, check_shipped, finished, make_target, until

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
