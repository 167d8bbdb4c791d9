"""The pictures of docs/, and all pages in both colour schemes and two widths, taken anew by `make screenshots`.

A real server, worker and browser; the model is the rehearsal. What is drawn is what stands there at that moment, so
identifiers, times and costs differ from run to run. Those of docs/ go to docs/images, all others to the folder that is
given: they are to be looked at, one by one, after a change of the page.
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
from perdure.page.views.delivery import TABS
from tests import needs
from tests.e2e.test_backlogs import STORY, ended, night
from tests.engine import HAPPY, Engine, finished, make_target, until

PICTURES = Path(__file__).parent / "images"
WIDTHS = {"wide": (1280, 800), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
IN_DOCS = {"page-inbox", "page-review", "page-delivery", "page-backlog"}
PORTS = 23100

WORDS = """\
calc.py has add alone, so root goes below it. A negative number has no root among floats, so it raises ValueError, as \
math.sqrt does. First a test that fails: root(9) is 3, root(0) is 0, root(-1) raises. \
"""
"""Of a reply that takes longer than all pictures."""

MORE_LINES = """
[[line]]
step = "implement"
turn = 2
contains = ["Add power"]
use = [{ tool = "ask", input = { text = "What of an exponent below zero?", kind = "choice", choices = ["a fraction", "raise `ValueError`"], why = "Both are right somewhere, and callers see it." } }]
[[line]]
step = "implement"
turn = 2
contains = ["Add a square root"]
say = "WORDS"
seconds = 500
[[line]]
step = "review"
answer = { summary = "Right, with one thing for later.", issues = [{ title = "No negative case", description = "sub is tried with positive numbers alone.", severity = "tech_debt", file = "calc.py", line = 5, suggestion = "Try sub(2, 3), too." }] }
"""  # noqa: E501  an inline table of TOML is one line
PLAN = """
[[line]]
step = "plan"
contains = ["{title}"]
answer = {{ title = "{title}", problem = "There is none.", solution = "Write it below add, with a test.", relevant_files = ["calc.py"], tasks = [{{ title = "Write it", details = "Below add.", files = ["calc.py"] }}, {{ title = "Test it", details = "Also with zero.", files = ["tests/test_calc.py"] }}], validation = ["the tests pass"] }}
"""  # noqa: E501  as above
TITLES = ("Add sub, with types", "Add sub for reports", "Add power, for whole numbers", "Add a square root")
PLANS = "".join(PLAN.format(title=title) for title in TITLES)
STORIES = HAPPY.replace("[[line]]", f"{(PLANS + MORE_LINES).strip()}\n[[line]]", 1).replace("WORDS", 3 * WORDS)


async def main(folder: Path) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=needs.find_program("chromium"), args=["--no-sandbox"]
        )
        try:
            await take_delivery_pages(browser, folder)
            await take_backlog_pages(browser, folder)
        finally:
            await browser.close()


async def take_delivery_pages(browser: Browser, folder: Path) -> None:
    """One that was delivered, one at work and three that wait: the page, the Web UI, the terminal."""
    with tempfile.TemporaryDirectory(prefix="perdure-shots-") as root:
        origin = make_target(Path(root) / "calc.git")
        async with (
            Engine.open(Path(root), STORIES, ports=PORTS) as engine,
            serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18950)) as page,
        ):
            await _take_pictures(browser, folder, page.address, [(page.url, "page-empty")])
            engine.worker()
            await finished(await engine.submit(origin), engine)
            plan = await engine.submit(origin, request="Add sub, with types", gates=["plan"], id="typed-sub")
            pull = await engine.submit(origin, request="Add sub for reports", gates=["pull_request"], id="report-sub")
            question = await engine.submit(origin, request="Add power, for whole numbers", id="power")
            runs = await engine.submit(origin, request="Add a square root", id="square-root")
            for one in (plan, pull, question):
                await until(lambda one=one: _asked(engine, one.delivery.id), timeout=120)
            deliveries = f"{page.url}/deliveries"
            pages = [
                (page.url, "page-inbox"),
                (f"{deliveries}/typed-sub/decide", "page-review-of-a-plan"),
                (f"{deliveries}/report-sub/decide", "page-review"),
                (f"{deliveries}/power/decide", "page-question"),
                (f"{deliveries}/square-root", "page-delivery-at-work"),
                (f"{deliveries}/calc-sub", "page-delivery"),
                *((f"{deliveries}/calc-sub/{tab}", f"page-delivery-{tab}") for tab in TABS),
                (f"{page.url}/compare?one=calc-sub&other=report-sub", "page-compare"),
                *((f"{page.url}/{name}", f"page-{name}") for name in ("start", "activity", "history", "hosts")),
                (f"{page.url}/no-such-page", "page-error"),
            ]
            await _take_pictures(browser, folder, page.address, pages)
            server = await find_server(engine.home)
            assert server is not None
            ui = f"{server.ui_url}/namespaces/{server.namespace}/workflows"
            await _web_ui(browser, ui, "typed-sub")
            await _terminal(browser, table_lines(await Overview(engine.client).rows(), 100))
            for one in (plan, pull, question, runs):
                await one.delivery.cancel()
                await finished(one, engine)


async def take_backlog_pages(browser: Browser, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="perdure-shots-") as root:
        origin = make_target(Path(root) / "calc.git")
        async with Engine.open(Path(root), STORY, ports=PORTS) as engine:
            engine.worker()
            await ended(await night(engine, origin), engine)
            async with serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18960)) as page:
                await _take_pictures(browser, folder, page.address, [(f"{page.url}/backlogs/night", "page-backlog")])


async def _asked(engine: Engine, id: str) -> object:
    return (await engine.perdure.delivery(id).describe()).pending_decision


async def _take_pictures(browser: Browser, folder: Path, first: str, pages: list[tuple[str, str]]) -> None:
    """Take whole pages in both schemes and widths, and what a screen shows of those of docs/, in light.

    `first` is opened before, for its cookie.
    """
    for scheme in SCHEMES:
        for name_of_width, (width, height) in WIDTHS.items():
            context = await browser.new_context(
                viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = await context.new_page()
            await page.goto(first)
            await page.wait_for_url(lambda url: "token" not in url)
            for address, name in pages:
                await page.goto(address)
                await asyncio.sleep(2)  # the live parts come after the page has loaded
                if name in IN_DOCS and (scheme, name_of_width) == ("light", "wide"):
                    await page.screenshot(path=PICTURES / f"{name}.png")
                    print(f"docs/images/{name}.png")
                whole = int(await page.evaluate("() => document.documentElement.scrollHeight"))
                await page.set_viewport_size({"width": width, "height": max(height, whole)})
                await page.screenshot(path=folder / f"{name}-{scheme}-{name_of_width}.png")
                await page.set_viewport_size({"width": width, "height": height})
            await context.close()


async def _web_ui(browser: Browser, ui: str, id: str) -> None:
    """A delivery that waits, as Temporal's Web UI shows it once it has loaded."""
    width, height = WIDTHS["wide"]
    context = await browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
    page = await context.new_page()
    await page.goto(f"{ui}/{id}")
    await page.get_by_text("Waiting for you").first.wait_for(timeout=120_000)
    await asyncio.sleep(3)  # it goes on to read after it has loaded
    await page.screenshot(path=PICTURES / "web-ui-delivery.png")
    print("docs/images/web-ui-delivery.png")
    await context.close()


async def _terminal(browser: Browser, lines: list[str]) -> None:
    """`perdure top`, as a terminal of 100 columns shows it."""
    console = Console(record=True, width=100, file=io.StringIO())
    for text in AnsiDecoder().decode("\n".join(["$ perdure top", "", *lines, "", HELP])):
        console.print(text)
    context = await browser.new_context(viewport={"width": 1280, "height": 360})
    page = await context.new_page()
    await page.set_content(console.export_svg(title="perdure top"))
    await page.locator("svg").screenshot(path=PICTURES / "terminal-top.png")
    print("docs/images/terminal-top.png")
    await context.close()


if __name__ == "__main__":
    pages = Path(sys.argv[1])
    for folder in (PICTURES, pages):
        folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(main(pages))
