"""A worker whose server has died does not serve whoever took its port, and a person who watches is not shown theirs."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from temporalio.client import Client

from perdure.adapters.system.home import Home
from perdure.cli.look.follower import LOOK_S
from perdure.cli.look.watch import DeliveryWatcher
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client
from perdure.local.identity import find_free_ports, is_port_free
from perdure.local.server import ensure_server, find_server, stop_server
from perdure.plugin import perdure_plugin
from tests.engine import HAPPY, Engine, until
from tests.processes import send

pytestmark = pytest.mark.story


@pytest.mark.timeout(90)
async def test_a_worker_whose_port_another_homes_server_took_ends_and_does_nothing_there(tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    async with Engine.open(tmp_path, HAPPY, server_port=find_free_ports().grpc) as engine:
        worker = engine.worker()
        await until(lambda: "working on" in engine.worker_log())
        ours = await find_server(engine.home)
        assert ours is not None
        send(ours.pid, signal.SIGKILL)
        port = int(ours.address.rpartition(":")[2])
        await until(lambda: is_port_free(port))
        theirs = await ensure_server(other, port=port, say=lambda _: None)
        try:
            client = await Client.connect(theirs.address, plugins=[perdure_plugin()])
            await client.start_workflow(
                "Delivery", {"repository": str(tmp_path / "nothing"), "request": "x"}, id="theirs", task_queue="perdure"
            )
            await until(lambda: worker.poll() is not None)
            assert "another home's server answers" in engine.worker_log()
            history = await client.get_workflow_handle("theirs").fetch_history()
            ended = [event.WhichOneof("attributes") or "" for event in history.events]
            assert not [kind for kind in ended if kind.startswith(("activity_task_completed", "activity_task_failed"))]

            await engine.start_server()  # at another port: its own is taken
            before = engine.worker_log()
            engine.worker()
            await until(lambda: "working on" in engine.worker_log().removeprefix(before))
        finally:
            await stop_server(other)


@pytest.mark.timeout(90)
async def test_a_worker_whose_server_comes_up_elsewhere_ends_too(tmp_path: Path) -> None:
    async with Engine.open(tmp_path, HAPPY, server_port=find_free_ports().grpc) as engine:
        worker = engine.worker()
        await until(lambda: "working on" in engine.worker_log())
        await engine.end_server()
        await engine.start_server(find_free_ports().grpc)
        await until(lambda: worker.poll() is not None)
        assert "this home's server is at" in engine.worker_log()


@pytest.mark.timeout(90)
async def test_who_watches_a_delivery_is_never_shown_another_homes_of_that_id(tmp_path: Path, monkeypatch) -> None:
    home, other, seen = Home(tmp_path / "home"), Home(tmp_path / "other"), []
    monkeypatch.setenv("PERDURE_HOME", str(home.root))
    screen = Screen()

    async def begin(address: str) -> str:
        client = await Client.connect(address, plugins=[perdure_plugin()])
        return (await client.start_workflow("Delivery", {}, id="one", task_queue="nobody")).first_execution_run_id or ""

    try:
        ours = await ensure_server(home, port=find_free_ports().grpc, say=lambda _: None)
        run = await begin(ours.address)
        delivery = (await connect_client(screen)).delivery("one")
        watching = asyncio.create_task(
            DeliveryWatcher(delivery, screen, transform=lambda d: seen.append(d.run_id) or d).watch()
        )
        await until(lambda: seen)
        send(ours.pid, signal.SIGKILL)
        port = int(ours.address.rpartition(":")[2])
        await until(lambda: is_port_free(port))
        theirs = await ensure_server(other, port=port, say=lambda _: None)
        assert await begin(theirs.address) != run
        await asyncio.sleep(2 * LOOK_S)  # time to be led astray
        assert not watching.done()
        await ensure_server(home, say=lambda _: None)  # at another port: its own is taken
        looks = len(seen)
        await until(lambda: len(seen) > looks + 1)
        assert set(seen) == {run}
        watching.cancel()
    finally:
        await stop_server(other)
        await stop_server(home)
