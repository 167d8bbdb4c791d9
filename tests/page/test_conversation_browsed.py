"""A delivery's page in a real browser while it runs, for real, and after its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from browsing import TELEPHONE, axe_script, check_accessible, chromium, looking
from playwright.async_api import expect

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests.engine import HAPPY, Engine, finished, make_target

HOSTILE = r"""printf '<script>alert(1)</script><img src=x onerror=alert(2)> \\u202edesrever \\033[31mred\\033[0m\\n'"""
STORY = HAPPY.replace("sleep 0.5", HOSTILE).replace('say = "Add sub', 'say = "Add <b>sub</b>')


@pytest.mark.timeout(240)
async def test_a_delivery_is_followed_told_something_and_read_again_afterwards(
    tmp_path: Path, ports: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    origin, script = make_target(tmp_path / "calc.git"), axe_script(tmp_path_factory.getbasetemp())
    async with (
        Engine.open(tmp_path, STORY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19600)) as served,
        chromium() as browser,
    ):
        submitted = await engine.submit(origin, request="Add sub", gates=["plan"])
        address = f"{served.url}/deliveries/calc-sub"
        async with looking(browser, served, viewport=TELEPHONE, color_scheme="light", bypass_csp=True) as page:
            await page.goto(address)
            box = page.get_by_label("Words for its next turn")
            await box.fill("mind the")
            engine.worker()
            reading = page.locator("details.call").filter(has_text="calc.py")
            await reading.locator("summary").click()
            await expect(reading.get_by_text("def add")).to_be_visible()
            await expect(page.get_by_role("link", name="Review and decide")).to_be_visible()
            await expect(page.locator("#heard")).to_contain_text("waits for a decision")
            await expect(reading.get_by_text("def add")).to_be_visible()
            await check_accessible(page, script)
            await expect(box).to_have_value("mind the")
            await box.press_sequentially(" sign")
            await page.get_by_role("button", name="Say").click()
            await expect(page.get_by_label("What it was told")).to_contain_text("mind the sign not read yet")
            await submitted.delivery.approve()
            await expect(page.get_by_text("read what it was told")).to_be_visible()
            await expect(page.get_by_text("✓ files changed")).to_be_visible()
            await expect(page.locator(".pill").get_by_text("delivered")).to_be_visible()
            assert await page.locator(".turn .about", has_text="implement, turn 2").count() == 1
        await finished(submitted, engine)
        async with looking(browser, served, color_scheme="dark", bypass_csp=True, reduced_motion="reduce") as page:
            await page.goto(address)
            call = page.locator("details.call").filter(has_text="1 file changed")
            await call.locator("summary").click()
            await expect(call).to_contain_text("<script>alert(1)</script><img src=x onerror=alert(2)> desrever red")
            await expect(call.locator(".diff .added").filter(has_text="def sub")).to_be_visible()
            await expect(page.get_by_text("Add <b>sub</b>", exact=False).first).to_be_visible()
            assert await page.locator("main script, main img, main b").count() == 0
            await check_accessible(page, script)
            await page.get_by_role("link", name="Rewind or fork before implement, turn 2").click()
            await expect(page.get_by_role("button", name="Rewind to there")).to_be_visible()
            await expect(page.get_by_role("heading", name="Before implement:2")).to_be_visible()
            for part in ("Timeline", "Plan", "Change", "Tests", "Review", "Cost"):
                await page.get_by_role("navigation", name="Parts").get_by_role("link", name=part).click()
                await check_accessible(page, script)
