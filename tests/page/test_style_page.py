"""The page of components: in a real browser, each scheme and width in a frame."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import chromium, looking
from playwright.async_api import expect
from temporalio.client import Client
from visitors import visiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.page.server import serve_page
from perdure.plugin import perdure_plugin
from tests.temporal_server import joined


@pytest.mark.timeout(120)
async def test_each_component_is_shown_in_both_schemes_and_two_widths_to_who_has_the_token(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with joined(home):
        info = await find_server(home)
        assert info is not None
        client = await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])
        async with serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=18970)) as page:
            async with visiting(page, enters=False) as stranger:
                for path in ("/style", "/style/dark", "/style/dark/page.css"):
                    assert (await stranger.get(path))[0] == 401, path
            async with visiting(page) as ada:
                assert (await ada.get("/style/dark/page.js"))[0] == 404
                assert (await ada.get("/style/sepia"))[0] == 404
            async with chromium() as browser, looking(browser, page) as person:
                await person.goto(f"{page.url}/style")
                await expect(person.locator("iframe")).to_have_count(4)
                grounds = []
                for number, width in enumerate((860, 360, 860, 360)):
                    frame = person.frame_locator("iframe").nth(number)
                    body = frame.locator("body")
                    await expect(frame.get_by_role("form", name="Decision")).to_have_count(6)
                    await expect(frame.get_by_role("heading", name="Conversation")).to_be_visible()
                    grounds.append(await body.evaluate("one => getComputedStyle(one).backgroundColor"))
                    assert await body.evaluate("() => document.documentElement.scrollWidth") <= width
                assert grounds[0] == grounds[1] != grounds[2] == grounds[3]
