"""A proxy on a socket of its own before an upstream, with a ledger in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from proxied_agents import Books, Serve, anthropic_agent

from perdure.adapters.agents.proxied.base import Ledger
from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import Upstream
from perdure.adapters.agents.proxied.wires import WIRES


@pytest.fixture
def books() -> Books:
    return Books()


@pytest.fixture
async def serve(tmp_path: Path, books: Books) -> AsyncIterator[Serve]:
    """`await serve(upstream)` starts a proxy; all end with the test."""
    async with AsyncExitStack() as stack:

        async def start(upstream: Upstream, ledger: Ledger | None = None, name: str = "model.sock") -> Proxy:
            proxy = Proxy(tmp_path / name, upstream, WIRES[upstream.wire], ledger or books)
            return await stack.enter_async_context(proxy)

        yield start


@pytest.fixture
async def agent() -> AsyncIterator[Callable[..., Any]]:
    """`agent(proxy)`: the vendor's client, which knows nothing but the socket."""
    async with AsyncExitStack() as stack:

        def connect(proxy: Proxy, **options: Any) -> Any:
            client = anthropic_agent(proxy.socket, **options)
            stack.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
async def http() -> AsyncIterator[Callable[[Proxy], httpx2.AsyncClient]]:
    """`http(proxy)`: a plain client at the socket."""
    async with AsyncExitStack() as stack:

        def connect(proxy: Proxy) -> httpx2.AsyncClient:
            transport = httpx2.AsyncHTTPTransport(uds=str(proxy.socket))
            client = httpx2.AsyncClient(transport=transport, base_url="http://model", timeout=30)
            stack.push_async_callback(client.aclose)
            return client

        yield connect
