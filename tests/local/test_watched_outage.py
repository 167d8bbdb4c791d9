"""Who looks on while Temporal is away is told so in one line, in our words alone, and sees it go on."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.cli.look.follower import AWAY
from perdure.local.server import find_server
from perdure.models.limits import TASK_QUEUE
from tests.cli.conftest import Cli
from tests.engine import HAPPY, Engine, make_target, until
from tests.processes import send
from tests.waiting import patient

pytestmark = [pytest.mark.story, pytest.mark.long]

ITEMS = [{"id": "sub", "request": "Add sub"}]


@pytest.mark.timeout(240)
async def test_who_watches_while_temporal_is_away_is_told_so_once_an_outage(tmp_path: Path) -> None:
    origin, note = str(make_target(tmp_path / "calc.git")), "let me look"
    async with Engine.open(tmp_path, HAPPY, own_server=True) as engine:

        async def kill_server() -> None:
            info = await find_server(engine.home)
            assert info is not None
            send(info.pid, signal.SIGKILL)

        for workflow, more in (("Backlog", {"items": ITEMS}), ("Delivery", {"request": "Add sub"})):
            await engine.client.start_workflow(
                workflow,
                {"repository": origin, **more},
                id=workflow.lower(),
                task_queue=TASK_QUEUE,
                start_signal="hold",
                start_signal_args=[{"note": note}],
            )
        environment = Cli(engine.home.root, tmp_path, engine.env).environment()
        commands = {"backlog": ["backlog", "status", "backlog", "--watch"], "delivery": ["watch", "delivery"]}
        logs, watching = {name: tmp_path / f"{name}.log" for name in commands}, []
        for name, words in commands.items():
            with logs[name].open("w") as log:
                command = [sys.executable, "-m", "perdure.cli", *words]
                watching.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=log, stderr=log))

        def all_say(words: str, times: int = 1) -> Callable[[], bool]:
            return lambda: all(log.read_text().count(words) >= times for log in logs.values())

        try:
            await until(all_say("no worker is running"))
            await kill_server()
            await until(all_say(AWAY))
            await engine.start_server()
            engine.worker()
            await until(all_say(note))
            assert [log.read_text().count(AWAY) for log in logs.values()] == [1, 1]
            await kill_server()
            await until(all_say(AWAY, times=2))
        finally:
            for process in watching:
                process.send_signal(signal.SIGINT)
            for process in watching:
                process.wait(patient(30))
        for log in logs.values():
            told = log.read_text()
            assert "temporalio" not in told, told
            assert "gRPC" not in told, told
