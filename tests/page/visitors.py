"""A page that listens, and what asks it: real HTTP, as a browser and as others send it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ServedPage, ensure_page_token
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.server import serve_page
from perdure.plugin import perdure_plugin

TIMEOUT = aiohttp.ClientTimeout(total=60)


@dataclass
class Visitor:
    """Somebody with a page before them, their cookies kept; redirects are theirs to follow."""

    session: aiohttp.ClientSession
    page: ServedPage

    async def get(self, path: str, headers: Mapping[str, str] = {}) -> tuple[int, str]:
        async with self.session.get(self.page.url + path, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def post(
        self, path: str, fields: Mapping[str, str], headers: Mapping[str, str] = {}, *, csrf: str | None = None
    ) -> tuple[int, str]:
        """`csrf` None: the field that this visitor's pages carry; empty: without one."""
        said = self.csrf if csrf is None else csrf
        sent = {**fields, **({"csrf": said} if said else {})}
        async with self.session.post(self.page.url + path, data=sent, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    csrf: str = ""

    async def enter(self) -> Visitor:
        """By the address that is printed."""
        status, text = await self.get(f"/?token={self.page.token}")
        assert (status, "/?token" in text) == (200, False), text
        status, text = await self.get("/no-such-page")
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', text)
        self.csrf = found[1] if found else ""
        return self


@asynccontextmanager
async def visiting(page: ServedPage, *, enters: bool = True) -> AsyncIterator[Visitor]:
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of addresses such as 127.0.0.1 too
    async with aiohttp.ClientSession(cookie_jar=jar, timeout=TIMEOUT) as session:
        visitor = Visitor(session, page)
        yield await visitor.enter() if enters else visitor


@asynccontextmanager
async def shut_page(root: Path, place: ListenAddress | None = None) -> AsyncIterator[ServedPage]:
    """A page with no Temporal behind it: for what never gets that far."""
    client = await Client.connect("127.0.0.1:1", lazy=True, plugins=[perdure_plugin()])
    async with serve_page(
        Perdure(client), ensure_page_token(Home(root / "home")), place or ListenAddress(port=18240)
    ) as page:
        yield page


PLAN = PendingDecision(
    gate="plan", target="1a2b3c4d", summary="approve the plan: Add sub", since=datetime(2026, 1, 2, tzinfo=UTC)
)


async def stands_waiting(client: Client, id: str, asked: PendingDecision | None, **attributes: Any) -> None:
    """A delivery that waits, as the server lists it; no worker has ever seen it."""
    pairs = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), value)
        for name, value in {"PerdureStatus": "waiting" if asked else "running", **attributes}.items()
    ]
    await client.start_workflow(
        "Delivery",
        {"repository": "https://example.org/calc.git", "request": "Add sub"},
        id=id,
        task_queue="nobody-works-here",
        memo={"asked": asked.model_dump(mode="json")} if asked else {},
        search_attributes=TypedSearchAttributes(pairs),
    )
