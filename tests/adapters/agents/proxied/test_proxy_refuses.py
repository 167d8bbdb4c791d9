"""The proxy refuses errands, wrong bodies, too many requests, and anything but asking the model."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx2
import pytest
from proxied_agents import KEY, Books, Played, Serve, says

from perdure.adapters.agents.proxied import proxy as proxied
from perdure.adapters.agents.proxied.base import REQUEST_BYTES, WireError
from perdure.adapters.agents.proxied.proxy import CONNECTIONS, REQUESTS, SOCKET_BACKLOG, Proxy
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, CHAT, GEMINI, RESPONSES
from perdure.adapters.agents.proxied.wires import WIRES
from perdure.adapters.agents.proxied.wires import request_fields as fields
from tests.waiting import patient

Http = Callable[[Proxy], httpx2.AsyncClient]
BODY = {"model": "claude-sonnet-5-5", "max_tokens": 10, "messages": [{"role": "user", "content": "Go."}]}
REPLY = {
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-5-5",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 5, "output_tokens": 3},
}
SENT = json.dumps(BODY).encode()
LENGTH = b"content-length: %d" % len(SENT)


async def raw(proxy: Proxy, *lines: bytes, body: bytes = SENT) -> bytes:
    """The answer to exactly these bytes, to the end of the connection or of its patience."""
    reader, writer = await asyncio.open_unix_connection(str(proxy.socket))
    try:
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        async with asyncio.timeout(patient(10)):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
            return head + await reader.readexactly(int(length.partition(b":")[2]))
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.close()


PATHS = [
    "/",
    "/v1/models",
    "/v1/files",
    "/v1/messages/",
    "/v1/messages/batches",
    "//v1/messages",
    "/v1//messages",
    "/v1/messages/../files",
    "/v1/%6dessages",
    "/v1/messages%2fbatches",
    "/v1/messages;x",
    "/v1/messages?key=1",
    "/v1/messages?beta=true&x=1",
    "/v1/messages?",
    "/V1/messages",
    "/rehearsal/report",
    "/v1/responses",
    "/v1/chat/completions",
    "/v1beta/models/m:generateContent",
    "@127.0.0.1/v1/messages",
]


@pytest.mark.parametrize("path", PATHS)
async def test_no_path_but_the_models_leads_anywhere(serve: Serve, books: Books, path: str) -> None:
    async with Played(says(REPLY)) as upstream:
        served = await serve(upstream.upstream(ANTHROPIC))
        answer = await raw(served, f"POST {path} HTTP/1.1".encode(), b"host: model", LENGTH)
    if path == "/v1/messages?":  # an empty question is none
        assert upstream.calls[0][0] == "/v1/messages"
        return
    assert answer.split(b" ")[1] in (b"404", b"400"), answer
    assert not upstream.calls
    assert not books.seen


@pytest.mark.parametrize(
    "path", ["/v1beta/models/../files:generateContent", "/v1beta/models/a%2f..:generateContent", "/v1/responses?x"]
)
@pytest.mark.parametrize("wire", [RESPONSES, CHAT, GEMINI])
async def test_nor_on_the_other_wires(serve: Serve, books: Books, wire: str, path: str) -> None:
    async with Played(says({})) as upstream:
        answer = await raw(await serve(upstream.upstream(wire)), f"POST {path} HTTP/1.1".encode(), b"host: m", LENGTH)
    assert answer.split(b" ")[1] in (b"404", b"400"), answer
    assert not upstream.calls


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
async def test_the_model_is_asked_by_post_alone(serve: Serve, books: Books, method: str) -> None:
    async with Played(says(REPLY)) as upstream:
        answer = await raw(
            await serve(upstream.upstream(ANTHROPIC)), f"{method} /v1/messages HTTP/1.1".encode(), b"host: m", body=b""
        )
    assert answer.split(b" ")[1] in (b"405", b"400"), answer
    assert not upstream.calls


@pytest.mark.parametrize(
    "line",
    [
        b"POST http://evil.example/v1/messages HTTP/1.1",
        b"POST http://127.0.0.1:1/v1/messages HTTP/1.1",
        b"POST https://evil.example/v1/messages HTTP/1.1",
        b"CONNECT evil.example:443 HTTP/1.1",
        b"POST * HTTP/1.1",
        b"POST /v1/messages\x00 HTTP/1.1",
        b"PRI * HTTP/2.0",
    ],
)
async def test_an_address_in_place_of_a_path_is_refused(serve: Serve, books: Books, line: bytes) -> None:
    async with Played(says(REPLY)) as upstream:
        answer = await raw(await serve(upstream.upstream(ANTHROPIC)), line, b"host: evil.example", LENGTH)
    assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404"), answer
    assert not upstream.calls
    assert not books.seen


@pytest.mark.parametrize("host", [b"evil.example", b"127.0.0.1:1", b"api.anthropic.com@evil.example", b""])
async def test_no_host_leads_elsewhere(serve: Serve, books: Books, host: bytes) -> None:
    async with Played(says(REPLY)) as upstream:
        answer = await raw(
            await serve(upstream.upstream(ANTHROPIC)),
            b"POST /v1/messages HTTP/1.1",
            b"host: " + host,
            b"x-forwarded-host: evil.example",
            b"forwarded: host=evil.example",
            LENGTH,
        )
        own = upstream.url.removeprefix("http://")
    if upstream.calls:
        headers = upstream.calls[0][1]
        assert headers["host"] == own
        assert not {"x-forwarded-host", "forwarded"} & set(headers)
    else:
        assert b" 400 " in answer


async def test_no_header_takes_the_keys_place_or_stands_beside_it(serve: Serve) -> None:
    async with Played(says(REPLY)) as upstream:
        answer = await raw(
            await serve(upstream.upstream(ANTHROPIC)),
            b"POST /v1/messages HTTP/1.1",
            b"host: m",
            b"x-api-key: mine",
            b"X-Api-Key: mine too",
            b"Authorization: Bearer mine",
            b"proxy-authorization: Basic mine",
            b"cookie: mine",
            b"anthropic-workspace: mine",
            b"anthropic-beta: a",
            b"connection: anthropic-beta, x-api-key",
            LENGTH,
        )
        assert b" 200 " in answer
    headers = upstream.calls[0][1]
    assert headers["x-api-key"] == KEY
    assert "mine" not in str(headers)


@pytest.mark.parametrize(
    "lines",
    [
        [LENGTH, b"transfer-encoding: chunked"],
        [LENGTH, b"content-length: 5"],
        [b"content-length: -1"],
        [b"content-length: 5, 6"],
        [b"transfer-encoding: chunked, identity"],
        [LENGTH, b"x-a: b\nx-api-key: mine"],
        [LENGTH, b"bad header"],
        [LENGTH, b"x-long: " + b"a" * 100_000],
        [LENGTH, *[b"x-%d: a" % number for number in range(1000)]],
    ],
)
async def test_a_request_that_can_be_read_in_two_ways_is_refused(
    serve: Serve, books: Books, lines: list[bytes]
) -> None:
    async with Played(says(REPLY)) as upstream:
        served = await serve(upstream.upstream(ANTHROPIC))
        answer = await raw(served, b"POST /v1/messages HTTP/1.1", b"host: m", *lines)
        assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0], answer
        assert not upstream.calls


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c", b"TLS/1.0"])
async def test_no_other_protocol_is_spoken(serve: Serve, books: Books, protocol: bytes) -> None:
    async with Played(says(REPLY)) as upstream:
        answer = await raw(
            await serve(upstream.upstream(ANTHROPIC)),
            b"POST /v1/messages HTTP/1.1",
            b"host: m",
            b"connection: upgrade",
            b"upgrade: " + protocol,
            LENGTH,
        )
    assert b" 400 " in answer.split(b"\r\n")[0], answer
    assert not upstream.calls


async def test_a_body_larger_than_the_model_takes_is_refused_as_it_comes(
    serve: Serve, http: Http, books: Books
) -> None:
    async def endless() -> Any:
        for _ in range(REQUEST_BYTES // 1_000_000 + 10):
            yield b"a" * 1_000_000

    async with Played(says(REPLY)) as upstream:
        served = await serve(upstream.upstream(ANTHROPIC))
        answer = await http(served).post("/v1/messages", content=endless())
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
        told = await raw(served, b"POST /v1/messages HTTP/1.1", b"host: m", b"content-length: 99999999999", body=b"a")
        assert b" 413 " in told
        assert (await http(served).post("/v1/messages", json=BODY)).status_code == 200
    assert len(upstream.calls) == 1


async def test_a_body_that_does_not_come_is_not_waited_for(
    serve: Serve, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxied, "REQUEST_READ_S", 0.3)
    async with Played(says(REPLY)) as upstream:
        answer = await raw(
            await serve(upstream.upstream(ANTHROPIC)),
            b"POST /v1/messages HTTP/1.1",
            b"host: m",
            b"content-length: 500",
            body=b'{"model":',
        )
    assert b" 408 " in answer.split(b"\r\n")[0], answer
    assert not upstream.calls


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"model": NaN}',
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"model": "m", "messages": "text"}',
        b'{"model": "m", "messages": [1]}',
        b'{"model": "m", "messages": []}',
        b'{"model": 5, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "m", "max_tokens": -1, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "m", "max_tokens": true, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "m", "max_tokens": 1, "tools": {"a": 1}, "messages": [{"role": "user", "content": "a"}]}',
        b'{"model": "m", "n": ' + b"9" * 10_000 + b"}",
    ],
)
@pytest.mark.parametrize("wire", [ANTHROPIC, RESPONSES, CHAT, GEMINI])
async def test_what_is_no_request_is_refused_in_the_words_of_the_wire(
    serve: Serve, http: Http, books: Books, wire: str, body: bytes
) -> None:
    paths = {
        ANTHROPIC: "/v1/messages",
        RESPONSES: "/v1/responses",
        CHAT: "/v1/chat/completions",
        GEMINI: "/v1beta/models/m:generateContent",
    }
    async with Played(says(REPLY)) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(paths[wire], content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert not upstream.calls
    assert not books.seen


@pytest.mark.parametrize("packed", ["gzip", "deflate", "br", "zstd"])
async def test_a_packed_request_is_not_unpacked(serve: Serve, http: Http, packed: str) -> None:
    async with Played(says(REPLY)) as upstream:
        client = http(await serve(upstream.upstream(ANTHROPIC)))
        answer = await client.post("/v1/messages", content=SENT, headers={"content-encoding": packed})
    assert answer.status_code == 400
    assert not upstream.calls


ASIDE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "mcp_servers": (
        ANTHROPIC,
        {**BODY, "mcp_servers": [{"type": "url", "url": "https://evil.example"}], "container": "c"},
        BODY,
    ),
    "web_search": (
        ANTHROPIC,
        {
            **BODY,
            "tools": [{"type": "web_search_20250305", "name": "web_search"}, {"name": "bash", "input_schema": {}}],
        },
        {**BODY, "tools": [{"name": "bash", "input_schema": {}}]},
    ),
    "web_fetch alone": (
        ANTHROPIC,
        {**BODY, "tools": [{"type": "web_fetch_20250910", "name": "w"}], "tool_choice": {"type": "any"}},
        BODY,
    ),
    "responses": (
        RESPONSES,
        {
            "model": "m",
            "input": "a",
            "tools": [
                {"type": "web_search"},
                {"type": "mcp", "server_url": "https://evil.example"},
                {"type": "code_interpreter", "container": {"type": "auto"}},
                {"type": "shell", "environment": {"type": "container_auto"}},
                {"type": "namespace", "name": "n", "tools": [{"type": "mcp"}, {"type": "function", "name": "f"}]},
            ],
        },
        {
            "model": "m",
            "input": "a",
            "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}],
        },
    ),
    "responses, tools that a search has found": (
        RESPONSES,
        {
            "model": "m",
            "input": [{"type": "tool_search_output", "tools": [{"type": "mcp", "server_url": "https://evil.example"}]}],
        },
        {"model": "m", "input": [{"type": "tool_search_output", "tools": []}]},
    ),
    "chat": (
        CHAT,
        {
            "model": "m",
            "messages": [{"role": "user", "content": "a", "audio": {"id": "x"}}],
            "plugins": [{"id": "web"}],
            "models": ["dear"],
            "route": "fallback",
            "web_search_options": {},
            "tools": [
                {"type": "web_search"},
                {"type": "function", "function": {"name": "f"}, "server": "evil.example"},
            ],
        },
        {
            "model": "m",
            "messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
    ),
    "gemini, settings": (
        GEMINI,
        {
            "contents": [{"parts": [{"text": "a"}]}],
            "labels": {"a": "b"},
            "generationConfig": {"temperature": 1, "speechConfig": {"a": 1}, "responseModalities": ["IMAGE"]},
            "toolConfig": {"retrievalConfig": {"latLng": {}}},
        },
        {"contents": [{"parts": [{"text": "a"}]}], "generationConfig": {"temperature": 1}, "toolConfig": {}},
    ),
    "gemini": (
        GEMINI,
        {"contents": [{"parts": [{"text": "a"}]}], "tools": [{"googleSearch": {}}, {"urlContext": {}}]},
        {"contents": [{"parts": [{"text": "a"}]}], "tools": []},
    ),
}


@pytest.mark.parametrize("case", list(ASIDE))
async def test_the_apis_own_servers_get_no_errand(serve: Serve, http: Http, case: str) -> None:
    wire, body, expected = ASIDE[case]
    paths = {ANTHROPIC: "/v1/messages", RESPONSES: "/v1/responses", GEMINI: "/v1beta/models/m:generateContent"}
    paths[CHAT] = "/v1/chat/completions"
    async with Played(says(REPLY)) as upstream:
        await http(await serve(upstream.upstream(wire))).post(paths[wire], json=body)
    assert upstream.calls[0][2] == expected


URL = "https://evil.example/?secret"
FETCHED: dict[str, tuple[str, dict[str, Any]]] = {
    "image": (
        "/v1/messages",
        {**BODY, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": URL}}]}]},
    ),
    "image in a result": (
        "/v1/messages",
        {
            **BODY,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "a",
                            "content": [{"type": "document", "source": {"type": "url", "url": URL}}],
                        }
                    ],
                }
            ],
        },
    ),
    "responses": (
        "/v1/responses",
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]},
    ),
    "responses, a file": (
        "/v1/responses",
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_file", "file_url": URL}]}]},
    ),
    "responses, a file of the account": (
        "/v1/responses",
        {"model": "m", "input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]},
    ),
    "responses, what somebody else said": ("/v1/responses", {"model": "m", "input": "a", "previous_response_id": "r"}),
    "responses, in the background": ("/v1/responses", {"model": "m", "input": "a", "background": True}),
    "chat": (
        "/v1/chat/completions",
        {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}]},
    ),
    "chat, many replies": (
        "/v1/chat/completions",
        {"model": "m", "n": 99, "messages": [{"role": "user", "content": "a"}]},
    ),
    "gemini": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"fileData": {"fileUri": URL}}]}]},
    ),
    "gemini, settings under another name": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"text": "a"}]}], "generationConfig": {"candidate_count": 8}},
    ),
    "gemini, under another name": (
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"text": "a"}]}], "generation_config": {"candidate_count": 8}},
    ),
}


PLACES = {
    "/v1/messages": (ANTHROPIC, fields.ANTHROPIC, BODY),
    "/v1/responses": (RESPONSES, fields.RESPONSES, {"model": "m", "input": [{"role": "user", "content": "a"}]}),
    "/v1/chat/completions": (CHAT, fields.CHAT, {"model": "m", "messages": [{"role": "user", "content": "a"}]}),
    "/v1beta/models/m:generateContent": (GEMINI, fields.GEMINI, {"contents": [{"parts": [{"text": "a"}]}]}),
}


def places(shape: fields.Shape, depth: int = 4) -> Iterator[tuple[str, ...]]:
    """The paths of all objects that may stand in a body."""
    for name, kind in shape.items():
        if isinstance(kind, Mapping) and depth:
            yield (name,)
            yield from ((name, *rest) for rest in places(kind, depth - 1))


@pytest.mark.parametrize("path", list(PLACES))
def test_no_object_at_any_depth_names_an_address_or_a_file(path: str) -> None:
    wire, shape, body = PLACES[path]
    route = WIRES[wire].find_route(path, "")
    assert route is not None
    count = 0
    for place in places(shape):
        for remote in (
            {"type": "url", "url": URL},
            {"type": "file", "file_id": "file-1"},
            {"type": "container_upload", "file_id": "file-1"},
            {"fileData": {"fileUri": URL}},
            {"type": "image_url", "image_url": URL},
        ):
            value: Any = remote
            for name in reversed(place[1:]):
                value = {name: [value]}
            with pytest.raises(WireError, match="by its address"):
                WIRES[wire].parse_request(route, {**body, place[0]: [value]})
            count += 1
    assert count > 50


def test_pictures_and_files_that_are_in_the_request_are_sent() -> None:
    data = "data:image/png;base64,AA=="
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    document = {"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": source}]}}
    nested: dict[str, Any] = {"$ref": "https://json-schema.org/", "url": URL, "file_id": "x"}
    call = {"type": "tool_use", "id": "a", "name": "fetch", "input": nested}
    sent = {
        "/v1/messages": {
            "messages": [{"role": "user", "content": [document, {"type": "image", "source": source}, call]}],
            "tools": [{"name": "fetch", "input_schema": nested}],
        },
        "/v1/responses": {
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": data}]},
                {"type": "function_call", "call_id": "a", "name": "f", "arguments": json.dumps(nested)},
            ]
        },
        "/v1/chat/completions": {
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data}}]}]
        },
        "/v1beta/models/m:generateContent": {
            "contents": [
                {"parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
                {"parts": [{"functionCall": {"name": "f", "args": nested}}]},
                {"parts": [{"functionResponse": {"name": "f", "response": nested}}]},
            ]
        },
    }
    for path, (wire, _, body) in PLACES.items():
        route = WIRES[wire].find_route(path, "")
        assert route is not None
        assert WIRES[wire].parse_request(route, {**body, **sent[path]}).body == {**body, **sent[path]}


async def test_a_request_nested_too_deeply_is_refused(serve: Serve, http: Http, books: Books) -> None:
    deep: Any = "a"
    for _ in range(300):
        deep = [{"content": deep}]
    async with Played(says(REPLY)) as upstream:
        asked = {**BODY, "messages": deep}
        answer = await http(await serve(upstream.upstream(ANTHROPIC))).post("/v1/messages", json=asked)
    assert answer.status_code == 400
    assert not upstream.calls


@pytest.mark.parametrize("case", list(FETCHED))
async def test_what_the_api_would_fetch_or_has_kept_is_refused(
    serve: Serve, http: Http, books: Books, case: str
) -> None:
    path, body = FETCHED[case]
    wires = {"/v1/messages": ANTHROPIC, "/v1/responses": RESPONSES, "/v1/chat/completions": CHAT}
    async with Played(says(REPLY)) as upstream:
        answer = await http(await serve(upstream.upstream(wires.get(path, GEMINI)))).post(path, json=body)
    assert answer.status_code == 400
    assert not upstream.calls
    assert not books.seen


async def test_many_connections_cost_the_worker_no_more_than_a_few(serve: Serve, http: Http, books: Books) -> None:
    async with Played(says(REPLY)) as upstream:
        served = await serve(upstream.upstream(ANTHROPIC))
        opened = []
        for _ in range(CONNECTIONS + 3 * SOCKET_BACKLOG):
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, str(served.socket))
            opened.append(one)
        await asyncio.sleep(0.3)
        assert served._runner is not None
        assert served._runner.server is not None
        assert len(served._runner.server.connections) <= CONNECTIONS + SOCKET_BACKLOG
        for one in opened:
            one.close()
        async with asyncio.timeout(patient(30)):
            while served._runner.server.connections:
                await asyncio.sleep(0.05)
        assert (await http(served).post("/v1/messages", json=BODY)).status_code == 200


async def test_more_requests_at_a_time_than_an_agent_has_are_told_to_come_again(
    serve: Serve, http: Http, books: Books
) -> None:
    books.gate.clear()
    async with Played(says(REPLY)) as upstream:
        client = http(await serve(upstream.upstream(ANTHROPIC)))
        waiting = [
            asyncio.ensure_future(client.post("/v1/messages", json={**BODY, "max_tokens": number + 1}))
            for number in range(REQUESTS)
        ]
        async with asyncio.timeout(patient(30)):
            while len(books.seen) < REQUESTS:
                await asyncio.sleep(0.01)
        refused = await client.post("/v1/messages", json={**BODY, "max_tokens": 999})
        assert refused.status_code == 529
        assert refused.headers["retry-after"] == "1"
        books.gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def test_what_is_sent_is_what_was_understood(serve: Serve, http: Http) -> None:
    """A field that is there twice is read as one by some and as the other by others."""
    twice = (
        b'{"model":"a","mcp_servers":[],"model":"claude-sonnet-5-5","max_tokens":10,"messages":[{"content":"\\ud800"}]}'
    )
    async with Played(says(REPLY)) as upstream:
        answer = await http(await serve(upstream.upstream(ANTHROPIC))).post("/v1/messages", content=twice)
    assert answer.status_code == 200
    assert list(upstream.calls[0][2]) == ["model", "max_tokens", "messages"]
    assert upstream.calls[0][2]["model"] == "claude-sonnet-5-5"
