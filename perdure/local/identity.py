"""The identity of a home's embedded Temporal server: its ports, what it left on disk, and what it must answer. An open
port proves nothing. Also finds free ports, and has the SDK's runtimes. Used by the other modules of `perdure.local` and
by the demo; `perdure.local.server` starts and stops the server."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from pydantic import BaseModel, ValidationError
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError

from perdure.adapters.system.home import Home
from perdure.local.places import Places
from perdure.models.errors import BadInput
from perdure.models.ids import SEARCH_ATTRIBUTES
from perdure.models.limits import SERVER_ANSWER_S, WORKER_REPORT_INTERVAL

HOST = "127.0.0.1"


@dataclass(frozen=True)
class ServerPorts:
    """The ports of one server: `grpc` for clients and workers, `ui` for the Web UI."""

    grpc: int
    ui: int


DEFAULT_PORTS = ServerPorts(7233, 8233)
"""Temporal's own ports, which every other Temporal client tries by itself."""


def choose_ports(grpc: int | None, ui: int | None, last: ServerPorts | None) -> ServerPorts:
    """Choose a server's ports: those requested, else the last ones of this home, else Temporal's own, else any free.

    `grpc` and `ui` are the requested ports, None: not requested; when only one is requested, the other is any free one.
    The last ones come first because workers and watchers that survived the server look for it there. Raises BadInput
    when a requested port is taken or both are the same.
    """
    check_ports_free(grpc, ui)
    if grpc is None and ui is None:
        for pair in filter(None, (last, DEFAULT_PORTS)):
            if is_port_free(pair.grpc) and is_port_free(pair.ui):
                return pair
    free = find_free_ports()
    return ServerPorts(grpc or free.grpc, ui or free.ui)


def check_ports_free(grpc: int | None, ui: int | None) -> None:
    """Raise BadInput when a requested port is taken, naming the program that has it, or both are the same."""
    if grpc is not None and grpc == ui:
        raise BadInput(f"port {grpc} was given to both", where="--port and --ui-port", fix="leave one of them out")
    for flag, port in (("--port", grpc), ("--ui-port", ui)):
        if port is not None and not is_port_free(port):
            owner = find_port_owner(port)
            raise BadInput(
                f"port {port} is taken" + (f" by {owner}" if owner else ""),
                where=flag,
                fix=f"leave {flag} out for a free port, or name another one",
            )


def is_port_free(port: int) -> bool:
    """Return whether a server could listen on this port of 127.0.0.1 now; a port in TIME_WAIT counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does: TIME_WAIT is not taken
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def find_free_ports() -> ServerPorts:
    """Find two different ports that are free now."""
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, 0))
        second.bind((HOST, 0))
        return ServerPorts(first.getsockname()[1], second.getsockname()[1])


def choose_hidden_address() -> str:
    """Choose a random address of 127.0.0.0/8 with a port that is free there, `host:port`, which nobody guesses.

    Returns an empty string where there is only 127.0.0.1 (other systems than Linux).
    """
    if sys.platform != "linux":
        return ""
    host = ".".join(["127", *(str(1 + secrets.randbelow(254)) for _ in range(3))])
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


def find_port_owner(port: int) -> str:
    """Find the process that listens on a port, such as "python3 (pid 4711)".

    Empty when nobody listens, or the kernel does not show who: other users' processes, or no /proc.
    """
    inodes = _listening_inodes(port)
    if not inodes:
        return ""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd) in inodes for fd in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
        except OSError:
            continue
    return ""


def _listening_inodes(port: int) -> set[str]:
    """Return the sockets that listen on a port, as `socket:[inode]`; empty where there is no /proc/net."""
    listen_state, inodes = "0A", set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == listen_state and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes


@cache
def worker_runtime() -> Runtime:
    """Return the runtime of workers: the SDK's own, with WORKER_REPORT_INTERVAL between their reports to the server."""
    return Runtime(telemetry=TelemetryConfig(), worker_heartbeat_interval=WORKER_REPORT_INTERVAL)


@cache
def quiet_runtime() -> Runtime:
    """Return the runtime of everything but workers, without the SDK's log, which would be on a person's screen.

    What fails for good is raised as an error anyway.
    """
    return Runtime(telemetry=TelemetryConfig(logging=None))


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
    """Return the record of this home's server, with `last` that of the server before; None when it is absent or
    unreadable.

    Whether that server still runs is not checked.
    """
    try:
        return ServerRecord.model_validate_json((places.server_last if last else places.server_record).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def identity_namespace(home: Home) -> str:
    """Return the name of the empty namespace that a server of this home has from its first moment: its identity."""
    return f"home-{home.host_id()}"


async def is_own_server_ready(record: ServerRecord, home: Home) -> bool:
    """Return whether the recorded server answers in SERVER_ANSWER_S seconds, is this home's, and takes deliveries.

    It takes deliveries once it has their namespace and its search attributes. Also sets how long the server keeps
    finished deliveries (RETENTION) when it is another time: only a running server can be told that, so whoever asks
    first sets it.
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
