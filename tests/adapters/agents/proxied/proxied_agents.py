"""Agents of the tests, the ledger they are answered by, and upstreams that play one answer after another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx2
from aiohttp import web
from anthropic import AsyncAnthropic

from perdure.adapters.agents.proxied.base import OnBegun, ProxiedReply, ProxiedRequest
from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import WIRE_VARIABLES, Upstream

KEY = "the-key-that-only-the-worker-has"
PLACEHOLDER = "placeholder"
Serve = Callable[..., Awaitable[Proxy]]


class Books:
    """A ledger in memory: what was kept is not asked for again.

    seen    every request, in order; `asked` those that went on
    gate    requests wait until it is set
    error   raised in place of a reply
    """

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, Any]] = {}
        self.seen: list[ProxiedRequest] = []
        self.asked: list[ProxiedRequest] = []
        self.replies: list[ProxiedReply] = []
        self.failures: list[BaseException] = []
        self.begun = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def reply(self, request: ProxiedRequest, ask: Callable[[OnBegun], Awaitable[ProxiedReply]]) -> ProxiedReply:
        self.seen.append(request)
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if request.key not in self.kept:
            self.asked.append(request)
            try:
                reply = await ask(self._on_begun)
            except BaseException as error:
                self.failures.append(error)
                raise
            self.replies.append(reply)
            self.kept[request.key] = json.loads(json.dumps(reply.to_json()))
        return ProxiedReply.from_json(self.kept[request.key])

    def _on_begun(self) -> None:
        self.begun += 1


def anthropic_agent(socket: Path, **options: Any) -> AsyncAnthropic:
    transport = httpx2.AsyncHTTPTransport(uds=str(socket))
    http = httpx2.AsyncClient(transport=transport, timeout=30)
    return AsyncAnthropic(
        api_key=PLACEHOLDER, base_url="http://model", http_client=http, **{"max_retries": 0, **options}
    )


class Played:
    """A server that gives one answer after another, the last one for ever; `calls` are (path, headers, body)."""

    def __init__(self, *answers: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, dict[str, str], Any]] = []

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    def upstream(self, wire: str, base: str = "", **options: Any) -> Upstream:
        variable, header = next(iter(WIRE_VARIABLES[wire].key_headers.items()))
        return Upstream(wire, self.url + base, KEY, variable=variable, header=header, **options)

    async def __aenter__(self) -> Played:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in http.headers.items()}
        self.calls.append((http.raw_path, headers, json.loads(await http.read() or b"null")))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(http)


def says(body: Any, status: int = 200, **headers: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """An answer of JSON."""

    async def answer(http: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def streams(
    *events: str, end: str = "", pause: asyncio.Event | None = None
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """An answer of server-sent events; with `pause` it waits for that before the last one."""

    async def answer(http: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(http)
        for number, event in enumerate(events):
            if pause is not None and number == len(events) - 1:
                await pause.wait()
            await response.write(event.encode())
        if end == "cut":
            assert http.transport is not None
            http.transport.abort()
        return response

    return answer


def event(name: str = "", **data: Any) -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"
