"""The pictures of docs/: a page with work on it, Temporal's Web UI, and a terminal, taken anew by `make screenshots`.

A real server, worker and browser; the model is the rehearsal. What is drawn is what stands there at that moment, so
identifiers, times and costs differ from run to run.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from playwright.async_api import Browser, async_playwright
from rich.ansi import AnsiDecoder
from rich.console import Console

from perdure.cli.look.top import HELP, table_lines
from perdure.client.server.overview import Overview
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.server import find_server
from perdure.page.server import serve_page
from tests import needs
from tests.e2e.test_backlogs import STORY, ended, night
from tests.engine import HAPPY, Engine, finished, make_target, until

PICTURES = Path(__file__).parent / "images"
WIDE, HIGH = 1280, 800
PORTS = 23100


async def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=needs.find_program("chromium"), args=["--no-sandbox"]
        )
        try:
            await deliveries(browser)
            await backlog(browser)
        finally:
            await browser.close()


async def deliveries(browser: Browser) -> None:
    """One that was delivered, one that waits with its plan; the page, the Web UI, the terminal."""
    with tempfile.TemporaryDirectory(prefix="perdure-shots-") as root:
        origin = make_target(Path(root) / "calc.git")
        async with Engine.open(Path(root), HAPPY, ports=PORTS) as engine:
            engine.worker()
            await finished(await engine.submit(origin), engine)
            waits = await engine.submit(origin, request="Add sub, with types", gates=["plan"], id="typed-sub")
            await until(lambda: _asked(engine, "typed-sub"))
            async with serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18950)) as page:
                await _shot(
                    browser,
                    page.address,
                    [(page.url, "page-inbox"), (f"{page.url}/deliveries/calc-sub", "page-delivery")],
                )
            server = await find_server(engine.home)
            assert server is not None
            ui = f"{server.ui_url}/namespaces/{server.namespace}/workflows"
            await _shot(browser, ui, [(f"{ui}/typed-sub", "web-ui-delivery")], "Waiting for you")
            await _terminal(browser, table_lines(await Overview(engine.client).rows(), 100))
            await waits.delivery.cancel()
            await finished(waits, engine)


async def backlog(browser: Browser) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-shots-") as root:
        origin = make_target(Path(root) / "calc.git")
        async with Engine.open(Path(root), STORY, ports=PORTS) as engine:
            engine.worker()
            await ended(await night(engine, origin), engine)
            async with serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18960)) as page:
                await _shot(browser, page.address, [(f"{page.url}/backlogs/night", "page-backlog")])


async def _asked(engine: Engine, id: str) -> object:
    return (await engine.perdure.delivery(id).describe()).pending_decision


async def _shot(browser: Browser, first: str, pages: list[tuple[str, str]], words: str = "") -> None:
    """Pictures of these pages, once what they load is there. `first`: opened before, for its cookie; `words`: seen on
    each of them when it has loaded."""
    context = await browser.new_context(viewport={"width": WIDE, "height": HIGH}, color_scheme="light")
    page = await context.new_page()
    await page.goto(first)
    await asyncio.sleep(2)
    for address, name in pages:
        await page.goto(address)
        if words:
            await page.get_by_text(words).first.wait_for(timeout=120_000)
        await asyncio.sleep(3)  # both pages go on to read after they have loaded
        await page.screenshot(path=PICTURES / f"{name}.png")
        print(f"docs/images/{name}.png")
    await context.close()


async def _terminal(browser: Browser, lines: list[str]) -> None:
    """`perdure top`, as a terminal of 100 columns shows it."""
    console = Console(record=True, width=100, file=io.StringIO())
    for text in AnsiDecoder().decode("\n".join(["$ perdure top", "", *lines, "", HELP])):
        console.print(text)
    context = await browser.new_context(viewport={"width": WIDE, "height": 360})
    page = await context.new_page()
    await page.set_content(console.export_svg(title="perdure top"))
    await page.locator("svg").screenshot(path=PICTURES / "terminal-top.png")
    print("docs/images/terminal-top.png")
    await context.close()


if __name__ == "__main__":
    asyncio.run(main())
