"""Real Temporal servers: one that the homes of a process share, and one of its own for a directory's tests."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import CountWorkflowExecutionsRequest, RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.local.identity import NAMESPACE, RETENTION, ServerRecord, identity_namespace
from perdure.local.places import Places, temporal_binary
from perdure.local.server import ServerInfo, ensure_server, stop_server
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES, TITLE
from perdure.plugin import perdure_plugin
from tests.processes import end_with_this_process, send
from tests.waiting import patient, until


def cluster() -> str:
    """The address of a real cluster (`make cluster-test`), where homes share that instead of an embedded server."""
    return os.environ.get("CLUSTER", "")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    home = Home(tmp_path_factory.mktemp("server"))
    yield start_server(home).address
    asyncio.run(stop_server(home))


def start_server(home: Home) -> ServerInfo:
    """Start a server of this home that ends with this process, however that ends."""
    os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "1"
    server = asyncio.run(ensure_server(home, say=lambda _: None))
    end_with_this_process(server.pid)
    return server


@asynccontextmanager
async def joined(home: Home) -> AsyncIterator[None]:
    """Meanwhile the server that this process has for all is this home's own: with a namespace there, a lock and a
    record, everything finds it as if the home had started it. A server takes 0.8 s of a processor, this 0.05.
    """
    home.make_private()
    places, server, namespace = Places(home), await asyncio.to_thread(_shared), identity_namespace(home)
    await _register(await Client.connect(server.address), namespace)
    lock = try_lock(places.server_lock)
    assert lock is not None, "this home has a server"
    record = ServerRecord(
        pid=server.pid,
        address=server.address,
        ui=server.ui_url,
        temporal="",
        home_id=home.host_id(),
        namespace=namespace,
    )
    places.server_record.write_text(record.model_dump_json())
    try:
        yield
    finally:
        places.server_record.unlink()
        os.close(lock)


@contextmanager
def bare_server(log: Path, *settings: str) -> Iterator[str]:
    """A server that Perdure has not set up, with these settings of its dynamic configuration; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(temporal_binary()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    command += [f"--dynamic-config-value={setting}" for setting in settings]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + patient(60)
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        asyncio.run(_answers(f"127.0.0.1:{port}"))
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(patient(20))


async def _answers(address: str) -> None:
    async with asyncio.timeout(patient(60)):
        while True:
            try:
                await (await Client.connect(address)).count_workflows()
                return
            except Exception:  # noqa: BLE001 - its namespace takes it a moment
                await asyncio.sleep(0.1)


async def apart() -> Client:
    """A client of that server in a new namespace of its own."""
    server, namespace = await asyncio.to_thread(_shared), f"apart-{uuid.uuid4().hex[:12]}"
    await _register(await Client.connect(server.address), namespace)
    return await Client.connect(server.address, namespace=namespace, plugins=[perdure_plugin()])


def _shared() -> ServerInfo:
    if address := cluster():
        return ServerInfo(address, ui_url="", namespace=NAMESPACE, pid=os.getpid(), started=False)
    return _embedded()


@cache
def _embedded() -> ServerInfo:
    root = Path(tempfile.mkdtemp(prefix="perdure-server-"))
    server = start_server(Home(root))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    atexit.register(send, server.pid, signal.SIGKILL)
    return server


async def _register(client: Client, name: str) -> None:
    retention = Duration()
    retention.FromTimedelta(RETENTION)
    await client.workflow_service.register_namespace(
        RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
    )
    if cluster():  # where each role learns of a namespace, and of its attributes, by itself
        await until(lambda: _is_known(client, name))
    named = {"Keyword": "KEYWORD", "KeywordList": "KEYWORD_LIST", "Double": "DOUBLE"}
    kinds = {
        key: IndexedValueType.Value(f"INDEXED_VALUE_TYPE_{named[kind]}")
        for key, kind in {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES}.items()
    }
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=name, search_attributes=kinds)
    )
    if cluster():
        await until(lambda: _lists(client, name))


async def _is_known(client: Client, name: str) -> bool:
    with suppress(RPCError):
        await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=name))
        return True
    return False


async def _lists(client: Client, name: str) -> bool:
    """Whether a list of this namespace takes the attribute that was added last."""
    with suppress(RPCError):
        query = f"{TITLE} = 'none'"
        await client.workflow_service.count_workflow_executions(
            CountWorkflowExecutionsRequest(namespace=name, query=query)
        )
        return True
    return False
