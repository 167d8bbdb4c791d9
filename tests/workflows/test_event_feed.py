"""The events of a backlog with its deliveries, and of a whole namespace: by time, each once, none from a query."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest
from backlog_fixtures import Branch, backlog, ended, night
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.client.backlog import Backlog
from perdure.client.history.event_feed import all_events, backlog_events
from perdure.local.server import ensure_server, stop_server
from perdure.models.errors import BadInput
from perdure.models.events import Event
from perdure.models.ids import BACKLOG_WORKFLOW
from perdure.plugin import perdure_plugin
from tests.deliveries import playing
from tests.processes import send
from tests.waiting import patient


def places(told: list[Event]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for event in told:
        found.setdefault(event.delivery or event.backlog or "", []).append(event.offset)
    return found


async def test_a_backlogs_events_are_its_own_and_its_deliveries_each_once_while_they_happen_and_afterwards(
    client: Client, fresh: str
) -> None:
    branch, since = Branch(schema="s", export="e", more="m"), datetime.now(UTC)
    branch.fails = {"more"}
    request = night({"id": "schema"}, {"id": "export", "depends_on": ["schema"]}, {"id": "more"})
    async with playing(client, branch):
        handle = await backlog(client, fresh, request)
        following = asyncio.create_task(read_all(client, fresh))
        await ended(handle)
        async with asyncio.timeout(patient(60)):
            followed = await following
        size = (await handle.describe()).history_length
        told = [event async for event in backlog_events(client, fresh)]
        assert (await handle.describe()).history_length == size, "looking costs no event"
    assert set(places(told)) == {fresh, f"{fresh}/schema", f"{fresh}/export", f"{fresh}/more"}
    assert places(told) == {id: list(range(len(offsets))) for id, offsets in places(told).items()}
    assert places(followed) == places(told)
    assert sorted(followed, key=str) == sorted(told, key=str)
    begun = [event.item for event in told if event.type == "item" and event.data["event"] == "begins"]
    assert sorted(map(str, begun)) == ["export", "more", "schema"]
    assert {event.item for event in told if event.delivery} == {"schema", "export", "more"}
    assert [str(event.type) for event in told if event.delivery is None][-1] == "ended"
    everything = [event async for event in all_events(client, since)]
    assert [event for event in everything if event.backlog == fresh] == told


async def read_all(client: Client, id: str) -> list[Event]:
    return [event async for event in backlog_events(client, id, follow=True)]


async def test_decisions_and_a_retry_are_events_of_the_backlog(client: Client, fresh: str) -> None:
    branch = Branch(schema="s")
    branch.fails = {"schema"}
    async with playing(client, branch):
        await ended(await backlog(client, fresh, night({"id": "schema"})))
        branch.fails = set()
        await Backlog(client, fresh).retry("schema", by="someone")
        await Backlog(client, fresh).result()
        told = [event async for event in backlog_events(client, fresh)]
    own = [str(event.type) for event in told if event.delivery is None]
    assert own[0] == "started"
    assert own.count("ended") == 2
    assert own.count("continued") == 1


async def test_events_of_an_unknown_id_are_refused_in_words(client: Client, fresh: str) -> None:
    with pytest.raises(BadInput, match=f"no delivery or backlog {fresh}"):
        await read_all(client, fresh)


async def test_following_ends_with_the_error_when_the_server_is_gone(tmp_path: Path) -> None:
    home = Home(tmp_path)
    server = await ensure_server(home, say=lambda _: None)
    try:
        client = await Client.connect(server.address, namespace=server.namespace, plugins=[perdure_plugin()])
        await client.start_workflow(BACKLOG_WORKFLOW, night({"id": "a"}), id="night", task_queue="nobody")
        events = backlog_events(client, "night", follow=True)
        assert (await anext(events)).type == "started"
        following = asyncio.create_task(anext(events))
    finally:
        await asyncio.to_thread(send, server.pid, signal.SIGKILL)
        await stop_server(home)  # the Web UI's proxy with it
    async with asyncio.timeout(patient(60)):
        with pytest.raises(RPCError):
            await following
