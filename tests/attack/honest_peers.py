"""Honest servers, browsers, owners and clients: the nearest ordinary thing to each attack, which has to work."""

# ruff: noqa: E501 - one case a line reads as the table it is

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from tests.attack import neighbours, pages, peers
from tests.attack.peer import Peer, peer, self_signed
from tests.attack.stranger_client import QUIET
from tests.attack.table import LEFT, SECRET, Case, Ground, Seen, works
from tests.engine import BUILT, HAPPY, Engine, finished, heads, make_target, pulls, until

PEER, PAGE, OWNER, CLIENT = "honest peer", "the owner's browser", "the owner of the host", "honest client of Temporal"

_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "usage": _USAGE,
    "stop_reason": None,
    "stop_sequence": None,
}


def _events(*texts: str, reason: str = "end_turn", **more: object) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {**_MESSAGE, **more}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": _USAGE},
        {"type": "message_stop"},
    ]


_TOOL = [
    {"type": "message_start", "message": _MESSAGE},
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "t", "name": "bash", "input": {}},
    },
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": part}}
        for part in ('{"comm', 'and": "l', 's"}')
    ),
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": _USAGE},
    {"type": "message_stop"},
]


def _stream(events: list[dict[str, Any]], end: str = "\n", before: str = "", space: str = " ") -> bytes:
    return "".join(
        f"{before}event:{space}{one['type']}{end}data:{space}{json.dumps(one, ensure_ascii=False)}{end}{end}"
        for one in events
    ).encode()


def _whole(body: bytes, head: str = "Content-Type: text/event-stream") -> Callable[[Peer, socket.socket], None]:
    return lambda _, to: to.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def _pieces(body: bytes, size: int, pause: float = 0.0) -> Callable[[Peer, socket.socket], None]:
    def answer(_: Peer, to: socket.socket) -> None:
        to.sendall(peers._STREAM)
        for at in range(0, len(body), size):
            to.sendall(peers._chunk(body[at : at + size]))
            time.sleep(pause)
        to.sendall(b"0\r\n\r\n")

    return answer


def _closing(body: bytes) -> Callable[[Peer, socket.socket], None]:
    return lambda _, to: to.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body)


MODELS: Mapping[str, Callable[[Peer, socket.socket], None]] = {
    "a reply of one word": _whole(_stream(_events("word"))),
    "a reply of a hundred pieces": _whole(_stream(_events(*["word "] * 100))),
    "a reply of half a megabyte": _whole(_stream(_events(*["x" * 5000] * 100))),
    "a reply in pieces of seven bytes": _pieces(_stream(_events("naïve 数")), 7),
    "a reply that comes slowly": _pieces(_stream(_events("a", "b")), 100, 0.1),
    "a reply with Windows line ends": _whole(_stream(_events("word"), end="\r\n")),
    "a reply without a blank behind the colon": _whole(_stream(_events("word"), space="")),
    "a reply with remarks that keep the line open": _whole(_stream(_events("word"), before=": still here\n\n")),
    "a reply with pings": _pieces(b'event: ping\ndata: {"type": "ping"}\n\n' * 5 + _stream(_events("word")), 50),
    "a reply with an event nobody knows": _whole(b'event: news\ndata: {"type": "news"}\n\n' + _stream(_events("word"))),
    "a reply with fields nobody knows": _whole(_stream(_events("word", container=None, service_tier="standard"))),
    "a reply that calls a tool": _whole(_stream(_TOOL)),
    "a reply in other scripts": _whole(_stream(_events("数を足す — naïve 😀"))),
    "a reply that the end of the connection ends": _closing(_stream(_events("word"))),
    "a reply with a charset": _whole(_stream(_events("word")), "Content-Type: text/event-stream; charset=utf-8"),
    "a reply with thirty headers": _whole(_stream(_events("word")), "Content-Type: text/event-stream\r\n" + "\r\n".join(f"X-{n}: y" for n in range(30))),
}  # fmt: skip
REPOSITORY = {"id": 1, "name": "r", "full_name": "o/r", "url": "{url}/repos/o/r", "private": False}


def _json(value: object, head: str = "", pack: bool = False) -> Callable[[Peer, socket.socket], None]:
    def answer(found: Peer, to: socket.socket) -> None:
        body = json.dumps(value).replace("{url}", found.url).encode()
        body = gzip.compress(body) if pack else body
        packed = "Content-Encoding: gzip\r\n" if pack else ""
        to.sendall(
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{packed}{head}Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    return answer


def _moved(found: Peer, to: socket.socket) -> None:
    if b"/repositories/1" in found.heard[-1]:
        _json(REPOSITORY)(found, to)
        return
    to.sendall(f"HTTP/1.1 301 Moved\r\nLocation: {found.url}/repositories/1\r\nContent-Length: 0\r\n\r\n".encode())


FORGES: Mapping[str, Callable[[Peer, socket.socket], None]] = {
    "a forge's answer": _json(REPOSITORY),
    "a forge's answer, packed": _json(REPOSITORY, pack=True),
    "a forge's answer with fields nobody knows": _json({**REPOSITORY, "news": {"a": [1, {"b": None}]}}),
    "a forge's answer of a megabyte": _json({**REPOSITORY, "description": "x" * 1_000_000}),
    "a forge's answer with its limits": _json(REPOSITORY, "X-RateLimit-Remaining: 10\r\nX-RateLimit-Limit: 60\r\n"),
    "a forge that has renamed the repository": _moved,
    "a forge's answer in other scripts": _json({**REPOSITORY, "description": "数を足す 😀"}),
}  # fmt: skip


def _model(name: str) -> Callable[[Ground], Seen]:
    def use(_: Ground) -> Seen:
        with peer(MODELS[name]) as found:
            seen = asyncio.run(peers.asked(found.url, silence_s=20.0, within_s=60.0))
        return works(seen == "a reply", seen)

    return use


def _forge(name: str) -> Callable[[Ground], Seen]:
    def use(_: Ground) -> Seen:
        seen = peers.forge_case(FORGES[name], within_s=20.0, most=4 * 1024**2)
        return works(seen == "an answer", seen)

    return use


def _vouched(at: Ground) -> Seen:
    place = Path(tempfile.mkdtemp(dir=at.root))
    with peer(MODELS["a reply of one word"], tls=self_signed(place)) as found, pytest.MonkeyPatch.context() as env:
        env.setenv("SSL_CERT_FILE", str(place / "cert.pem"))
        seen = asyncio.run(peers.asked(found.url, silence_s=20.0, within_s=60.0))
    return works(seen == "a reply", seen)


_LOOKS = {
    "opens the Web UI": ("GET", "/", "{address}", ""), "opens the list of deliveries": ("GET", "/namespaces/default/workflows", "{address}", ""),
    "asks for namespaces": ("GET", "/api/v1/namespaces", "{address}", ""), "asks for deliveries": ("GET", pages._WORKFLOWS, "{address}", ""),
    "asks from the Web UI's own page": ("GET", "/api/v1/namespaces", "{address}", "http://{address}"), "asks for the cluster": ("GET", "/api/v1/cluster-info", "{address}", ""),
    "opens it as localhost": ("GET", "/", "localhost:{port}", ""), "asks as localhost, from there": ("GET", "/api/v1/namespaces", "localhost:{port}", "http://localhost:{port}"),
    "asks for the Web UI's settings": ("GET", "/api/v1/settings", "{address}", ""), "asks for the system": ("GET", "/api/v1/system-info", "{address}", ""),
}  # fmt: skip


def _looks(method: str, path: str, host: str, origin: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        known, _, _ = pages._listening(at)
        headers = [
            ("Host", host),
            *(
                [("Origin", origin.replace("{address}", known).replace("{port}", known.rpartition(":")[2]))]
                if origin
                else []
            ),
        ]
        give_up, status = time.monotonic() + 60, 0
        while status != 200 and time.monotonic() < give_up:
            status = pages._asks(known, method, path, headers)
        return works(status == 200, f"{status}")

    return use


def _copies(name: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        from perdure.adapters.repository.setup import copy_files

        place = Path(tempfile.mkdtemp(dir=at.root))
        owner, tree = place / "owner", place / "tree"
        tree.mkdir()
        subprocess.run(["git", "init", "-q", str(owner)], check=True, timeout=60)
        (owner / ".git/info/exclude").write_text("*\n")
        (owner / name).parent.mkdir(parents=True, exist_ok=True)
        (owner / name).write_text(SECRET)
        copy_files(owner, tree, (name,))
        return works((tree / name).read_text() == SECRET, "copied")

    return use


def _home(at: Ground) -> Seen:
    home = at.once(pages.server)
    return works(home.key() and (home.root / "key").stat().st_size, "the key is its owner's to read")


def _program(at: Ground) -> Seen:
    del at
    code = "from perdure import secrets; secrets.take(); print(secrets.environment().get('ANTHROPIC_API_KEY'))"
    env = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join([str(neighbours.ROOT), *sys.path]),
        "ANTHROPIC_API_KEY": SECRET,
    }
    ran = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False)
    return works(SECRET in ran.stdout, (ran.stdout + ran.stderr).replace(SECRET, "the key"))


def _new_home(name: str) -> Callable[[Ground], Seen]:
    def use(at: Ground) -> Seen:
        from perdure.local.checks import check_home

        place = Path(tempfile.mkdtemp(dir=at.root)) / name
        if name == "empty":
            place.mkdir(mode=0o755)
        check_home(place)
        return works(True, "taken")

    return use


def _namespaces(_: Ground) -> Seen:
    from perdure.adapters.sandbox.grades import probe

    seen = probe()
    return works(True, seen.program) if seen.error is None else Seen(LEFT, seen.error.what)


Use = Callable[[Engine, Path], Awaitable[str]]


async def _client_uses(root: Path) -> dict[str, Seen]:
    """One engine for all of them: each of a person's, with nothing but a connection."""
    origin, told = make_target(root / "calc.git"), dict[str, Seen]()
    async with Engine.open(root, HAPPY, ports=29100, own_server=True) as engine:
        engine.worker()
        asked = {"phases": ["build", "ship"], "gates": ["pull_request"], "config": QUIET}
        first = await engine.submit(origin, id="first", **asked)

        async def waits() -> bool:
            return (await first.delivery.describe()).pending_decision is not None

        await until(waits, 100)
        described = await first.delivery.describe()
        told["reads what a delivery waits for"] = works(
            described.pending_decision, str(described.pending_decision)[:90]
        )
        told["follows its progress"] = works(await first.delivery.progress(once=True), "read")
        told["reads its request"] = works((await first.delivery.request())["request"] == "Add sub", "read")
        told["hands the same words in again"] = works(
            (await engine.submit(origin, id="first", **asked)).delivery.id == "first", "attached"
        )
        told["lists deliveries"] = works(
            [one.id async for one in engine.client.list_workflows("WorkflowType = 'Delivery'")] == ["first"], "one"
        )
        await first.delivery.say("mind the sign")
        told["says a word"] = works(True, "sent")
        await first.delivery.approve()
        result = await finished(first, engine)
        told["approves at a gate"] = works(result.status == "draft" or result.status == "delivered", result.status)
        told["reads the end"] = works(result.head_sha == heads(origin)[result.branch], result.head_sha)
        told["reads its history"] = works(await first.delivery.past(), "read")
        told["finds one pull request"] = works(len(pulls(origin)) == 1, str(len(pulls(origin))))
        second = await finished(await engine.submit(origin, id="second", **BUILT), engine)
        told["delivers beside it"] = works(second.branch != result.branch, second.branch)
        built = await finished(await engine.submit(origin, id="built", phases=["build"], config=QUIET), engine)
        told["builds alone"] = works(built.status == "completed", built.status)
        third = await engine.submit(origin, id="third", **asked)
        await engine.handle("third").cancel()
        with pytest.raises(WorkflowFailureError):
            await engine.handle("third").result()
        told["cancels a delivery"] = works("perdure/third" not in heads(origin), third.delivery.id)
    return told


def _all_clients(at: Ground) -> dict[str, Seen]:
    return asyncio.run(_client_uses(Path(tempfile.mkdtemp(dir=at.root))))


def _client(name: str) -> Callable[[Ground], Seen]:
    return lambda at: at.once(_all_clients)[name]


_CLIENTS = (
    "reads what a delivery waits for", "follows its progress", "reads its request", "hands the same words in again", "lists deliveries", "says a word",
    "approves at a gate", "reads the end", "reads its history", "finds one pull request", "delivers beside it", "builds alone", "cancels a delivery",
)  # fmt: skip


def _case(group: str, name: str, use: Callable[[Ground], Seen], expected: str) -> Case:
    return Case(group, name, expected, use, benign=True)


CASES = (
    *(_case(PEER, f"a model with {name}", _model(name), "a reply") for name in MODELS),
    *(_case(PEER, name, _forge(name), "an answer") for name in FORGES),
    _case(PEER, "a model with a certificate that SSL_CERT_FILE vouches for", _vouched, "a reply"),
    *(_case(PAGE, name, _looks(*one), "200") for name, one in _LOOKS.items()),
    *(_case(OWNER, f"has {name} copied ([setup] copy)", _copies(name), "copied") for name in (".env", ".env.test", "config/local.toml", "a b/c d.txt", "é.txt", "deep/er/est/x")),
    _case(OWNER, "reads the key of the home", _home, "read"),
    _case(OWNER, "has a program whose key was taken from its environment", _program, "it has the key"),
    *(_case(OWNER, f"names a home that is {name}", _new_home(name), "taken") for name in ("new", "empty", "my home #1 50%")),
    _case(OWNER, "has user namespaces", _namespaces, "the full sandbox"),
    *(_case(CLIENT, name, _client(name), "it works") for name in _CLIENTS),
)  # fmt: skip
