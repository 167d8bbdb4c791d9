"""The embedded server: one per home, its database, its ports, found again, stopped, brought back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from perdure.adapters.system.files import is_locked, try_lock
from perdure.adapters.system.home import Home
from perdure.local import server
from perdure.local.identity import (
    DEFAULT_PORTS,
    RETENTION,
    ServerPorts,
    check_ports_free,
    choose_ports,
    find_free_ports,
    find_port_owner,
    is_own_server_ready,
    is_port_free,
    read_server_record,
)
from perdure.local.places import Places
from perdure.local.processes import holds_lock, signal_lock_holder
from perdure.local.server import ensure_server, find_server, stop_server
from perdure.models.errors import BadInput, TemporalUnreachable
from perdure.models.ids import MORE_ATTRIBUTES, SEARCH_ATTRIBUTES
from tests.engine import until

STARTER = """
import asyncio, sys
from perdure.adapters.system.home import Home
from perdure.local.server import ensure_server
info = asyncio.run(ensure_server(Home.find(), say=lambda line: None))
print(info.pid, info.started, flush=True)
"""


def quiet(_: str) -> None: ...


def starter() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)


def servers_on(home: Home) -> list[int]:
    database = Places(home).database
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone since it was listed
            line = process.cmdline()
            if "start-dev" in line and database.name in line and process.cwd() == str(database.parent):
                found.append(process.pid)
    return found


@pytest.mark.story
async def test_two_starters_at_once_end_with_one_server_that_outlives_them(home: Home) -> None:
    starters = [starter(), starter()]
    said = [(await asyncio.to_thread(process.communicate, timeout=60))[0].split() for process in starters]
    pids = {int(pid) for pid, _ in said}
    assert sorted(started for _, started in said) == ["False", "True"]
    assert servers_on(home) == list(pids)
    found = await find_server(home)
    assert found is not None
    assert found.pid == pids.pop()


@pytest.mark.story
async def test_the_server_itself_holds_the_lock(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    places = Places(home)
    assert holds_lock(info.pid, places.server_lock)
    assert not holds_lock(os.getpid(), places.server_lock)
    os.kill(info.pid, signal.SIGKILL)
    await until(lambda: not is_locked(places.server_lock), 10)
    assert await find_server(home) is None


@pytest.mark.story
async def test_a_killed_server_comes_back_at_its_address_with_its_workflows(home: Home) -> None:
    first = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    client = await Client.connect(first.address)
    await client.start_workflow("Delivery", id="kept", task_queue=f"nobody-{uuid.uuid4()}")
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: not is_locked(Places(home).server_lock), 10)
    second = await ensure_server(home, say=quiet)
    assert second.started
    assert (second.address, second.ui_url) == (first.address, first.ui_url)
    assert second.pid != first.pid
    again = await Client.connect(second.address)
    assert (await again.get_workflow_handle("kept").describe()).id == "kept"


@pytest.mark.story
async def test_a_stopped_server_is_gone_and_a_second_stop_finds_nothing(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    assert await stop_server(home)
    assert servers_on(home) == []
    assert not signal_lock_holder(info.pid, Places(home).server_lock, signal.SIGKILL)
    assert not Places(home).server_record.exists()
    assert not await stop_server(home)


@pytest.mark.story
async def test_a_server_that_ignores_everything_but_sigkill_is_stopped_by_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.local.server.SERVER_STOP_S", 0.5)
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    os.kill(info.pid, signal.SIGSTOP)
    assert await stop_server(home)
    assert servers_on(home) == []


@pytest.mark.story
async def test_a_server_is_ready_for_deliveries_when_it_is_handed_out(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    client = await Client.connect(info.address, namespace=info.namespace)
    described = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=info.namespace))
    assert described.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION
    names = " AND ".join(f"{name} IS NULL" for name in {**SEARCH_ATTRIBUTES, **MORE_ATTRIBUTES})
    assert (await client.count_workflows(names)).count == 0


@pytest.mark.story
async def test_the_server_gets_no_secret_of_its_starter(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    environment = psutil.Process(info.pid).environ()
    assert "sk-secret" not in environment.values()
    assert set(environment) <= {"PATH", "HOME", "USER", "TMPDIR", "LANG", "TZ", "GOGC", "GOMEMLIMIT"}


@pytest.mark.story
async def test_another_homes_server_at_our_address_is_not_ours(home: Home, tmp_path: Path) -> None:
    theirs = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    ours = Home(tmp_path / "other")
    record = read_server_record(Places(home))
    assert record is not None
    assert record.address == theirs.address
    assert await is_own_server_ready(record, home)
    assert not await is_own_server_ready(record, ours)


@pytest.mark.story
async def test_a_record_without_a_lock_is_no_server(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    copy = Home(home.root.with_name("copy"))
    copy.root.mkdir()
    for name in ("server.json", "host-id"):
        (copy.root / name).write_bytes((home.root / name).read_bytes())
    assert await find_server(copy) is None
    assert not await stop_server(copy)
    assert psutil.pid_exists(info.pid)


@pytest.mark.story
async def test_a_lock_whose_holder_does_not_answer_is_unreachable_not_absent(home: Home) -> None:
    lock = try_lock(Places(home).server_lock)
    assert lock is not None
    try:
        with pytest.raises(TemporalUnreachable) as error:
            await find_server(home, wait=0.2)
    finally:
        os.close(lock)
    assert "perdure down" in error.value.fix


@pytest.mark.story
async def test_a_taken_port_is_refused_and_its_owner_named(home: Home) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(BadInput) as error:
            await ensure_server(home, port=port, say=quiet)
    assert f"port {port} is taken by" in error.value.what
    assert f"pid {os.getpid()}" in error.value.what
    assert not is_locked(Places(home).server_lock)


@pytest.mark.story
async def test_a_starter_killed_half_way_leaves_a_server_that_the_next_one_adopts(home: Home) -> None:
    places = Places(home)
    process = starter()
    await until(places.server_record.exists, 30)
    process.kill()
    await asyncio.to_thread(process.communicate, timeout=10)
    info = await ensure_server(home, say=quiet)
    assert servers_on(home) == [info.pid]
    assert json.loads(places.server_record.read_text())["pid"] == info.pid


@pytest.mark.story
async def test_homes_started_at_the_same_moment_get_servers_and_ports_of_their_own(home: Home) -> None:
    homes = [Home(home.root / name) for name in ("a", "b", "c")]
    servers = await asyncio.gather(*(ensure_server(one, say=quiet) for one in homes))
    assert len({server.address for server in servers}) == 3
    assert [await find_server(one) for one in homes] == [replace(server, started=False) for server in servers]


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_s_owner_is_named(taken: int) -> None:
    assert not is_port_free(taken)
    assert find_port_owner(taken).endswith(f"(pid {os.getpid()})")


def test_a_free_port_has_no_owner() -> None:
    port = find_free_ports().grpc
    assert is_port_free(port)
    assert find_port_owner(port) == ""


def test_a_home_gets_the_ports_it_had_before(taken: int) -> None:
    last = find_free_ports()
    assert choose_ports(None, None, last) == last


def test_two_free_ports_are_two() -> None:
    pair = find_free_ports()
    assert pair.grpc != pair.ui
    assert is_port_free(pair.grpc)
    assert is_port_free(pair.ui)


def test_half_a_pair_taken_is_a_pair_taken(taken: int) -> None:
    last = ServerPorts(find_free_ports().grpc, taken)
    chosen = choose_ports(None, None, last)
    assert chosen != last
    assert chosen == DEFAULT_PORTS or (is_port_free(chosen.grpc) and is_port_free(chosen.ui))


@pytest.mark.parametrize("flag", ["--port", "--ui-port"])
def test_a_port_that_was_asked_for_is_never_replaced(taken: int, flag: str) -> None:
    with pytest.raises(BadInput) as error:
        choose_ports(taken if flag == "--port" else None, taken if flag == "--ui-port" else None, None)
    assert error.value.where == flag
    assert choose_ports(port := find_free_ports().grpc, None, None).grpc == port


def test_one_port_for_both_is_refused() -> None:
    with pytest.raises(BadInput, match="given to both"):
        check_ports_free(15000, 15000)


@pytest.fixture
def places(home: Home) -> Places:
    home.root.mkdir()
    return Places(home)


def fill(places: Places, rows: int = 1000) -> None:
    with closing(sqlite3.connect(places.database)) as connection, connection:
        connection.execute("CREATE TABLE t (x TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 200,)] * rows)


async def test_a_file_that_is_no_database_is_refused_with_the_way_out_and_what_is_lost(home: Home) -> None:
    home.root.mkdir()
    places = Places(home)
    places.database.write_bytes(os.urandom(8192))
    before = sorted(home.root.iterdir())
    with pytest.raises(BadInput) as error:
        await ensure_server(home, say=lambda _: None)
    assert "damaged" in error.value.what
    assert "mv " in error.value.fix
    assert "lost are the list and the history" in error.value.fix
    assert not is_locked(places.server_lock)
    assert set(home.root.iterdir()) - set(before) <= {places.server_lock}


def test_a_page_overwritten_in_the_middle_is_found(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.9.1")
    with open(places.database, "r+b") as file:
        file.seek(4096)
        file.write(os.urandom(4096 * 3))
    with pytest.raises(BadInput, match="damaged"):
        server.prepare_database(places, "1.9.1")


def test_the_way_out_that_the_message_names_works(places: Places) -> None:
    places.database.write_bytes(b"nonsense")
    with pytest.raises(BadInput) as error:
        server.prepare_database(places, "1.9.1")
    command = error.value.fix.partition(" starts with")[0]
    assert os.system(command) == 0
    server.prepare_database(places, "1.9.1")


def test_an_empty_file_is_what_a_server_killed_at_its_first_moment_leaves(places: Places) -> None:
    places.database.touch()
    server.prepare_database(places, "1.9.1")


def empty_out(database: Path, megabytes: int) -> int:
    """Fill a database, as histories do, delete nearly all as their retention does, and return its size."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=wal")
        with connection:
            connection.execute("CREATE TABLE histories (data BLOB)")
            connection.executemany(
                "INSERT INTO histories VALUES (?)", ((os.urandom(1024**2),) for _ in range(megabytes))
            )
        with connection:
            connection.execute("DELETE FROM histories WHERE rowid > 1")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return database.stat().st_size


def test_a_database_that_is_more_than_half_empty_is_shrunk_at_a_start(places: Places) -> None:
    fill(places, rows=3)
    assert empty_out(places.database, 20) > 20 * 1024**2
    server.prepare_database(places, "1.9.1")
    assert sum(path.stat().st_size for path in places.database_files()) < 3 * 1024**2
    with closing(sqlite3.connect(places.database)) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (3,)
        assert connection.execute("SELECT count(*) FROM histories").fetchone() == (1,)


def test_a_database_with_little_to_give_back_is_not_written_anew(places: Places) -> None:
    size = empty_out(places.database, 8)
    server.prepare_database(places, "1.9.1")
    assert places.database.stat().st_size == size


def test_a_newer_version_s_database_is_refused_and_left_alone(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.10.0")
    with pytest.raises(BadInput, match=r"written by temporal 1\.10\.0, this Perdure brings 1\.9\.1"):
        server.prepare_database(places, "1.9.1")
    assert places.database_version.read_text() == "1.10.0\n"
    assert not places.database_copies.exists()


def test_an_upgrade_copies_the_database_with_its_log_first_and_keeps_the_last_copy(places: Places) -> None:
    fill(places, rows=3)
    server.prepare_database(places, "1.8.0")
    writer = sqlite3.connect(places.database)
    writer.execute("PRAGMA journal_mode=wal")
    with writer:
        writer.execute("INSERT INTO t VALUES ('in the log')")
    kept = server.copy_database(places, "1.8.0")
    writer.close()
    assert {path.name for path in kept.iterdir()} >= {"temporal.db", "temporal.db-wal"}
    with closing(sqlite3.connect(kept / "temporal.db")) as copied:
        assert copied.execute("SELECT count(*) FROM t").fetchone() == (4,)
    server.prepare_database(places, "1.9.0")
    server.prepare_database(places, "1.9.1")
    assert [path.name for path in places.database_copies.iterdir()] == ["temporal-1.9.0"]
    assert places.database_version.read_text() == "1.9.1\n"


def test_the_same_version_makes_no_copy(places: Places) -> None:
    fill(places)
    server.prepare_database(places, "1.9.1")
    server.prepare_database(places, "1.9.1")
    assert not places.database_copies.exists()
