"""A hostile HTTP server on loopback: it answers every request with what a function writes, for as long as it likes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Answer = Callable[[socket.socket], None]


class Peer:
    """`url`; `heard`: what was sent to it, heads and bodies as they came; `over`: set when it shall stop."""

    def __init__(self, url: str) -> None:
        self.url, self.heard, self.over = url, list[bytes](), threading.Event()

    def drip(self, to: socket.socket, piece: bytes, every: float) -> None:
        while not self.over.wait(every):
            to.sendall(piece)

    def flood(self, to: socket.socket, piece: bytes, most: int) -> None:
        sent = 0
        while sent < most and not self.over.is_set():
            to.sendall(piece)
            sent += len(piece)


@contextmanager
def peer(answer: Callable[[Peer, socket.socket], None], *, tls: ssl.SSLContext | None = None) -> Iterator[Peer]:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.1)
    found = Peer(f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}")

    def take(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), connection:
            connection.settimeout(10)
            to = tls.wrap_socket(connection, server_side=True) if tls else connection
            with to:
                found.heard.append(_request(to))
                answer(found, to)

    def serve() -> None:
        while not found.over.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = listening.accept()
                threading.Thread(target=take, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.over.set()
        thread.join()
        listening.close()


def _request(to: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += to.recv(65536) or b"\r\n\r\n"
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    end = time.monotonic() + 5
    while len(body) < length and time.monotonic() < end:
        body += to.recv(65536)
    return head + b"\r\n\r\n" + body


def self_signed(directory: Path) -> ssl.SSLContext:
    """A certificate for 127.0.0.1 that nobody vouches for: `cert.pem` there."""
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    files = ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *files], cwd=directory, check=True, capture_output=True, timeout=30)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    return tls
