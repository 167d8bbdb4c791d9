"""What anybody with a Temporal client has written (requests, memos, signals) is read as foreign data: whoever looks at
deliveries gets what there is, or one line that says what is wrong."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.service import RPCError

from perdure.client import Perdure
from perdure.client.delivery.turns import turns
from perdure.client.history.events import _list_run_ids, stream_events
from perdure.client.server.view import ended_run_id, exact_id_query
from perdure.models.errors import PerdureError
from perdure.models.events import Event
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from perdure.render.comparison import load_comparison
from perdure.render.report.gather import gather_report

STRANGE = RawValue(Payload(metadata={"encoding": b"binary/strange"}, data=b"\x00"))
BROKEN = RawValue(Payload(metadata={"encoding": b"json/plain"}, data=b'{"a": '))

REQUESTS: dict[str, list[Any]] = {
    "nothing": [],
    "a list": [[1]],
    "resume is a list": [{"repository": "/r", "request": "x", "resume": [1]}],
    "resume of another shape": [
        {"repository": "/r", "request": "x", "resume": {"run_id": [1], "state": {"steps": 3, "prepared": [2]}}}
    ],
    "fields of other types": [{"repository": 5, "request": ["x"], "landing": "b", "labels": 3, "phases": {"a": 1}}],
    "a backlog's": [{"repository": "/r", "items": {"a": 1}}, {"items": [3], "landing": 5}],
    "items of other types": [{"repository": "/r", "items": [None, 3, {"id": {}}]}, [1]],
    "unknown encoding": [STRANGE],
    "broken": [BROKEN, BROKEN],
}
MEMOS: list[dict[str, Any]] = [
    {},
    {"resume": [1], "asked": [2]},
    {"resume": "x", "asked": "y"},
    {"resume": {"run_id": 1, "state": 5}, "asked": {"gate": 7, "of": None, "options": 3}},
    {"resume": {"run_id": "r", "state": {"status": "strange", "steps": 5}}, "asked": {}},
    {"resume": STRANGE, "asked": BROKEN},
]
SIGNALS: list[tuple[str, list[Any]]] = [
    ("say", [[1]]),
    ("decide", [{"update": {"a": 1}, "said": 4}]),
    ("rewind", [{"from_run": {}, "to": 3}]),
    ("hold", [{"note": {"a": []}}, 2]),
    ("item_ended", [{"item": 4, "commit": {}}]),
    ("landing_over", [{"item": "a", "commit": [1]}]),
    ("strange", [STRANGE]),
    ("say", [BROKEN]),
]
Read = Callable[[Perdure, str], Awaitable[object]]
READS: dict[str, Read] = {
    "describe": lambda perdure, id: perdure.delivery(id).describe(),
    "progress": lambda perdure, id: perdure.delivery(id).progress(once=True),
    "past": lambda perdure, id: perdure.delivery(id).past(),
    "turns": lambda perdure, id: turns(perdure.delivery(id)),
    "request": lambda perdure, id: perdure.delivery(id).request(),
    "unread": lambda perdure, id: perdure.delivery(id).unread_messages(),
    "events": lambda perdure, id: read_events(perdure, id),
    "report": lambda perdure, id: gather_report(perdure.delivery(id), passive=True),
    "comparison": lambda perdure, id: load_comparison(perdure.delivery(id), perdure.delivery(id)),
    "backlog describe": lambda perdure, id: perdure.backlog(id).describe(),
    "backlog progress": lambda perdure, id: perdure.backlog(id).progress(once=True),
    "backlog past": lambda perdure, id: perdure.backlog(id).past(),
}


async def read_events(perdure: Perdure, id: str) -> list[Event]:
    return [event async for event in stream_events(perdure.client, id)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["Delivery", "Backlog"])
async def test_whatever_a_client_has_written_is_read(server: str, kind: str) -> None:
    """Without a worker: half of them run, half have ended."""
    client = await Client.connect(server, plugins=[perdure_plugin()])
    perdure, requests, mark, at_once = Perdure(client), dict[str, str](), uuid.uuid4().hex[:8], asyncio.Semaphore(100)

    async def problem(id: str, name: str) -> str:
        try:
            async with at_once:
                await READS[name](perdure, id)
        except (PerdureError, RPCError):  # one line for people
            return ""
        except Exception as error:  # noqa: BLE001
            return f"{name} of {requests[id]}: {error!r}"
        return ""

    for number, args in enumerate([*REQUESTS.values(), *REQUESTS.values()]):
        id, memo = f"odd-{mark}-{number}", MEMOS[number % len(MEMOS)]
        requests[id] = f"{args}, {memo}"
        handle = await client.start_workflow(kind, args=args, id=id, task_queue=f"q-{mark}", memo=memo)
        for name, sent in SIGNALS:
            await handle.signal(name, args=sent)
        if number % 2:
            await handle.terminate("by a test")
    try:
        found = await asyncio.gather(*(problem(id, name) for id in requests for name in READS))
        assert [problem for problem in found if problem] == []
        assert await perdure.list()
    finally:
        for id in list(requests)[::2]:
            await client.get_workflow_handle(id).terminate("the test is over")


@pytest.mark.parametrize("mark", ["", "' OR WorkflowType = 'Delivery"])
async def test_events_are_of_the_run_on_our_queue_while_a_stranger_runs_one_of_its_id(server: str, mark: str) -> None:
    """Whatever is in the id. Without a worker, too."""
    client = await Client.connect(server, plugins=[perdure_plugin()])
    id = f"calc-{uuid.uuid4().hex[:8]}{mark}"
    ours = await client.start_workflow("Delivery", args=[], id=id, task_queue=TASK_QUEUE)
    await ours.terminate("by a test")
    theirs = await client.start_workflow("Delivery", args=[], id=id, task_queue="a-queue-of-their-own")
    try:
        while len([run async for run in client.list_workflows(exact_id_query(id))]) < 2:
            await asyncio.sleep(0.05)
        assert await _list_run_ids(client, id) == [ours.first_execution_run_id]
        assert await ended_run_id(client, id) == ours.first_execution_run_id
    finally:
        await theirs.terminate("the test is over")
