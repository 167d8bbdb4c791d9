"""Titles of deliveries and backlogs in the server's lists."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from backlog_fixtures import Branch, backlog, night
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.converter import PayloadCodec
from temporalio.worker import Replayer

from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.client import ListEntry, Perdure
from perdure.client.schedules import Schedules
from perdure.client.submit import start_workflow
from perdure.models.config.host import HostConfig
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.ids import MORE_ATTRIBUTES, TITLE
from perdure.models.limits import KEYWORD_BYTES
from perdure.models.phases import Phase
from perdure.models.webui.captions import fit_title
from perdure.plugin import perdure_plugin
from tests.deliveries import PLANNED, Script, playing, title_at_start
from tests.waiting import until
from workflows import WORKFLOWS

pytestmark = pytest.mark.timeout(60)
REQUEST = {**PLANNED, "request": "\n  Make it\tsub\u202etract \n\nAs in the book."}


async def listed(client: Client, id: str, title: str) -> ListEntry:
    """The delivery's entry once it has this title: lists are a moment behind."""

    async def entry() -> ListEntry | None:
        found = [one for one in await Perdure(client).list(query=f"WorkflowId = '{id}'") if one.title == title]
        return found[0] if found else None

    return await until(entry)


async def test_a_delivery_is_listed_by_its_request_from_the_start_and_by_its_plan_once_there_is_one(
    client: Client, fresh: str
) -> None:
    await start_workflow(client, fresh, REQUEST, WorkflowIDReusePolicy.REJECT_DUPLICATE)  # no worker is there
    await listed(client, fresh, "Make it subtract")
    script = Script(Phase.PLAN, attributes=True, extra_attributes=tuple(MORE_ATTRIBUTES), gates=("plan",))
    async with playing(client, script):
        await listed(client, fresh, "Add sub")  # as its plan says, which waits to be approved
        assert (await Perdure(client).delivery(fresh).describe()).title == "Add sub"


@pytest.mark.parametrize("title", ["Ж" * 10_000, "界" * 500, "🙂" * 90, "x" * 255 + "\ud800", "", "‮⁦"])
def test_a_title_of_any_length_fits_the_narrowest_store(title: str) -> None:
    shown = fit_title(title)
    assert len(shown.encode()) <= KEYWORD_BYTES
    assert shown.isprintable()
    assert len(title) < 100 or shown.endswith("…")


async def bare_client(client: Client, namespace: str) -> Client:
    """A client of a new namespace that has none of our search attributes."""
    retention = Duration(seconds=86_400)
    plain = RegisterNamespaceRequest(namespace=namespace, workflow_execution_retention_period=retention)
    await client.workflow_service.register_namespace(plain)
    return await Client.connect(
        client.service_client.config.target_host, namespace=namespace, plugins=[perdure_plugin()]
    )


async def test_a_namespace_without_titles_takes_deliveries_all_the_same(client: Client, fresh: str) -> None:
    bare = await bare_client(client, fresh)
    async with playing(bare, Script(Phase.PLAN)):
        submitted = await Perdure(bare).submit(
            DeliveryRequest.model_validate(PLANNED), id=fresh, patience=timedelta(seconds=30)
        )
        assert submitted.accepted
        assert (await submitted.delivery.result()).status == "completed"
    await start_workflow(bare, f"{fresh}-2", PLANNED, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    assert (await Perdure(bare).delivery(f"{fresh}-2").describe()).title == "Add sub"  # of its summary


async def test_a_namespace_without_titles_takes_schedules_all_the_same(client: Client, fresh: str) -> None:
    bare = await bare_client(client, fresh)
    request = DeliveryRequest.model_validate(PLANNED)
    assert await Perdure(bare).schedules.add(request, "sub", datetime(2087, 1, 1, tzinfo=UTC), "2087-01-01 00:00 UTC")
    assert [one.state for one in await until(Perdure(bare).schedules.list)] == ["waits"]


async def test_what_a_schedule_begins_has_its_title_before_a_worker_looks_at_it(client: Client, fresh: str) -> None:
    request = DeliveryRequest.model_validate(REQUEST)
    assert await Perdure(client).schedules.add(request, fresh, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01 00:00 UTC")

    async def begun() -> str:
        return (await Perdure(client).schedules.get(fresh)).last

    assert await title_at_start(client, await until(begun)) == "Make it subtract"


async def test_what_a_backlog_begins_has_its_title_before_it_is_prepared(client: Client, fresh: str) -> None:
    branch = Branch(schema="s", export="e")
    branch.lists = True
    items = ({"id": "schema", "request": "Add a schema\n\nAs in the book."}, {"id": "export", "issue": 14})
    async with playing(client, branch):
        handle = await backlog(client, fresh, night(*items))
        await handle.result()
    assert await title_at_start(client, f"{fresh}/schema") == "Add a schema"
    assert await title_at_start(client, f"{fresh}/export") == "#14 Do export"
    history = await handle.fetch_history()
    await Replayer(workflows=WORKFLOWS, plugins=[perdure_plugin()]).replay_workflow(history)


class Reversing(PayloadCodec):
    """Stands for encryption: whoever reads the server's database sees none of the words."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(data=payload.SerializeToString()[::-1]) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(payload.data[::-1]) for payload in payloads]


async def test_where_a_codec_encrypts_requests_no_title_stands_beside_them_in_clear(
    client: Client, tmp_path: Path, fresh: str
) -> None:
    converter = dataclasses.replace(client.data_converter, payload_codec=Reversing())
    encrypting = Client(**{**client.config(), "data_converter": converter})
    host = Host(Home(tmp_path / "home"), HostConfig(), None)
    await host.load_search_attributes(client)
    assert TITLE in host.extra_search_attributes
    await host.load_search_attributes(encrypting)
    assert TITLE not in host.extra_search_attributes
    await host.close()
    await start_workflow(encrypting, fresh, REQUEST, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    execution = await client.get_workflow_handle(fresh).describe()
    assert "tract" not in str(execution.raw_description)
    request = DeliveryRequest.model_validate(REQUEST)
    assert await Schedules(encrypting, None).add(request, fresh, datetime(2087, 1, 1, tzinfo=UTC), "2087-01-01")
    assert "tract" not in str((await client.get_schedule_handle(fresh).describe()).raw_description.schedule.action)
    assert (await Perdure(encrypting).delivery(fresh).describe()).title == "Make it subtract As in the book.", "decoded"
