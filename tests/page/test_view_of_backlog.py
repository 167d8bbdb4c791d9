"""A backlog on the page, for real: its items, its graph, and what a person does to one of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsing import chromium
from visitors import visiting

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.models.backlog.state import BacklogProgress, ItemView
from perdure.page.server import serve_page
from perdure.render import report
from perdure.render.backlog.drawing import draw_graph
from tests.e2e.test_backlogs import STORY, ended, night
from tests.engine import Engine, make_target, until

EVIL = "<script>alert(1)</script>"
ITEMS = [
    {"id": "sub", "request": "Add subtract"},
    {"id": "broken", "request": f"Break it {EVIL}"},
    {"id": "hello", "request": "Say hello", "depends_on": ["broken"]},
]


@pytest.mark.timeout(300)
async def test_a_backlog_that_ended_is_shown_and_goes_on_when_an_item_is_skipped_on_its_page(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, STORY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18500)) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        progress = await ended(await night(engine, origin, items=ITEMS), engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "failed", "blocked"]

        status, text = await ada.get("/backlogs/night")
        assert status == 200
        assert '<a href="/deliveries/night%2Fsub">Add subtract</a> <span class="dim">sub</span>' in text
        assert "blocked by broken" in text
        assert "Retry goes on from its last checkpoint; Skip lets what depends on it begin (1)." in text
        assert 'Say hello <span class="dim">hello</span>' in text, "it has not begun"
        assert '<span title="broken">Break it &lt;script&gt;' in text, "what it comes after, by its title"
        assert "<svg" in text
        assert "<script>alert" not in text
        assert 'action="/backlogs/night/items/broken/skip"' in text
        assert 'action="/backlogs/night/items/sub/skip"' not in text, "it has landed"
        status, text = await ada.get("/deliveries/night%2Fbroken")
        assert status == 200
        assert "&lt;script&gt;" in text
        assert "<script>alert" not in text

        status, text = await ada.post("/backlogs/night/items/sub/skip", {})
        assert (status, "landed" in text) == (400, True), text
        assert (await ada.post("/backlogs/night/items/sub/prioritise", {"text": "first"}))[0] == 400
        assert (await ada.post("/backlogs/night/items/broken/skip", {}, csrf=""))[0] == 403
        status, _ = await ada.post("/backlogs/night/items/broken/skip", {})
        assert status == 303
        progress = await ended(engine.client.get_workflow_handle("night"), engine)
        assert [item["phase"] for item in progress["items"]] == ["landed", "skipped", "landed"]
        _, text = await ada.get("/backlogs/night")
        assert "skipped: broken" in re.sub(r"<[^>]+>", "", text), "the answer to the form"
        assert (await ada.get("/backlogs/no-such"))[0] == 400
        assert (await ada.get("/backlogs/night%2Fsub"))[0] == 400, "a delivery is no backlog"


ASKING = f"""
[[line]]
step = "implement"
turn = 1
contains = ["Add power"]
use = [{{ tool = "ask", input = {{ text = "What of an exponent below zero?", kind = "text", why = "" }} }}]
{STORY}"""
CHAIN = [
    {"id": "power", "request": "Add power"},
    {"id": "hello", "request": "Say hello", "depends_on": ["power"]},
    {"id": "tidy", "request": "Tidy up", "depends_on": ["hello"]},
]


@pytest.mark.timeout(200)
async def test_the_inbox_says_how_many_items_a_question_of_a_backlog_holds_up(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, ASKING, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18520)) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        backlog = await night(engine, origin, items=CHAIN)

        async def line_of_question() -> str:
            _, text = await ada.get("/")
            line = re.search(r'<a href="/deliveries/night%2Fpower/decide".*?</a>', text, re.DOTALL)
            return line[0] if line and "unblocks" in line[0] else ""

        line = re.sub(r"<[^>]+>", "", await until(line_of_question, timeout=90))
        assert "What of an exponent below zero?" in line
        assert "in night · unblocks 2" in line
        await backlog.cancel()


PHASES = ("ready", "after", "building", "landing", "waits", "landed", "failed", "blocked", "skipped", "cancelled")
NODES = """() => [...document.querySelectorAll('.node')].map(node => {
    const fill = element => getComputedStyle(element).fill.match(/\\d+/g).map(Number)
    const box = node.querySelector('rect')
    return {
        fill: fill(box),
        texts: [...node.querySelectorAll('text')].map(fill),
        fits: [...node.querySelectorAll('text')].every(text => text.getBBox().x + text.getBBox().width <= box.x.baseVal.value + box.width.baseVal.value),
    }
})"""  # noqa: E501  JavaScript


def luminance(colour: list[int]) -> float:
    red, green, blue = ((part / 255 + 0.055) / 1.055 for part in colour[:3])
    return 0.2126 * red**2.4 + 0.7152 * green**2.4 + 0.0722 * blue**2.4


@pytest.mark.timeout(120)
async def test_a_graph_can_be_read_in_both_colour_schemes_and_no_title_leaves_its_node() -> None:
    titles = {"light": "Say hello to everybody who comes by", "dark": "数式を足し算する関数を追加してください" * 3}
    style = (Path(report.__file__).parent / "templates" / "page.css").read_text()
    fills = {}
    async with chromium() as browser:
        for scheme in ("light", "dark"):
            page = await browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
            items = [
                ItemView(id=f"i{n}", phase=phase, caption=titles[scheme], because="2 of 44 fail")
                for n, phase in enumerate(PHASES)
            ]
            progress = BacklogProgress(backlog_id="n", run_id="r", repository="/r", status="ended", items=items)
            await page.set_content(f"<style>{style}</style>{draw_graph(progress, 'svg')}")
            nodes = await page.evaluate(NODES)
            assert len(nodes) == len(PHASES)
            for node, phase in zip(nodes, PHASES, strict=True):
                for text in node["texts"]:
                    dark, light = sorted((luminance(text), luminance(node["fill"])))
                    assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, phase)
                assert node["fits"], phase
            fills[scheme] = [node["fill"] for node in nodes]
    assert all(
        luminance(dark) < luminance(light) / 4 for dark, light in zip(fills["dark"], fills["light"], strict=True)
    )
