"""All pages in a real browser, with what a real run left on them: axe in both colour schemes, 400 % zoom, and reduced
motion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import PATIENCE_MS, axe_script, check_accessible, chromium, looking
from playwright.async_api import Page, expect
from visitors import PLAN, stands_waiting

from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from perdure.page.views.delivery import TABS
from tests.engine import HAPPY, Engine, finished, make_target, until

ZOOMED = {"width": 320, "height": 256}
"""What is left of 1280 × 1024 at 400 %."""

LONG = "a_word_without_any_place_to_break_it_" * 8
BROKEN = "version = 1\n[setup]\ncommands = ['echo the compiler is missing >&2; exit 7']\n"
SLOW = """
[[line]]
step = "implement"
turn = 2
contains = ["Take long"]
use = [{ tool = "bash", input = { command = "sleep 300" } }]
"""
STORY = HAPPY.replace("[[line]]", f"{SLOW.strip()}\n[[line]]", 1)

CUT = """() => {
    const scrolls = one => one && (/(auto|scroll)/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement))
    const seen = one => one.checkVisibility({visibilityProperty: true})
        && !one.closest('.unseen, .skip, [hidden], dialog')
    const name = one => `${one.tagName}.${one.className} ${one.textContent.trim().slice(0, 60)}`
    return [...document.querySelectorAll('body *')].filter(seen).filter(one => {
        const box = one.getBoundingClientRect(), style = getComputedStyle(one)
        const leaves = box.width > 0 && (box.right > innerWidth + 1 || box.left < -1) && !scrolls(one)
        const hides = /(hidden|clip)/.test(style.overflowX) && one.scrollWidth > one.clientWidth + 1
        return leaves || hides
    }).map(name).slice(0, 5)
}"""
SCROLLERS = """() => [...document.querySelectorAll('main *')]
    .filter(one => /(auto|scroll)/.test(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1)
    .filter(one => !one.closest('pre, textarea, #graph, [aria-labelledby=graph]'))
    .map(one => `${one.tagName}.${one.className}`)"""
"""Code and a graph may be scrolled sideways: their form is what they say."""

MOVES = """() => [...document.querySelectorAll('*')].filter(one => {
    const style = getComputedStyle(one)
    const long = text => text.split(',').some(part => parseFloat(part) > 0)
    return style.animationName !== 'none' && long(style.animationDuration) || long(style.transitionDuration)
        || style.scrollBehavior === 'smooth'
}).map(one => `${one.tagName}.${one.className}`)"""


async def problems(page: Page, script: str, path: str, *, zoomed: bool) -> list[object]:
    """All that is wrong with a page, so that one run tells of all pages. By all of axe's rules where it is zoomed:
    otherwise only colours can be different."""
    found: list[object] = []
    await page.goto(path)
    try:
        await check_accessible(page, script, () if zoomed else ("color-contrast",))
    except AssertionError as error:
        found.append(str(error).partition("\n")[0])
    for look in (CUT, SCROLLERS, MOVES) if zoomed else ():
        if wrong := await page.evaluate(look):
            found.append((path, wrong))
    return found


@pytest.mark.timeout(400)
async def test_every_page_passes_axe_in_both_schemes_and_is_whole_at_400_percent(
    tmp_path: Path, ports: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    origin, script = make_target(tmp_path / "calc.git"), axe_script(tmp_path_factory.getbasetemp())
    found = list[object]()
    looks: tuple[dict[str, Any], ...] = (
        {"color_scheme": "light"},
        {"color_scheme": "dark", "viewport": ZOOMED, "reduced_motion": "reduce"},
    )
    async with (
        Engine.open(tmp_path, STORY, ports=ports) as engine,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19900)) as served,
        chromium() as browser,
    ):
        # Before anything was delivered; and to somebody without a session.
        empty = ("/", "/activity", "/history", "/hosts", "/start", "/no-such-page")
        for look in looks:
            zoomed = "viewport" in look
            async with looking(browser, served, base_url=served.url, bypass_csp=True, **look) as page:
                for path in empty:
                    found += await problems(page, script, path, zoomed=zoomed)
                await page.context.clear_cookies()
                found += await problems(page, script, "/deliveries/x", zoomed=zoomed)
                await expect(page.get_by_text("perdure page prints")).to_be_visible()

        engine.worker()
        ended = await engine.submit(origin, id="ended", request=f"Add sub {LONG}", budget_usd=5)
        at_work = await engine.submit(origin, id="at-work", request="Take long")
        await engine.submit(origin, id="broken", request="Break it", config=BROKEN)
        await engine.submit(origin, id="plan", request="Add sub, with types", gates=["plan"])
        await engine.submit(origin, id="change", request="Add sub for reports", gates=["pull_request"])
        items = [
            {"id": "bad", "request": "Break it"},
            {"id": "after", "request": f"Say hello {LONG}", "depends_on": ["bad"]},
        ]
        night = {"repository": str(origin), "items": items, "config": BROKEN}
        submitted = await engine.perdure.submit_backlog(night, "night")
        await stands_waiting(engine.client, f"wait/{LONG[:100]}", PLAN.model_copy(update={"summary": LONG}))
        await finished(ended, engine)
        await submitted.backlog.result()
        for id in ("plan", "change"):

            async def asks(id: str = id) -> bool:
                return (await engine.perdure.delivery(id).describe()).pending_decision is not None

            await until(asks, timeout=120)
        paths = [
            "/",
            "/deliveries/plan/decide",
            "/deliveries/change/decide",
            "/deliveries/at-work",
            "/deliveries/broken",
            "/deliveries/ended",
            *(f"/deliveries/ended/{tab}" for tab in TABS),
            "/compare?one=ended&other=change",
            "/backlogs/night",
            "/activity",
            "/history",
            "/hosts",
            "/start",
        ]
        for look in looks:
            async with looking(browser, served, base_url=served.url, bypass_csp=True, **look) as page:
                page.set_default_timeout(PATIENCE_MS)
                for path in paths:
                    found += await problems(page, script, path, zoomed="viewport" in look)
        await at_work.delivery.cancel()
        await finished(at_work, engine)
    assert not found, found
