"""A real browser at the page: one for a test module, everybody in a context of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin

from playwright.async_api import Browser, Page, async_playwright, expect

from perdure.local.page import ServedPage as Served
from tests import needs
from tests.guide import installed
from tests.waiting import patient

PATIENCE_MS = patient(60) * 1000
AXE = "axe-core@4.14.1"
TELEPHONE = {"width": 360, "height": 740}


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's; the running test is left out, loudly, where there is none."""
    needs.require("chromium")
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=needs.find_program("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=PATIENCE_MS,
        )
        try:
            yield started
        finally:
            await started.close()


@asynccontextmanager
async def looking(browser: Browser, served: Served, **context: Any) -> AsyncIterator[Page]:
    """A person with the page open; whatever its own policy or scripts complain of fails the test."""
    wrong: list[str] = []
    opened = await browser.new_context(viewport=context.pop("viewport", {"width": 1200, "height": 900}), **context)
    opened.set_default_timeout(PATIENCE_MS)
    page = await opened.new_page()
    # Temporal's Web UI, where a link leads, has scripts of its own, which complain on a busy machine.
    page.on("pageerror", lambda error: wrong.append(str(error)) if page.url.startswith(served.url) else None)
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("dialog", lambda dialog: wrong.append(f"a dialog: {dialog.message}"))
    try:
        await page.goto(served.address)
        await page.wait_for_url(f"{served.url}/")
        yield page
    finally:
        await opened.close()
    assert not wrong, wrong


def question(page: Page, id: str) -> Any:
    """The line of the inbox about one delivery that waits: a link to its review."""
    return page.locator(f'.question a[href="/deliveries/{quote(id, safe="")}/decide"]')


async def open_review(page: Page, id: str) -> Any:
    """Open a question from the inbox, wherever the page is, and return the bar in which it is decided."""
    inbox = urljoin(page.url, "/")
    if page.url.partition("?")[0] != inbox:
        await page.goto(inbox)
    await question(page, id).click()
    bar = page.get_by_role("form", name="Decision")
    await expect(bar).to_be_visible()
    return bar


def axe_script(base: Path) -> str:
    """The script of axe, installed once below this directory of a test run."""
    folder = base / "axe"
    if not (folder / "node_modules").exists():
        installed(folder, AXE)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


async def check_accessible(page: Page, script: str, rules: Sequence[str] = ()) -> None:
    """Axe finds nothing on the page with all of it opened, by these rules of its or by all; and the page is no wider
    than its window."""
    await page.evaluate("() => document.querySelectorAll('details').forEach(one => { one.open = true })")
    width, window = await page.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= window, page.url
    await page.add_script_tag(content=script)
    asked = "async rules => (await axe.run(rules.length ? { runOnly: rules } : {})).violations"
    found = await page.evaluate(asked, list(rules))
    assert not found, [(page.url, one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found]
