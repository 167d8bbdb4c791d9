"""A Temporal server that takes its time does not make a person wait who opens the page."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from temporalio.client import Client
from visitors import PLAN, stands_waiting, visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.client.server.overview import ANSWER_S
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import ensure_server, stop_server
from perdure.page.server import serve_page
from perdure.plugin import perdure_plugin
from tests.waiting import until


@pytest.mark.timeout(120)
async def test_what_was_seen_a_moment_ago_is_shown_at_once_and_the_trouble_once_it_is_known(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    info = await ensure_server(home, say=lambda _: None)
    try:
        client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
        await stands_waiting(client, "seen-before", PLAN)
        async with (
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=19100)) as page,
            visiting(page) as ada,
        ):

            async def shown() -> bool:
                return "seen-before" in (await ada.get("/"))[1]

            await until(shown)
            os.kill(info.pid, signal.SIGSTOP)
            await asyncio.sleep(2.5)  # longer ago than a page may be at first without a look
            began = time.monotonic()
            status, text = await ada.get("/")
            assert time.monotonic() - began < ANSWER_S / 2, "it waited for the look"
            assert (status, "seen-before" in text, "does not answer" in text) == (200, True, False)
            await asyncio.sleep(ANSWER_S)
            _, text = await ada.get("/")
            assert "seen-before" in text
            assert "Temporal does not answer" in text
            os.kill(info.pid, signal.SIGCONT)

            async def back() -> bool:
                return "does not answer" not in (await ada.get("/"))[1]

            await until(back, 40)
    finally:
        os.kill(info.pid, signal.SIGCONT)
        await stop_server(home)
