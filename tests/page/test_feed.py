"""Activity of everything, followed once however many look, and not at all when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from temporalio.client import Client, Interceptor, OutboundInterceptor
from visitors import PLAN, Visitor, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.page.server import serve_page
from perdure.plugin import perdure_plugin
from tests.engine import until
from tests.temporal_server import joined
from tests.waiting import patient

VIEWERS = 5


class Followed(Interceptor):
    """The histories that are being followed, by the id of their delivery, each as often as it is."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        followed = self.ids

        class Noting(OutboundInterceptor):
            def fetch_workflow_history_events(self, input: Any) -> Any:
                if input.wait_new_event:
                    followed.append(input.id)
                return super().fetch_workflow_history_events(input)

        return Noting(next)


@contextlib.asynccontextmanager
async def looks(visitor: Visitor) -> AsyncIterator[list[str]]:
    """All that somebody's browser is sent while it shows the activity: the events' rows."""
    rows: list[str] = []

    async def read(answer: aiohttp.ClientResponse) -> None:
        async for chunk in answer.content:
            rows.append(chunk.decode())

    async with visitor.session.get(visitor.page.url + "/live/activity", timeout=aiohttp.ClientTimeout(None)) as answer:
        assert answer.status == 200
        reading = asyncio.create_task(read(answer))
        try:
            yield rows
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.timeout(240)
async def test_many_who_look_cost_what_one_does_and_each_reads_every_event_once(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with joined(home), contextlib.AsyncExitStack() as stack:
        info = await find_server(home)
        assert info is not None
        seen = Followed()
        client = await Client.connect(
            info.address, namespace=info.namespace, plugins=[perdure_plugin()], interceptors=[seen]
        )
        await stands_waiting(client, "before", PLAN)
        page = await stack.enter_async_context(
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=19300))
        )
        visitors = [await stack.enter_async_context(visiting(page)) for _ in range(VIEWERS)]
        shown = [await stack.enter_async_context(looks(one)) for one in visitors]
        await until(lambda: "before" in seen.ids, patient(60))
        await stands_waiting(client, "after", PLAN)
        for rows in shown:
            await until(lambda rows=rows: "after" in "".join(rows), patient(60))  # type: ignore[misc]
            assert "".join(rows).count("id: ") == 1, "once, and nothing of what was before"
        assert sorted(seen.ids) == ["after", "before"], "each history is followed once, for all of them"
        await stack.aclose()
        await until(lambda: not any("_follow" in repr(task.get_coro()) for task in asyncio.all_tasks()), patient(60))
