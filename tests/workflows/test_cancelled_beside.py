"""A cancellation that comes in one workflow task with something else: nobody stands still, and it goes down."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from backlog_fixtures import Branch, backlog, night, until
from deciding import Deciding
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.worker import Worker

from perdure.models.backlog import landing
from perdure.models.backlog.landing import DeliveryLookup, DeliveryLookupInput
from perdure.models.limits import TASK_QUEUE
from tests.deliveries import playing
from tests.waiting import patient
from tests.waiting import until as true
from workflows import backlog as backlogs

CANCELED = WorkflowExecutionStatus.CANCELED


async def _is(handle: WorkflowHandle[Any, Any], status: WorkflowExecutionStatus) -> bool:
    return (await handle.describe()).status is status


def acting(client: Client, branch: Branch) -> Worker:
    return Worker(client, task_queue=TASK_QUEUE, activities=branch.activities())


class Looking(Branch):
    """Nobody comes back from a look at the deliveries."""

    def __init__(self, **changes: str) -> None:
        super().__init__(**changes)
        self.begun = asyncio.Event()

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def look_for(work: DeliveryLookupInput) -> DeliveryLookup:
            self.begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        return [*(one for one in super().activities() if one.__name__ != "look_for"), look_for]


async def test_a_backlog_that_is_cancelled_while_it_looks_for_its_deliveries_cancels_them(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "BACKLOG_LOOK", timedelta(seconds=0.2))
    branch = Looking(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await branch.begun.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        branch.holding["one"].set()
        await true(lambda: _is(client.get_workflow_handle(f"{fresh}/one"), CANCELED))
        assert (await handle.query("progress"))["status"] == "cancelled"


async def test_a_backlog_that_is_cancelled_as_it_grants_the_turn_to_land_cancels_its_deliveries(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with asyncio.timeout(patient(60)), Deciding(client) as deciding, acting(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await until(handle, lambda at: at["one"] == "building")
        one = client.get_workflow_handle(f"{fresh}/one")
        await true(lambda: bool(branch.now))
        await deciding.pause()
        asks = landing.LandingRequested(item="one", delivery=one.id, run_id=(await one.describe()).run_id, seq=1)
        await handle.signal("landing_asked", asks.model_dump(mode="json"))
        await handle.cancel()
        await deciding.__aenter__()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        branch.holding["one"].set()
        await true(lambda: _is(one, CANCELED))
        assert (await handle.query("progress"))["status"] == "cancelled"


async def test_a_delivery_that_is_cancelled_as_it_hears_that_its_backlog_has_ended_ends(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen at random: it stood still for good, because the SDK asked for a signal to be taken back that had failed."""
    asks, goes_on, real = threading.Event(), threading.Event(), landing.LandingRequested

    def slowly(**given: Any) -> landing.LandingRequested:
        asks.set()
        goes_on.wait(1.5)  # the SDK takes two seconds for a deadlock
        return real(**given)

    monkeypatch.setattr(landing, "LandingRequested", slowly)
    branch = Branch(one="a")
    async with asyncio.timeout(patient(60)), Deciding(client) as deciding, acting(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        one = client.get_workflow_handle(f"{fresh}/one")
        await asyncio.to_thread(asks.wait, 20)
        await handle.terminate()
        await one.cancel()
        pausing = asyncio.create_task(deciding.pause())
        await asyncio.sleep(0.1)
        goes_on.set()
        await pausing
        await true(lambda: _failed_to_tell(one))
        await deciding.__aenter__()
        await true(lambda: _is(one, CANCELED))
        assert "resume" in await (await one.describe()).memo()


async def _failed_to_tell(handle: WorkflowHandle[Any, Any]) -> bool:
    events = [event async for event in handle.fetch_history_events()]
    return any(event.HasField("signal_external_workflow_execution_failed_event_attributes") for event in events)
