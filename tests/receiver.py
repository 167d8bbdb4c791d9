"""Somebody who is told: a real HTTP server that answers as a test wants, and keeps what it was sent."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes or so.").decode()


@dataclass(frozen=True)
class Told:
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


@dataclass
class Receiver:
    """`answers`: (status, headers) for the next requests, 204 when there are none left; status 0 never answers."""

    url: str = ""
    told: list[Told] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        self.told.append(Told(request.path, request.headers, await request.read()))
        status, headers = self.answers.pop(0) if self.answers else (204, {})
        if status == 0:
            await self.released.wait()
            status = 204
        return web.Response(status=status, headers=headers, text="" if status == 204 else "x" * 100_000)

    def of(self, event: str) -> list[Told]:
        return [told for told in self.told if told.json["event"] == event]

    @classmethod
    @asynccontextmanager
    async def open(cls) -> AsyncIterator[Receiver]:
        receiver = cls()
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", receiver.take)
        runner = web.AppRunner(application, shutdown_timeout=1, access_log=None)  # it would write the address
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        receiver.url = f"http://{host}:{port}"
        try:
            yield receiver
        finally:
            receiver.released.set()
            await runner.cleanup()


def genuine(told: Told, secret: str = SECRET) -> bool:
    """As a receiver checks it, by the words of the Standard Webhooks specification and nothing of ours."""
    message = b".".join([told.headers["webhook-id"].encode(), told.headers["webhook-timestamp"].encode(), told.body])
    mac = hmac.digest(base64.b64decode(secret[len("whsec_") :]), message, hashlib.sha256)
    wanted = "v1," + base64.standard_b64encode(mac).decode("ascii")
    return any(hmac.compare_digest(wanted, one) for one in told.headers["webhook-signature"].split(" "))
