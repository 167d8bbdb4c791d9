"""Titles of deliveries and backlogs in the server's lists."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy

from perdure.client import ListEntry, Perdure
from perdure.client.submit import start_workflow
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.ids import MORE_ATTRIBUTES
from perdure.models.limits import KEYWORD_BYTES
from perdure.models.phases import Phase
from perdure.models.webui.captions import fit_title
from perdure.plugin import perdure_plugin
from tests.deliveries import PLANNED, Script, playing
from tests.waiting import until

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


async def test_a_namespace_without_titles_takes_deliveries_all_the_same(client: Client, fresh: str) -> None:
    retention = Duration(seconds=86_400)
    plain = RegisterNamespaceRequest(namespace=fresh, workflow_execution_retention_period=retention)
    await client.workflow_service.register_namespace(plain)
    bare = await Client.connect(client.service_client.config.target_host, namespace=fresh, plugins=[perdure_plugin()])
    async with playing(bare, Script(Phase.PLAN)):
        submitted = await Perdure(bare).submit(
            DeliveryRequest.model_validate(PLANNED), id=fresh, patience=timedelta(seconds=30)
        )
        assert submitted.accepted
        assert (await submitted.delivery.result()).status == "completed"
    await start_workflow(bare, f"{fresh}-2", PLANNED, WorkflowIDReusePolicy.REJECT_DUPLICATE)
    assert (await Perdure(bare).delivery(f"{fresh}-2").describe()).title == "Add sub"  # of its summary
