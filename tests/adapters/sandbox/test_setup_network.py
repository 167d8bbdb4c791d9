"""Setup reaches hosts outside, by a proxy that chooses them, and nothing of the machine it runs on."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from perdure.adapters.sandbox.reach import (
    SETUP_CONNECTIONS,
    Reach,
    ReachRefused,
    addresses_in_settings,
    is_outside,
    open_setup_proxy,
)
from tests.waiting import patient

INDEX = "files"


class Index(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(INDEX)))
        self.end_headers()
        self.wfile.write(INDEX.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def index() -> Iterator[int]:
    """The port of a web server on this machine's loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


FETCH = """python3 - <<'END'
import urllib.request
for url in {urls!r}:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode())
    except Exception as error:
        print("not reached:", error)
END"""


async def test_setup_reaches_a_host_that_the_owner_named_and_no_other_of_this_machine(full, run, index):
    for host in ("127.0.0.1", "localhost"):
        script = FETCH.format(urls=[f"http://{host}:{index}/"])
        refused, said = await run(full, f"unset no_proxy NO_PROXY; {script}", network=True)
        assert refused.exit_code == 0
        assert INDEX not in said
        assert f"perdure: setup cannot reach {host}:{index}: it is this machine" in said
        _, said = await run(full, script, network=True, reach=Reach(trusted=frozenset([f"{host}:{index}"])))
        assert said == f"{INDEX}\n"


async def test_setup_reaches_no_port_and_no_socket_of_this_machine_by_itself(full, run, index, tmp_path):
    name = f"\0perdure-test-{index}"
    with closing(socket.socket(socket.AF_UNIX)) as abstract, closing(socket.socket(socket.AF_UNIX)) as path:
        abstract.bind(name)
        abstract.listen()
        path.bind(str(tmp_path / "s"))
        path.listen()
        script = f"""python3 - <<'END'
import socket
unix = socket.AF_UNIX
tries = [(socket.AF_INET, ("127.0.0.1", {index})), (unix, {name!r}), (unix, {str(tmp_path / "s")!r})]
for family, address in tries:
    with socket.socket(family) as one:
        print("REACHED" if one.connect_ex(address) == 0 else "refused")
END"""
        _, said = await run(full, script, network=True)
    assert said == "refused\n" * 3


async def test_installers_find_the_proxy_in_their_variables(full, run, index, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://me:hidden-password@127.0.0.1:1")
    monkeypatch.setenv("npm_config_proxy", "http://me:hidden-password@127.0.0.1:1")
    _, said = await run(full, "env; git config --get http.proxy", network=True)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        assert f"{name}=http://127.0.0.1:3128" in said
    assert "hidden-password" not in said


@pytest.mark.parametrize(
    ("hosts", "host", "port", "allowed"),
    [
        ((), "127.0.0.1", 80, False),
        ((), "localhost", 7233, False),
        ((), "::1", 80, False),
        ((), "[::ffff:127.0.0.1]", 80, False),
        ((), "169.254.169.254", 80, False),
        ((), "10.1.2.3", 80, False),
        ((), "0.0.0.0", 80, False),
        ((), "0", 80, False),
        ((), "2130706433", 80, False),
        ((), "0x7f.1", 80, False),
        ((), "64:ff9b::7f00:1", 80, False),
        ((), "9.9.9.9", 443, True),
        (("9.9.9.9",), "9.9.9.9", 443, True),
        (("9.9.9.9:443",), "9.9.9.9", 80, False),
        (("example.com",), "9.9.9.9", 443, False),
        (("*",), "127.0.0.1", 80, False),
    ],
)
async def test_a_host_is_judged_by_its_addresses(hosts: tuple[str, ...], host: str, port: int, allowed: bool) -> None:
    try:
        found = await Reach(hosts).resolve_addresses(host, port)
    except ReachRefused:
        found = []
    assert bool(found) is allowed


def test_every_address_of_this_machine_is_its_own() -> None:
    own = {one[4][0] for one in socket.getaddrinfo(socket.gethostname(), None)}
    assert not any(is_outside(str(address)) for address in own)


def test_hosts_of_the_owners_own_index_are_trusted(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://me:secret@packages.internal:8443/simple\n")
    given = {"UV_INDEX_URL": "http://10.0.0.7/simple", "https_proxy": "http://proxy.internal:3128"}
    found = addresses_in_settings(given, [tmp_path / "pip.conf", tmp_path / "absent"])
    assert found == {"packages.internal:8443", "10.0.0.7:80"}


async def test_through_the_owners_proxy_everything_goes_there_with_its_password(index: int, tmp_path: Path) -> None:
    heads = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    told: list[str] = []
    owner = {"https_proxy": f"http://me:p%40ss@127.0.0.1:{port}"}
    async with open_setup_proxy(Reach(hosts=("known.invalid",)), owner, told.append) as path:
        for name in ("known.invalid", "other.invalid"):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
            answer = await asyncio.wait_for(reader.read(), patient(20))
            writer.close()
            assert (b"hello" in answer) is (name == "known.invalid")
    server.close()
    assert len(heads) == 1
    assert heads[0].startswith(b"CONNECT known.invalid:443 HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic bWU6cEBzcw==" in heads[0]
    assert told == ["setup cannot reach other.invalid:443: it is not in [setup] hosts"]


async def test_no_connection_of_the_proxy_outlives_it_and_no_setup_has_more_than_some(tmp_path: Path) -> None:
    """A host outside that never answers, nor closes, would keep them for as long as the worker lives."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ours, told = asyncio.all_tasks(), []
    async with open_setup_proxy(Reach(trusted=frozenset([f"127.0.0.1:{port}"])), {}, told.append) as path:
        streams, answers = [], []
        for _ in range(SETUP_CONNECTIONS + 1):
            reader, writer = await asyncio.open_unix_connection(path)
            streams.append(writer)
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            answers.append((await asyncio.wait_for(reader.readline(), patient(20))).split()[1])
        assert answers == [b"200"] * SETUP_CONNECTIONS + [b"403"]
        assert len(told) == 1
        for writer in streams:
            writer.close()
    left = [task for task in asyncio.all_tasks() - ours if "way_out" in repr(task) or "_copy" in repr(task)]
    server.close()
    assert left == []
