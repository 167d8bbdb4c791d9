"""A run that has a start delay, or waits for the next time of its cron schedule, has not begun: whoever asks is told so
and when it will, and not that no worker runs."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from backlog_fixtures import Branch, night
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.cli.look.watch import DeliveryWatcher
from perdure.cli.screen import Screen
from perdure.client import Perdure
from perdure.models.errors import NotBegun
from perdure.models.limits import TASK_QUEUE
from tests.deliveries import PLANNED, Script, playing
from tests.waiting import patient

DELAY = timedelta(hours=3)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("begins", ["start delay", "cron"])
@pytest.mark.parametrize("workflow", ["Delivery", "Backlog"])
async def test_a_run_that_has_not_begun_says_when_it_will(
    client: Client,
    server: str,
    fresh: str,
    workflow: str,
    begins: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", server)
    raw = PLANNED if workflow == "Delivery" else night({"id": "api"})
    when = {"start_delay": DELAY} if begins == "start delay" else {"cron_schedule": "0 0 1 1 *"}
    async with playing(client, Branch() if workflow == "Backlog" else Script()):
        await client.start_workflow(workflow, raw, id=fresh, task_queue=TASK_QUEUE, **when)
        perdure = Perdure(client)
        handle = perdure.delivery(fresh) if workflow == "Delivery" else perdure.backlog(fresh)
        described = await handle.describe()
        assert described.begins is not None
        assert described.begins > datetime.now(UTC) + timedelta(minutes=1)
        if begins == "start delay":
            assert abs(described.begins - datetime.now(UTC) - DELAY) < timedelta(minutes=5)
        told = f"{described.begins:%Y-%m-%d %H:%M}"
        since = time.monotonic()
        with pytest.raises(NotBegun, match=f"{fresh} has not begun yet: it begins at {told}") as error:
            await handle.progress()
        assert time.monotonic() - since < 20
        assert "perdure cancel" in error.value.fix
        (started,) = [event async for event in perdure.events(fresh)]
        assert started.type == "started"
        assert datetime.fromisoformat(started.data["begins"]).strftime("%Y-%m-%d %H:%M") == told
        if workflow == "Delivery":
            watching = asyncio.create_task(DeliveryWatcher(perdure.delivery(fresh), Screen()).watch())
            said = ""
            async with asyncio.timeout(patient(20)):
                while "begins at" not in said and not watching.done():
                    await asyncio.sleep(0.2)
                    said += capsys.readouterr().out
            watching.cancel()
            assert f"has not begun yet: it begins at {told}" in said
            assert "no worker" not in said
        await client.get_workflow_handle(fresh).terminate()


@pytest.mark.timeout(60)
async def test_a_run_that_begins_at_once_has_no_time_of_its_beginning(client: Client, fresh: str) -> None:
    perdure = Perdure(client)
    await perdure.submit(PLANNED, id=fresh)
    assert (await perdure.delivery(fresh).describe()).begins is None
    (started,) = [event async for event in perdure.events(fresh)]
    assert started.data["begins"] is None
    with pytest.raises(RPCError):
        await client.get_workflow_handle(fresh).query("progress", rpc_timeout=timedelta(seconds=1))
