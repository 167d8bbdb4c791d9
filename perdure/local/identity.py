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
from perdure.local.ports import ServerPorts
from perdure.local.runtimes import quiet_runtime
from perdure.models.limits import SERVER_ANSWER_S
from perdure.models.visibility import SEARCH_ATTRIBUTES

RETENTION = timedelta(days=90)
"""The time the embedded server keeps finished deliveries; its own default of 24 h would make their pages vanish."""


NAMESPACE = "default"
"""The namespace of deliveries: the one that every Temporal client uses unless told otherwise."""


class ServerRecord(BaseModel):
    """Content of server.json: written by process `pid` before it became the server, true while its lock is held.

    address    of the server's gRPC port
    ui         URL of the Web UI for people
    ui_behind  address at which the Web UI listens behind its proxy (perdure.local.web_ui_proxy); empty: without a
    proxy, at `ui`
    temporal   version of the server
    """

    pid: int
    address: str
    ui: str
    ui_behind: str = ""
    temporal: str
    home_id: str
    namespace: str = NAMESPACE

    @property
    def ports(self) -> ServerPorts:
        return ServerPorts(int(self.address.rpartition(":")[2]), int(self.ui.rpartition(":")[2]))


def read_server_record(places: Places, *, last: bool = False) -> ServerRecord | None:
    """Return the running server's record, with `last` the previous one's; None when it is absent or unreadable."""
    try:
        return ServerRecord.model_validate_json((places.server_last if last else places.server_record).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def identity_namespace(home: Home) -> str:
    """Return the name of the empty namespace that a server of this home has from its first moment: its identity."""
    return f"home-{home.host_id()}"


async def is_own_server_ready(record: ServerRecord, home: Home) -> bool:
    """Return whether the recorded server answers in SERVER_ANSWER_S seconds, is this home's, and takes deliveries.

    Sets the retention of finished deliveries where it is another. Only a running server can be told that, so whoever
    asks first sets it: a starter that was killed before costs nothing.
    """
    try:
        async with asyncio.timeout(SERVER_ANSWER_S):
            client = await Client.connect(record.address, runtime=quiet_runtime())
            service = client.workflow_service
            await service.describe_namespace(DescribeNamespaceRequest(namespace=identity_namespace(home)))
            namespace = await service.describe_namespace(DescribeNamespaceRequest(namespace=record.namespace))
            attributes = await client.operator_service.list_search_attributes(
                ListSearchAttributesRequest(namespace=record.namespace)
            )
            if not SEARCH_ATTRIBUTES.keys() <= set(attributes.custom_attributes):
                return False
            if namespace.config.workflow_execution_retention_ttl.ToTimedelta() != RETENTION:
                retention = Duration()
                retention.FromTimedelta(RETENTION)
                config = NamespaceConfig(workflow_execution_retention_ttl=retention)
                await service.update_namespace(UpdateNamespaceRequest(namespace=record.namespace, config=config))
    except (RPCError, RuntimeError, TimeoutError):  # not listening yet, not serving yet, or somebody else's
        return False
    return True
