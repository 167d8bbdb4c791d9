"""The Web UI as a workplace: a delivery from its start to its end with a browser and nothing else."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

from perdure.local.server import find_server
from perdure.models.webui.details import compact_json, copyable_lines
from perdure.models.webui.markdown import escape_line
from tests import needs
from tests.engine import HAPPY, Engine, heads, make_target

PATIENCE_MS = 60_000
TOLD = "raise `ValueError`"

ASKING = HAPPY.replace(
    """step = "implement"
turn = 4
say""",
    """step = "implement"
turn = 4
use = [{ tool = "ask", input = { text = "What of `unsigned` | <b>values</b>?", kind = "choice", choices = ["wrap | around", "raise `ValueError`"], why = "It shows." } }]
[[line]]
step = "implement"
turn = 5
say""",  # noqa: E501  an inline table of TOML is one line
)


class Desk:
    """One delivery in one tab of a browser, used as a person uses it."""

    def __init__(self, page: Page, url: str, id: str) -> None:
        self.page, self.url, self.id = page, url, id

    async def start(self, request: dict[str, object]) -> None:
        page = self.page
        await page.goto(f"{self.url}/workflows/start-workflow")
        await page.get_by_role("textbox", name="Workflow ID").fill(self.id)
        await page.get_by_role("textbox", name="Task Queue").fill("perdure")
        await page.get_by_role("textbox", name="Workflow Type").fill("Delivery")
        await self._paste(json.dumps(request))
        await page.get_by_role("button", name="Start Workflow").click()
        await expect(page.get_by_text("Workflow started successfully").first).to_be_visible()

    async def pick(self, query: str) -> None:
        """Open the delivery from the list that a filter leaves."""
        row = self.page.get_by_role("link", name=self.id, exact=True)
        await self.page.goto(f"{self.url}/workflows?query={urllib.parse.quote(query)}")
        again = self.page.get_by_role("button", name="Refresh", exact=True)
        await seen(expect(row).to_be_visible, again.click)  # what is listed lags behind
        await row.click()
        await self.page.get_by_role("tab", name="User Metadata").click()

    async def reads(self, words: str) -> list[str]:
        """Look at the details until their first line has these words; then the paragraphs of JSON, each as copied."""
        shown = self.page.frame_locator("iframe").last
        head = expect(shown.locator("h3").first)
        await seen(lambda timeout: head.to_contain_text(words, timeout=timeout), lambda: self.page.keyboard.press("r"))
        assert await shown.locator("main b, main script, main img").count() == 0
        code = await shown.locator("p > code:only-child").all_inner_texts()
        return [text for text in code if text.startswith("{")]

    async def send(self, kind: str, name: str, said: str) -> None:
        """`kind` is Update or Signal."""
        page = self.page
        await page.get_by_role("button", name="More Actions").click()
        await page.get_by_role("menuitem", name=kind).click()
        form = page.get_by_role("dialog")
        await form.get_by_role("button", name=re.compile("^Select a")).click()
        await page.get_by_role("option", name=re.compile(f"^{name} ")).click()  # its description stands behind it
        await self._paste(said)
        await form.get_by_role("button", name="Submit").click()

    async def sent(self) -> None:
        await expect(self.page.get_by_role("dialog")).not_to_be_visible()

    async def _paste(self, text: str) -> None:
        box = self.page.get_by_role("textbox", name="Data").last
        await box.click()
        await self.page.keyboard.press("ControlOrMeta+a")
        await self.page.keyboard.insert_text(text)
        await box.blur()  # it lays JSON out when it is left, which would move a button away from under a click


async def seen(what: Callable[..., Awaitable[None]], again: Callable[[], Awaitable[None]]) -> None:
    """Look, ask for it to be read again, look for twice as long: however slow the machine is, one is long enough."""
    timeout = 1_000
    while timeout < PATIENCE_MS:
        with suppress(AssertionError):
            return await what(timeout=timeout)
        await again()
        timeout *= 2
    return await what(timeout=PATIENCE_MS)


@asynccontextmanager
async def desk(url: str, id: str) -> AsyncIterator[Desk]:
    needs.require("chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=needs.find_program("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=PATIENCE_MS,
        )
        try:
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            page.set_default_timeout(PATIENCE_MS)
            expect.set_options(timeout=PATIENCE_MS)
            yield Desk(page, url, id)
        finally:
            await browser.close()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_delivery_is_started_approved_held_answered_and_cancelled_with_the_web_ui_alone(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with Engine.open(tmp_path, ASKING, ports=ports) as engine:
        engine.worker()
        server = await find_server(engine.home)
        assert server is not None
        await check_rendering(server.ui_url)
        async with desk(f"{server.ui_url}/namespaces/{server.namespace}", "calc-sub") as person:
            await person.start({"repository": str(origin), "request": "Add sub", "gates": ["plan", "pull_request"]})
            await person.pick("PerdureStatus='waiting' AND PerdurePhase='plan'")
            offered = await person.reads("Waiting for you: approve the plan: Add sub")
            await person.send("Update", "approve", '{"of": "beef"}')
            form = person.page.get_by_role("dialog")
            await expect(form.get_by_text("not for beef")).to_be_visible()
            await form.get_by_role("button", name="Cancel").last.click()

            await person.send("Signal", "hold", '{"note": "lunch"}')
            await person.sent()
            await person.send("Update", "approve", offered[1])
            await person.sent()
            again = await person.reads("Held: lunch")
            assert engine.model_calls() == 3, "a turn began although it was held"
            await person.send("Signal", "resume", again[0])
            await person.sent()

            answers = await person.reads("Waiting for you: an agent asks")
            assert [json.loads(said)["answer"] for said in answers] == ["wrap | around", "raise `ValueError`"]
            await person.send("Update", "answer", answers[1])
            await person.sent()

            await person.reads("Waiting for you: publish")
            await person.page.get_by_role("button", name="Request Cancellation").click()
            await person.page.get_by_role("dialog").get_by_role("button", name="Confirm").click()
            await person.reads("Cancelled")
            await expect(person.page.get_by_text("Canceled").first).to_be_visible()
        progress = await engine.handle().query("progress")
        assert (progress["status"], progress["unread"]) == ("cancelled", 0)
        assert engine.rehearsal is not None
        assert any(TOLD in json.dumps(call.body) for call in engine.rehearsal.calls)
        assert heads(origin).keys() == {"main"}


async def check_rendering(ui: str) -> None:
    """What the Web UI's own renderer makes of anybody's words: the same words, and of JSON the same JSON."""
    words = 'http://x.y <b>b</b> ![i](http://x.y/z) | `c` *d* $e$ and $f$ 1/2 -- "g" # h\n\n- i ~~j~~ &lt; k^2 [^1] (c)'
    said = compact_json({"answer": words})
    markdown = "\n".join(
        [
            f"### {escape_line(words, 200)}",
            f"- {escape_line(words, 200)}",
            *copyable_lines(said),
            f"**x:** {escape_line(words, 200)}",
        ]
    )
    table = f"| a | b |\n|:--|:--|\n| {escape_line(words, 200)} | c |\n"
    html = await asyncio.to_thread(rendered, ui, f"{markdown}\n\n{table}")
    tags = {found.lower() for found in re.findall(r"<\s*([a-zA-Z0-9]+)", html)}
    assert tags <= {"main", "h3", "ul", "li", "p", "strong", "code", "table", "thead", "tbody", "tr", "th", "td"}, html
    assert f"<code>{escaped(said)}</code>" in html


def rendered(ui: str, markdown: str) -> str:
    with urllib.request.urlopen(f"{ui}/render?content={urllib.parse.quote(markdown)}", timeout=30) as answer:
        page: str = answer.read().decode()
    return page[page.index("<main>") : page.index("</main>")]


def escaped(text: str) -> str:
    for plain, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(plain, entity)
    return text.replace("`", "\\u0060")
