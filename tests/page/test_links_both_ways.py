"""From Temporal's Web UI to the page and back, in a real browser, for a delivery that a real worker has prepared."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from browsing import PATIENCE_MS, chromium, looking
from playwright.async_api import Page, expect

from perdure.adapters.system.files import try_lock
from perdure.adapters.system.home import Home
from perdure.local.connect import web_ui_base_url
from perdure.local.page import ListenAddress, ensure_page_token, write_page_record
from perdure.local.page import ServedPage as Served
from perdure.local.places import Places
from perdure.local.server import find_server
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.server import serve_page
from tests.engine import HAPPY, Engine, make_target, until


@contextmanager
def kept(home: Home, page: Served) -> Iterator[None]:
    """As `perdure up` keeps it: recorded, and alive as long as its lock is held."""
    lock = try_lock(Places(home).page_lock)
    assert lock is not None
    write_page_record(home, page.url)
    try:
        yield
    finally:
        os.close(lock)


@pytest.mark.timeout(240)
async def test_the_web_ui_leads_to_the_page_and_the_page_to_the_web_ui_and_no_token_stands_in_between(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY, ports=ports) as engine,
        serve_page(
            engine.perdure,
            ensure_page_token(engine.home),
            ListenAddress(port=19000),
            await web_ui_base_url(engine.home),
        ) as page,
    ):
        with kept(engine.home, page):
            engine.worker()
            submitted = await engine.submit(origin, id="links (both)/ways", gates=["plan"])

            async def asked() -> PendingDecision | None:
                return (await submitted.delivery.describe()).pending_decision

            await until(asked)
            night = {"repository": str(origin), "items": [{"id": "sub", "request": "Add sub"}]}
            await engine.perdure.submit_backlog(night, id="night")

            async def linked() -> bool:
                told = await engine.handle("night").query("__temporal_workflow_metadata")
                return f"[on the page]({page.url}/backlogs/night)" in str(told)

            await until(linked)
        said = str(await engine.handle(submitted.delivery.id).query("__temporal_workflow_metadata"))
        address = f"{page.url}/deliveries/links%20%28both%29%2Fways"
        assert f"[on the page]({address})" in said
        assert ensure_page_token(engine.home) not in said
        server = await find_server(engine.home)
        assert server is not None
        async with chromium() as browser:
            stranger = await browser.new_context()
            refusal = await (await stranger.new_page()).goto(address)
            assert refusal is not None
            assert refusal.status == 401
            assert (
                "open the page by the address that perdure page prints: it has the token in it" in await refusal.text()
            )
            async with looking(browser, page) as tab:
                await tab.goto(address)
                await expect(tab.get_by_role("heading", level=1)).to_contain_text("Add sub")
                await tab.get_by_role("link", name="Web UI").click()
                await tab.get_by_role("tab", name="User Metadata").click(timeout=PATIENCE_MS)
                there = await followed(tab)
                await expect(there.get_by_role("heading", level=1)).to_contain_text("Add sub")
                assert there.url == address


async def followed(tab: Page) -> Page:
    """The page that the link in the details opens."""
    link = tab.frame_locator("iframe").last.get_by_role("link", name="on the page")
    async with tab.context.expect_page(timeout=PATIENCE_MS) as opened:
        await link.click()
    return await opened.value
