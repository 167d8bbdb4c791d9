"""A worker that was killed is gone from the page, and a slow server makes nobody wait."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import WorkerStatus
from temporalio.api.worker.v1 import WorkerHeartbeat
from temporalio.client import Client
from visitors import PLAN, stands_waiting, visiting

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.client.server.overview import ANSWER_S
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import ensure_server, stop_server
from perdure.page.server import serve_page
from perdure.page.views.hosts import list_workers, worker_state
from perdure.plugin import perdure_plugin
from tests.engine import HAPPY, Engine, until


def beat(age: float, queue: str = "perdure", status: int = WorkerStatus.WORKER_STATUS_RUNNING) -> WorkerHeartbeat:
    made = WorkerHeartbeat(task_queue=queue, status=status)  # type: ignore[arg-type]
    made.heartbeat_time.FromDatetime(datetime.now(UTC) - timedelta(seconds=age))
    return made


def test_what_is_not_known_of_a_worker_is_not_said(tmp_path: Path) -> None:
    home, name, now = Home(tmp_path / "home"), "ab" * 16, datetime.now(UTC)

    def state(age: float, *beats: WorkerHeartbeat, name: str = name) -> str:
        return worker_state(
            f"{os.getpid()}@{socket.gethostname()}/{name}", list(beats), now - timedelta(seconds=age), home
        )

    assert state(200) == "", "it never says how it is"
    assert (state(15, beat(15)), state(40, beat(40)), state(2, beat(40))) == ("", "silent", "")
    assert state(1, beat(1, status=WorkerStatus.WORKER_STATUS_SHUTTING_DOWN)) == "leaving"
    assert state(1, beat(1, "perdure-of-another-host")) == "", "the same name of a host, and a process that lives"
    assert (state(1, beat(1, home.queue())), state(1, beat(1, home.queue()), name="..")) == ("gone", "")
    lock = try_lock(home.inflight / f"{name}.lock")
    assert lock is not None
    assert (state(1, beat(1, home.queue())), state(40, beat(40, home.queue())), state(200)) == ("", "silent", "")
    os.close(lock)
    assert (state(1, beat(1)), state(200)) == ("gone", "gone"), "it has left its lock here"


@pytest.mark.timeout(240)
async def test_a_killed_worker_is_gone_at_once_for_its_own_host_and_nothing_is_claimed_elsewhere(
    tmp_path: Path, ports: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19500)) as page,
        visiting(page) as ada,
    ):
        monkeypatch.setenv("PERDURE_HOME", str(engine.home.root))

        async def rows(slots: bool = False) -> list[tuple[str, str]]:
            """Identity, and what is said of it; with `slots` once its slots are known."""
            _, text = await ada.get("/hosts")
            assert "just now ago" not in text
            found = re.findall(r'<tr><td><code title="(\d+@[^"]+)">(.*)</tr>', text)
            return found if not slots or engine.home.queue() in text else []

        engine.worker()
        ((victim, said),) = await until(lambda: rows(slots=True), 60)
        assert "<strong>" not in said
        engine.kill_workers()
        assert (engine.home.inflight / f"{victim.rpartition('/')[2]}.lock").exists()
        ((again, said),) = await rows()
        assert (again, "<strong>gone</strong>" in said, "/32" in said) == (victim, True, False), said
        for home, state in ((engine.home, "gone"), (Home(tmp_path / "another-host"), "")):
            (one,) = await list_workers(engine.client, home)
            assert (one.identity, one.state) == (victim, state)

        engine.worker()  # it reports what the dead one had, and takes its lock away
        await until(lambda: not (engine.home.inflight / f"{victim.rpartition('/')[2]}.lock").exists(), 60)

        async def two() -> dict[str, str] | None:
            found = dict(await rows())
            return found if len(found) == 2 else None

        found = await until(two, 60)
        assert {identity == victim: "<strong>gone</strong>" in said for identity, said in found.items()} == {
            True: True,
            False: False,
        }


@pytest.mark.timeout(120)
async def test_what_was_seen_a_moment_ago_is_shown_at_once_and_the_trouble_once_it_is_known(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    info = await ensure_server(home, say=lambda _: None)
    try:
        client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
        await stands_waiting(client, "seen-before", PLAN)
        async with (
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=19100)) as page,
            visiting(page) as ada,
        ):

            async def shown() -> bool:
                return "seen-before" in (await ada.get("/"))[1]

            await until(shown)
            os.kill(info.pid, signal.SIGSTOP)
            await asyncio.sleep(2.5)  # longer ago than a page may be at first without a look
            began = time.monotonic()
            status, text = await ada.get("/")
            assert time.monotonic() - began < ANSWER_S / 2, "it waited for the look"
            assert (status, "seen-before" in text, "does not answer" in text) == (200, True, False)
            await asyncio.sleep(ANSWER_S)
            _, text = await ada.get("/")
            assert "seen-before" in text
            assert "Temporal does not answer" in text
            os.kill(info.pid, signal.SIGCONT)

            async def back() -> bool:
                return "does not answer" not in (await ada.get("/"))[1]

            await until(back, 40)
    finally:
        os.kill(info.pid, signal.SIGCONT)
        await stop_server(home)
