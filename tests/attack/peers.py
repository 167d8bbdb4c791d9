"""Answers of hostile peers: to the model's client, and to the forge's. The real clients, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import socket
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.builtin.errors import MODEL_EVENT_LINES
from perdure.adapters.agents.builtin.model import Model, ModelRequest
from perdure.adapters.forges.github import transport
from perdure.models.errors import PerdureError
from tests.attack.peer import Peer, peer, self_signed
from tests.waiting import patient

KEY = "sk-ant-attack-0123456789"
WORDS = "the words of the conversation"
QUESTION = ModelRequest(
    model="claude-sonnet-5-5",
    max_tokens=1000,
    effort=None,
    system="Step: implement\n\nWork.",
    tools=(),
    messages=({"role": "user", "content": [{"type": "text", "text": WORDS}]},),
    schema=None,
)
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_STREAM = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _dripping(found: Peer, to: socket.socket) -> None:
    to.sendall(_STREAM)
    found.drip(to, _chunk(b"x"), 0.1)


def _pinging(found: Peer, to: socket.socket) -> None:
    to.sendall(_STREAM)
    found.drip(to, _chunk(b"event: ping\ndata: {}\n\n"), 0.1)


def _endless_line(found: Peer, to: socket.socket) -> None:
    to.sendall(_STREAM)
    found.flood(to, _chunk(b"data: " + b"x" * 65536), 1024**3)


def _endless_event(found: Peer, to: socket.socket) -> None:
    to.sendall(_STREAM)
    found.flood(to, _chunk(b"data: x\n" * 8192), 1024**3)


def _endless_headers(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\n")
    found.flood(to, b"X-Header: " + b"x" * 1000 + b"\r\n", 1024**3)


def _headers_drip(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    found.drip(to, b"x", 0.1)


def _endless_100(found: Peer, to: socket.socket) -> None:
    found.drip(to, b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)


def _gigabyte(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n")
    found.flood(to, b"x" * 65536, 1024**3)


def _big_ok(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1073741824\r\n\r\n")
    found.flood(to, b"x" * 65536, 1024**3)


@cache
def _packed() -> bytes:
    return gzip.compress(bytes(256 * 1024**2), 9)


def _bomb(found: Peer, to: socket.socket) -> None:
    packed = _packed()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    to.sendall(head + b"Content-Length: " + str(len(packed)).encode() + b"\r\n\r\n" + packed)


def _html(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>")


def _nested(found: Peer, to: socket.socket) -> None:
    body = b'{"error": ' + b"[" * 500_000
    head = b"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\nContent-Length: "
    to.sendall(head + str(len(body)).encode() + b"\r\n\r\n" + body)


MODEL: dict[str, tuple[Callable[[Peer, socket.socket], None], str]] = {
    "a model's reply that drips without a line": (_dripping, "no line of its answer"),
    "a model's reply that pings for ever": (_pinging, "did not come to an end"),
    "a model's reply of one endless line": (_endless_line, "event without an end"),
    "a model's reply of one endless event": (_endless_event, "event without an end"),
    "a model's endless headers": (_endless_headers, "could not be reached"),
    "a model's headers that drip": (_headers_drip, "did not come to an end"),
    "a model that says 100 Continue for ever": (_endless_100, "did not come to an end"),
    "a model's error of a gigabyte": (_gigabyte, "longer than 1 MiB"),
    "a model's answer of a gigabyte": (_big_ok, "event without an end"),
    "a model's gzip bomb": (_bomb, "packs its answers"),
    "a model's answer that is a web page": (_html, "without a reply"),
    "a model's error nested half a million deep": (_nested, ""),
}
"""Name → what it answers, and words of the error that says so."""


async def asked(url: str, *, silence_s: float = 1.0, within_s: float = 3.0) -> str:
    """The outcome of one question there."""
    model = Model(KEY, url, headers={"X-Secret": "of-a-header"}, silence_s=silence_s, within_s=within_s)
    try:
        await model.ask(QUESTION, on_first_event=lambda: None, on_text=lambda _: None)
    except PerdureError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await model.aclose()
    return "a reply"


def line_by_line() -> str:
    """A well-behaved reply of many events, each line of it and each end of a line in a chunk of its own."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[delta] * MODEL_EVENT_LINES,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]

    def answer(found: Peer, to: socket.socket) -> None:
        lines = [line for one in events for line in (f"event: {one['type']}", f"data: {json.dumps(one)}", "")]
        parts = [part for line in lines for part in (line.encode() + b"\r", b"\n")]
        to.sendall(_STREAM + b"".join(map(_chunk, parts)) + b"0\r\n\r\n")

    with peer(answer) as found:
        return asyncio.run(asked(found.url, silence_s=30.0, within_s=60.0))


def model_case(name: str) -> str:
    answer, _ = MODEL[name]
    _packed()  # once, and before anybody waits for it
    before = _memory()
    with peer(answer) as found:
        flood = "gigabyte" in name or "endless line" in name or "endless event" in name
        limits = {"silence_s": 30.0, "within_s": 120.0} if flood else {}  # else a slow host would be what is seen
        seen = asyncio.run(asyncio.wait_for(asked(found.url, **limits), patient(150)))
    grown = (_memory() - before) // 1024
    return f"{seen}" if grown < 400 else f"MISSED: {grown} MB more memory, {seen}"


def redirected(status: int) -> tuple[str, int]:
    """The outcome of a question whose model sends it to another server, and how many requests that one got."""

    def elsewhere(_: Peer, to: socket.socket) -> None:
        _html(_, to)

    with peer(elsewhere) as other:

        def send_away(_: Peer, to: socket.socket) -> None:
            place = f"{other.url}/v1/messages".encode()
            to.sendall(
                f"HTTP/1.1 {status} Moved\r\n".encode() + b"Location: " + place + b"\r\nContent-Length: 0\r\n\r\n"
            )

        with peer(send_away) as first:
            return asyncio.run(asked(first.url)), len(other.heard)


def unvouched(directory: Path) -> str:
    with peer(_html, tls=self_signed(directory)) as found:
        return asyncio.run(asked(found.url))


def plain_for_tls() -> str:
    with peer(_html) as found:
        return asyncio.run(asked(found.url.replace("http:", "https:")))


def forge_case(answer: Callable[[Peer, socket.socket], None], *, within_s: float, most: int) -> str:
    """The outcome with PyGithub, with our limits lowered so that nobody has to wait."""
    from perdure.adapters.forges.github.errors import raise_forge_errors
    from perdure.adapters.forges.github.transport import open_client

    _packed()
    with (
        pytest.MonkeyPatch.context() as limits,
        peer(answer) as found,
        open_client(found.url, "ghp_0123456789", silence_s=2) as forge,
    ):
        limits.setattr(transport, "FORGE_ANSWER_S", within_s)
        limits.setattr(transport, "FORGE_ANSWER_BYTES", most)
        try:
            with raise_forge_errors(found.url, "PERDURE_GITHUB_TOKEN"):
                forge.get_repo("o/r").full_name.lower()
        except PerdureError as error:
            return f"{type(error).__name__}: {error}"
    return "an answer"


def _json_drips(found: Peer, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
    found.drip(to, b" ", 0.1)


def _json_bomb(found: Peer, to: socket.socket) -> None:
    packed = _packed()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: "
    to.sendall(head + str(len(packed)).encode() + b"\r\n\r\n" + packed)


def _json_nested(found: Peer, to: socket.socket) -> None:
    body = b"[" * 500_000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
    to.sendall(head + str(len(body)).encode() + b"\r\n\r\n" + body)


FORGE: dict[str, tuple[Callable[[Peer, socket.socket], None], str]] = {
    "a forge's answer that drips": (_json_drips, "does not answer"),
    "a forge's headers that drip": (_headers_drip, "cannot be"),
    "a forge's endless headers": (_endless_headers, "cannot be reached"),
    "a forge's answer of a gigabyte": (_big_ok, "cannot be reached"),
    "a forge's gzip bomb": (_json_bomb, "cannot be reached"),
    "a forge's answer nested half a million deep": (_json_nested, "cannot be understood"),
}


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
