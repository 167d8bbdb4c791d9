"""A web page in the owner's browser: what it can make the embedded server do, and read of it."""

from __future__ import annotations

import asyncio
import http.client
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from perdure.adapters.system.home import Home
from tests.attack.table import Case, Ground, Seen, held

PAGE = "web page in the browser"


def server(at: Ground) -> Home:
    """The home of a running embedded server, made under the usual umask, that others could read before."""
    from perdure.local.identity import find_free_ports
    from perdure.local.server import ensure_server, stop_server

    at.root.chmod(0o755)
    place = Path(tempfile.mkdtemp(dir=at.root))
    place.chmod(0o755)
    home = Home(place / "perdure")
    home.root.mkdir()
    home.root.chmod(0o755)
    kept = {name: os.environ.get(name) for name in ("PERDURE_SQLITE_SYNCHRONOUS", "TEMPORAL_CONFIG_FILE")}
    os.environ |= {"PERDURE_SQLITE_SYNCHRONOUS": "1", "TEMPORAL_CONFIG_FILE": os.devnull}
    umask = os.umask(0o022)
    at.until_the_end.callback(lambda: asyncio.run(stop_server(home)))
    try:
        asyncio.run(ensure_server(home, say=lambda _: None, port=find_free_ports().grpc))
        return home
    finally:
        os.umask(umask)
        for name, value in kept.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _listening(at: Ground) -> tuple[str, str, set[str]]:
    """Where the Web UI answers and where it listens itself, and every address of the server that a page can find."""
    from perdure.local.identity import read_server_record
    from perdure.local.places import Places

    record = read_server_record(Places(at.once(server)))
    assert record is not None
    found = psutil.Process(record.pid).net_connections("inet")
    known, behind = record.ui.removeprefix("http://"), record.ui_behind
    listening = {known, *(f"{c.laddr.ip}:{c.laddr.port}" for c in found if c.status == psutil.CONN_LISTEN)}
    return known, behind, listening - {behind}


def _hidden(at: Ground) -> Seen:
    """Asked by whoever knows the address, the Web UI itself answers by any name: pages must not find it."""
    _, behind, _ = _listening(at)
    host = behind.rpartition(":")[0]
    numbers = [int(number) for number in host.split(".")] if host else [0]
    return held(
        numbers[0] == 127 and len(set(numbers[1:])) > 1 and host != "127.0.0.1",
        f"{behind or 'nothing stands before it'}: one of 254³ addresses, and a port by chance, with every new record",
    )


def _asks(address: str, method: str, path: str, headers: Sequence[tuple[str, str]]) -> int:
    """The status of what an address answers; 0 when it does not speak HTTP."""
    body = _START if method == "POST" else b""
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(
                name, value.replace("{address}", address).replace("{port}", address.rpartition(":")[2])
            )
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


_START = b'{"workflowType":{"name":"Delivery"},"taskQueue":{"name":"perdure"},"input":[{"repository":"/r"}]}'
_WORKFLOWS = "/api/v1/namespaces/default/workflows"
_TEXT = ("Content-Type", "text/plain")
_HOST = ("Host", "{address}")


def _page(method: str, path: str, *headers: tuple[str, str]) -> Callable[[Ground], Seen]:
    """Missed when any address of the server does what it is asked, or when the Web UI's own page is refused, too."""

    def attack(at: Ground) -> Seen:
        known, _, addresses = _listening(at)
        give_up = time.monotonic() + 60
        while _asks(known, "GET", "/api/v1/namespaces", [_HOST]) != 200:
            if time.monotonic() > give_up:
                return Seen("MISSED", "proves nothing: the Web UI's own page is not answered")
            time.sleep(0.1)
        answers = {address: _asks(address, method, path, headers) for address in sorted(addresses, key=known.__ne__)}
        done = any(200 <= status < 300 for status in answers.values())
        counted = sorted(Counter(answers.values()).items(), reverse=True)
        words = ", ".join(f"{number} answer {status}" if status else f"{number} no HTTP" for status, number in counted)
        return held(not done, f"of {len(answers)} addresses {words}; the Web UI's own page gets 200")

    return attack


CASES = (
    Case(PAGE, "starts a delivery by a text/plain POST", "no address does it",
         _page("POST", f"{_WORKFLOWS}/x", _HOST, _TEXT, ("Origin", "http://evil.example"))),
    Case(PAGE, "starts a delivery from a sandboxed frame (Origin: null)", "no address does it",
         _page("POST", f"{_WORKFLOWS}/x", _HOST, _TEXT, ("Origin", "null"))),
    Case(PAGE, "starts a delivery from another server of this machine", "no address does it",
         _page("POST", f"{_WORKFLOWS}/x", _HOST, _TEXT, ("Origin", "http://localhost:3000"))),
    Case(PAGE, "starts a delivery under a name of its own (DNS rebinding)", "no address does it",
         _page("POST", f"{_WORKFLOWS}/x", ("Host", "evil.example"), _TEXT, ("Origin", "http://evil.example"))),
    Case(PAGE, "reads deliveries under a name of its own", "no address answers",
         _page("GET", _WORKFLOWS, ("Host", "evil.example"))),
    Case(PAGE, "reads the Web UI under a name of its own, with its port", "no address answers",
         _page("GET", "/", ("Host", "evil.example:{port}"))),
    Case(PAGE, "reads deliveries by a name that begins like this machine's", "no address answers",
         _page("GET", _WORKFLOWS, ("Host", "127.0.0.1.evil.example"))),
    Case(PAGE, "sends two names for the host", "no address answers",
         _page("GET", _WORKFLOWS, ("Host", "localhost"), ("Host", "evil.example"))),
    Case(PAGE, "finds the Web UI behind what stands before it", "an address by chance", _hidden),
    Case(PAGE, "asks for namespaces from another origin", "no address answers",
         _page("GET", "/api/v1/namespaces", _HOST, ("Origin", "http://evil.example"))),
)  # fmt: skip
