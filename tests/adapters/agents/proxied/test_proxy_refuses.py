"""A shell beside the agent has the socket, too: all it can do with it is ask the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx2
import pytest
from proxied_agents import KEY, Books, Played, Serve, says

from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import ANTHROPIC, CHAT, GEMINI, RESPONSES
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
