"""The identity of our server: what it left on disk, and what it must answer. An open port proves nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel, ValidationError
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.local.places import Places
from perdure.local.ports import Pair
from perdure.local.runtimes import quiet
from perdure.models.limits import SERVER_ANSWER_S
from perdure.models.visibility import SEARCH_ATTRIBUTES

RETENTION = timedelta(days=90)
"""Of finished deliveries in the embedded server; its own default of 24 h makes pages vanish."""


NAMESPACE = "default"
"""The namespace of deliveries: what every Temporal client uses when it is not told otherwise."""


class ServerRecord(BaseModel):
    """server.json: written by the process `pid` before it became the server, true while the server's lock is held.

    ui         where the Web UI is for people
    ui_behind  where it listens itself (perdure.local.front stands before it); empty: there, nothing stands before it
    """

    pid: int
    address: str
    ui: str
    ui_behind: str = ""
    temporal: str
    home_id: str
    namespace: str = NAMESPACE

    @property
    def ports(self) -> Pair:
        return Pair(int(self.address.rpartition(":")[2]), int(self.ui.rpartition(":")[2]))


def read_record(places: Places, *, last: bool = False) -> ServerRecord | None:
    """The record of the running server, or of the last one. None when it is absent or unreadable."""
    try:
        return ServerRecord.model_validate_json((places.server_last if last else places.server_record).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def namespace_of(home: Home) -> str:
    """An empty namespace that a server of this home has from its first moment: its identity."""
    return f"home-{home.host_id()}"


async def answers_as(record: ServerRecord, home: Home) -> bool:
    """True where the server of a record answers, is this home's, and is ready for deliveries.

    The first to ask sets what only a running server can be told, so that a starter killed in between costs nothing.
    """
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            client = await Client.connect(record.address, runtime=quiet())
            service = client.workflow_service
            await service.describe_namespace(DescribeNamespaceRequest(namespace=namespace_of(home)))
            described = await service.describe_namespace(DescribeNamespaceRequest(namespace=record.namespace))
            listed = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=record.namespace)
            )
            if not SEARCH_ATTRIBUTES.keys() <= set(listed.custom_attributes):
                return False
            if described.config.workflow_execution_retention_ttl.ToTimedelta() != RETENTION:
                retention = Duration()
                retention.FromTimedelta(RETENTION)
                config = NamespaceConfig(workflow_execution_retention_ttl=retention)
                await service.update_namespace(UpdateNamespaceRequest(namespace=record.namespace, config=config))
    except (RPCError, RuntimeError, TimeoutError):  # not listening yet, not serving yet, or somebody else's
        return False
    return True
