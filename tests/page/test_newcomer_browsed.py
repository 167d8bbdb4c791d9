"""The five tasks of somebody new, for real, in a real browser: by three clicks each from the first page, and by keys
alone. The browser itself counts the clicks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browsing import chromium, looking, question
from playwright.async_api import Locator, Page, expect

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests.engine import HAPPY, Engine, make_target, until
from tests.waiting import patient

CLICKS_MOST = 3
COUNTER = """addEventListener("click", event => {
    if (event.isTrusted && event.detail > 0) sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1
}, true)"""
"""A key that presses a button makes a click without detail: that is none of a mouse."""

SLOW = """
[[line]]
step = "fix_review"
use = [{ tool = "bash", input = { command = "sleep 300" } }]
"""
STORY = HAPPY.replace("[[line]]", f"{SLOW.strip()}\n[[line]]", 1)
BROKEN = "version = 1\n[setup]\ncommands = ['echo the compiler is missing >&2; exit 7']\n"
REASON = "the compiler is missing"


@dataclass
class Mouse:
    """A person who points and clicks, and types into what has the focus."""

    page: Page
    most = CLICKS_MOST
    least = 1

    async def press(self, target: Locator, key: str = "") -> None:
        await target.click()

    async def focus(self, target: Locator, key: str = "") -> None:
        await target.click()


@dataclass
class Keys:
    """A person without a mouse. `key` is the one that goes to the target, or one step towards it."""

    page: Page
    most = 0
    least = 0

    async def press(self, target: Locator, key: str = "Tab") -> None:
        await self.focus(target, key)
        await self.page.keyboard.press("Enter")

    async def focus(self, target: Locator, key: str = "Tab") -> None:
        await expect(target).to_be_visible()
        for _ in range(80):
            if await target.evaluate("one => one === document.activeElement"):
                break
            await self.page.keyboard.press(key)
        await expect(target).to_be_focused()


@asynccontextmanager
async def task(hand: Mouse | Keys) -> AsyncIterator[Page]:
    """Begin at the first page; afterwards the clicks since then are counted."""
    await hand.page.goto("/")
    await hand.page.evaluate("() => { sessionStorage.clicks = 0 }")
    yield hand.page
    clicks = int(await hand.page.evaluate("() => sessionStorage.clicks"))
    assert hand.least <= clicks <= hand.most, (hand, clicks)


async def asks(engine: Engine, id: str, gate: str) -> bool:
    described = await engine.perdure.delivery(id).describe()
    return described.pending_decision is not None and described.pending_decision.gate == gate


def done(page: Page, words: str) -> Any:
    return expect(page.get_by_role("status").filter(has_text=words)).to_be_visible()


@pytest.mark.timeout(400)
async def test_what_a_newcomer_has_to_do_takes_three_clicks_from_the_first_page_and_can_be_done_by_keys(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, STORY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19800)) as served,
        chromium() as browser,
    ):
        engine.worker()
        broken = await engine.submit(origin, id="broken", request="Break it", config=BROKEN)
        for way in (Mouse, Keys):
            await engine.submit(origin, id=way.__name__, request="Add sub", gates=["plan", "pull_request"])
        for way in (Mouse, Keys):
            id = way.__name__
            async with looking(browser, served, base_url=served.url) as page:
                await page.add_init_script(COUNTER)
                hand = way(page)
                await until(lambda id=id: asks(engine, id, "plan"), timeout=120)  # type: ignore[misc]

                async with task(hand):  # what waits?
                    await hand.press(question(page, id), "j")
                    await expect(page.get_by_role("heading", level=1)).to_contain_text("Plan")

                async with task(hand):  # approve a plan after editing it
                    await hand.press(question(page, id), "j")
                    await hand.press(page.get_by_text("Edit plan"), "j")
                    plan = page.get_by_label("The plan as text")
                    await expect(plan).to_be_focused()
                    text = await plan.input_value()
                    await page.keyboard.press("Control+A")
                    await page.keyboard.insert_text(text.replace("title: Add sub", f"title: Edited by {id}"))
                    await hand.press(page.get_by_role("button", name="Approve as edited"))
                    await done(page, "approved: plan")
                await until(lambda id=id: asks(engine, id, "pull_request"), timeout=120)  # type: ignore[misc]
                await page.goto(f"/deliveries/{id}/plan")
                await expect(page.get_by_text(f"Edited by {id}").first).to_be_visible()

                async with task(hand):  # reject a change with words
                    await hand.press(question(page, id), "j")
                    await hand.focus(page.get_by_label("Comment"), "r")
                    await expect(page.get_by_label("Comment")).to_be_focused()
                    await page.keyboard.type("say what it is for")
                    await hand.press(page.get_by_role("button", name="Reject commit"))
                    await done(page, "rejected: pull request")

                async with task(hand):  # stop one that costs too much
                    card = page.locator("#board li", has=page.locator(f'a[href="/deliveries/{id}"]'))
                    await expect(card).to_contain_text("$")
                    await hand.press(card.get_by_role("link"), "j")
                    await hand.press(page.get_by_role("button", name="Cancel"), "r")
                    await done(page, "it was asked to stop")
                await expect(page.locator(".pill").get_by_text("cancelled")).to_be_visible()

                async with task(hand):  # why has one failed? And once more
                    card = page.locator(".failed", has=page.locator('a[href="/deliveries/broken"]'))
                    await hand.press(card.get_by_role("link"), "j")
                    await expect(page.get_by_text(REASON).first).to_be_visible()
                    first = (await broken.delivery.describe()).run_id
                    await hand.press(page.get_by_role("button", name="Retry"), "a")
                    await done(page, "it goes on from its last checkpoint")

                async def failed_again(first: str = first) -> bool:
                    described = await broken.delivery.describe()
                    return described.run_id != first and not described.running

                await until(failed_again, timeout=patient(60))
