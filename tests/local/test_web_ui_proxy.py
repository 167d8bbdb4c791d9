"""A web page in the owner's browser reaches nothing of the embedded server."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import signal
import threading

import psutil
import pytest

from perdure.adapters.system.files import is_locked
from perdure.adapters.system.home import Home
from perdure.local.identity import find_free_ports, read_server_record
from perdure.local.places import Places
from perdure.local.server import ensure_server, stop_server
from perdure.local.web_ui_proxy import head_to_forward
from tests.engine import until


def quiet(_: str) -> None: ...


def ask(address: str, path: str, method: str = "GET", **headers: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(b"{}" if method == "POST" else None)
        return connection.getresponse().status
    finally:
        connection.close()


async def test_the_server_answers_no_page_that_is_not_its_own(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    ui = info.ui_url.removeprefix("http://")
    port = ui.rpartition(":")[2]
    await until(lambda: ask(ui, "/api/v1/namespaces", Host=ui) == 200, 30)
    for host in (ui, f"localhost:{port}", f"LOCALHOST:{port}", "127.0.0.1:9999"):  # the last: a tunnel's end
        assert ask(ui, "/api/v1/namespaces", Host=host, Origin=f"http://{host.lower()}") == 200
    for strange in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"127.0.0.1.evil.example:{port}"},
    ):
        assert ask(ui, "/api/v1/namespaces", **strange) == 403
    for origin in ("http://evil.example", "null", "http://localhost:3000", f"https://{ui}", ""):
        path = "/api/v1/namespaces/default/workflows/x"
        assert ask(ui, path, "POST", Host=ui, Origin=origin, Content_Type="text/plain", Content_Length="2") == 403

    listening = {
        f"{one.laddr.ip}:{one.laddr.port}"
        for one in psutil.Process(info.pid).net_connections("tcp")
        if one.status == psutil.CONN_LISTEN
    }
    assert ui not in listening
    everywhere = {one for one in listening if one.startswith(("0.0.0.0", "::"))}
    assert everywhere == set()
    record = read_server_record(Places(home))
    assert record is not None
    told = {}
    for address in listening - {info.address, record.ui_behind}:
        for host in (address, "localhost", "evil.example"):
            try:
                told[address, host] = ask(address, "/api/v1/namespaces", Host=host)
            except (OSError, http.client.HTTPException):
                told[address, host] = 0  # speaks no HTTP/1
    assert set(told.values()) <= {0, 403, 404}, told
    assert 403 in told.values()


async def test_what_stands_before_the_web_ui_comes_back_and_ends_with_the_server(home: Home) -> None:
    info = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    places, ui = Places(home), info.ui_url.removeprefix("http://")
    (front,) = [one for one in psutil.process_iter() if str(places.server_lock) in _line(one)]
    os.kill(front.pid, signal.SIGKILL)
    await until(lambda: not is_locked(places.ui_lock), 10)
    await ensure_server(home, say=quiet)
    await until(lambda: ask(ui, "/api/v1/settings", Host=ui) == 200, 30)
    await stop_server(home)
    await until(lambda: not is_locked(places.ui_lock), 10)
    again = await ensure_server(home, say=quiet)
    assert (again.started, again.ui_url) == (True, info.ui_url)


async def test_a_server_killed_while_it_is_launched_comes_back_at_its_own_address(home: Home) -> None:
    """The front of the try that died has the Web UI's port, and lets go of it before the next one looks for ports."""
    first = await ensure_server(home, say=quiet, port=find_free_ports().grpc)
    await stop_server(home)
    places = Places(home)
    await until(lambda: not is_locked(places.ui_lock), 10)
    fronts: list[int] = []

    def kill_once(stop: threading.Event) -> bool:
        while not stop.wait(0.001):
            for child in psutil.Process().children():
                if "start-dev" in _line(child):
                    found = _fronts(places)
                    with contextlib.suppress(ProcessLookupError):  # it ended meanwhile, and is tried again
                        os.kill(child.pid, signal.SIGKILL)
                        fronts.extend(found)
                        return True
        return False

    for _ in range(5):  # on a busy machine it is up before it is seen
        stop = threading.Event()
        killing = asyncio.create_task(asyncio.to_thread(kill_once, stop))
        try:
            again = await ensure_server(home, say=quiet)
        finally:
            stop.set()
        if await killing:
            break
        await stop_server(home)
        await until(lambda: not is_locked(places.ui_lock), 10)
    else:
        pytest.fail("nothing was killed: this shows nothing")
    assert (again.started, again.address, again.ui_url) == (True, first.address, first.ui_url)
    assert len(fronts) == 1, "the one of the try that died stood there"
    (now,) = _fronts(places)
    assert now != fronts[0]
    ui = again.ui_url.removeprefix("http://")
    await until(lambda: ask(ui, "/api/v1/settings", Host=ui) == 200, 30)


def _fronts(places: Places) -> list[int]:
    """Processes that stand before the Web UI of this home."""
    return [one.pid for one in psutil.process_iter() if _line(one)[-1:] == [str(places.server_lock)]]


def _line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x",
        b"GET / HTTP/1.1\r\nHost : evil.example\r\nHost: localhost",
        b"GET / HTTP/1.1\nHost: evil.example\r\nHost: localhost",
        b"GET / HTTP/1.1\r\nHost: localhost:99@evil.example",
        b"GET / HTTP/2\r\nHost: localhost",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost",
    ],
)
def test_a_head_that_could_be_read_in_two_ways_is_refused(head: bytes) -> None:
    assert head_to_forward(head) is None


def test_each_connection_carries_one_request() -> None:
    passed = head_to_forward(
        b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket"
    )
    assert passed == b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
