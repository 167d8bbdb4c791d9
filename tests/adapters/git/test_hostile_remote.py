"""A remote that sends without end, or nothing at all, costs this host a bounded amount of disk, memory and time."""

from __future__ import annotations

import os
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from perdure.adapters.git import command
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from tests.engine import until

MB = 1024**2
COMMIT = b"1" * 40


def line(data: bytes) -> bytes:
    return b"%04x" % (len(data) + 4) + data


class Hostile(BaseHTTPRequestHandler):
    """Speaks git's protocol until `says` is reached: then that without end, or silence."""

    protocol_version = "HTTP/1.1"
    says = ""
    over = threading.Event()

    def log_message(self, *_: object) -> None: ...

    def _begin(self, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def do_GET(self) -> None:
        self._begin("advertisement")
        self._send(line(b"# service=git-upload-pack\n") + b"0000")
        self._send(line(COMMIT + b" HEAD\0symref=HEAD:refs/heads/main side-band-64k ofs-delta agent=x\n"))
        self._send(line(COMMIT + b" refs/heads/main\n"))
        number = 0
        while self.says == "branches" and not self.over.is_set():
            names = range(number, number + 1000)
            self._send(b"".join(line(b"%040x refs/heads/b%050d\n" % (n + 1, n)) for n in names))
            number += 1000
        self._send(b"0000")
        self._send(b"")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._begin("result")
        self._send(line(b"NAK\n"))
        if self.says == "nothing":
            self.over.wait(60)
            return
        if self.says == "words":
            self._endlessly(lambda: b"\2" + b"x" * 60_000 + b"\n")
        objects = 1 if self.says == "one object" else 1000  # fewer than 100 are written one by one
        size, head = 1 << 40, b"\xb0"  # a blob of a terabyte
        size >>= 4
        while size:
            head, size = head + bytes([size & 0x7F | (0x80 if size > 0x7F else 0)]), size >> 7
        self._send(line(b"\1PACK" + struct.pack(">II", 2, objects)) + line(b"\1" + head))
        packed = zlib.compressobj(0)
        self._endlessly(lambda: b"\1" + packed.compress(os.urandom(60_000)))

    def _endlessly(self, part: Callable[[], bytes]) -> None:
        while not self.over.is_set():
            data = part()
            for at in range(1, len(data), 60_000):
                self._send(line(data[:1] + data[at : at + 60_000]))


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """The address of a server that says this; the limits are small here."""
    monkeypatch.setattr(command, "GIT_FETCH_BYTES", 20 * MB)
    monkeypatch.setattr(command, "GIT_MEMORY_BYTES", 100 * MB)
    monkeypatch.setattr(command, "GIT_OUTPUT_BYTES", MB)
    monkeypatch.setattr(command, "GIT_SILENCE_S", 2)
    over, servers = threading.Event(), []

    def start(says: str) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), type("It", (Hostile,), {"says": says, "over": over})))
        servers[-1].daemon_threads = True
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/x"

    yield start
    over.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def left(vault: Vault) -> list[str]:
    return [path.name for path in (vault.path / "objects").rglob("tmp_*")]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("a pack", "more than 20 MB"),
        ("one object", "more than 20 MB"),
        ("words", "it says more than"),
        ("branches", "100 MB of memory"),
    ],
)
@pytest.mark.timeout(60)
def test_a_remote_that_sends_without_end_is_left_and_nothing_of_it_stays(home: Home, hostile, says, words) -> None:
    vault = Vault.open_or_create(home, hostile(says))
    with pytest.raises(ForgeRefused, match=words):
        vault.fetch()
    assert left(vault) == []


@pytest.mark.timeout(60)
def test_a_remote_that_falls_silent_is_tried_again_later(home: Home, hostile) -> None:
    vault, began = Vault.open_or_create(home, hostile("nothing")), time.monotonic()
    with pytest.raises(ForgeUnavailable, match="Operation too slow"):
        vault.fetch()
    assert time.monotonic() - began < 50


async def test_what_another_writes_to_the_vault_meanwhile_stays(home: Home, hostile) -> None:
    vault = Vault.open_or_create(home, hostile("a pack"))
    (vault.path / "objects/pack").mkdir(exist_ok=True)
    theirs = vault.path / "objects/pack/tmp_pack_theirs"
    theirs.write_bytes(b"x")
    failed: list[BaseException] = []

    def fetch() -> None:
        try:
            vault.fetch()
        except ForgeRefused as error:
            failed.append(error)

    thread = threading.Thread(target=fetch)
    thread.start()
    await until(lambda: failed)
    thread.join()
    assert left(vault) == ["tmp_pack_theirs"]
