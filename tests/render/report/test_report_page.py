"""The page in a real browser without a network: complete, safe with anybody's words, readable on a telephone."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright
from report_samples import at, sample

from perdure.models.checks.report import (
    CommandResult,
    Finding,
    FindingRule,
    Findings,
    Review,
    ReviewIssue,
    Screenshot,
    Screenshots,
    Severity,
    Tampering,
    TamperingHit,
    TestCase,
    TestReport,
)
from perdure.models.delivery.result import AttemptResult, PullRequest, StepRecord
from perdure.models.delivery.steps import Plan, Task
from perdure.render.report.facts import DeliveryReport
from perdure.render.report.page import page_of
from tests import needs

EVIL = "</title></style></script></pre></textarea>--><script>window.hacked=1</script>"
EVIL += "<img src=http://evil.test/x onerror=hacked=1>"
EVIL += "\"' onload=hacked=1 style=position:fixed \u202e\u2066\u200b{{ 7*7 }} <svg onload=hacked=1> &#60;b&#62;"


def poisoned() -> DeliveryReport:
    """Everything that a model, a test or a stranger can write, hostile."""
    case = TestCase(name=EVIL, file=EVIL, outcome="failed", message=EVIL, command=EVIL)
    skipped = TestCase(name=EVIL, file=EVIL, outcome="skipped", message=EVIL)
    flaky = TestCase(name=EVIL, file=EVIL, outcome="passed", message=EVIL, flaky=True)
    command = CommandResult(name=EVIL, command=EVIL, verdict=EVIL, tail=EVIL, reason=EVIL, cases=(case, skipped, flaky))
    hit = TamperingHit(rule=Tampering.GONE, title=EVIL, file=EVIL, line=1, evidence=EVIL)
    finding = Finding(
        rule=FindingRule.SYMLINK, severity=Severity.BLOCKER, title=EVIL, description=EVIL, file=EVIL, suggestion=EVIL
    )
    issue = ReviewIssue(
        title=EVIL, description=EVIL, severity=Severity.TECH_DEBT, file=EVIL, line=2, suggestion=EVIL,
        screenshots=[EVIL],
    )  # fmt: skip
    plan = Plan(
        title=EVIL, problem=EVIL, solution=EVIL, relevant_files=[EVIL], validation=[EVIL],
        tasks=[Task(title=EVIL, details=EVIL, files=[EVIL])],
    )  # fmt: skip
    good = sample()
    (name, _) = good.pictures
    records = tuple(record.model_copy(update={"summary": EVIL}) for record in good.steps)
    return sample(
        delivery_id=EVIL, run_id=EVIL, status=EVIL, reason=EVIL, message=EVIL, waiting=EVIL, repository=EVIL,
        request=EVIL, issue=EVIL, base=EVIL, base_sha=EVIL, branch=EVIL, head_sha=EVIL, kind=EVIL, title=EVIL,
        attempts=(AttemptResult(number=1, delivery=EVIL, branch=EVIL, head=EVIL, failure=EVIL, chosen=True),),
        pull_request=PullRequest(number=1, url="javascript:hacked=1", title=EVIL), unread=(EVIL,), plan=plan,
        steps=(*records, StepRecord(step=EVIL, status=EVIL, started_at=EVIL, commit=EVIL)),
        turns=tuple(turn.model_copy(update={"summary": EVIL, "transcript": EVIL, "step": EVIL}) for turn in good.turns),
        test_report=TestReport(
            commit=EVIL, tree=EVIL, base=EVIL, note=EVIL, fixed=(EVIL,), tampering=(hit,), commands=(command,)
        ),
        reviewed=Review(summary=EVIL, issues=[issue]),
        findings=Findings(base=EVIL, head=EVIL, findings=(finding,)),
        screenshots=Screenshots(commit=EVIL, note=EVIL, pictures=(Screenshot(page=EVIL, artifact=name, note=EVIL),)),
    )  # fmt: skip


browsed = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One for all pages, each in a context of its own."""
    needs.require("chromium")
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=needs.find_program("chromium"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
            timeout=60_000,
        )
        try:
            yield started
        finally:
            await started.close()


class Seen:
    """What a browser made of a page, and what it wanted from elsewhere."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        self.said: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url[:60]))
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))


async def opened(browser: Browser, tmp_path: Path, html: str, width: int = 1100) -> Seen:
    file = tmp_path / "report.html"
    file.write_text(html, encoding="utf-8")
    context = await browser.new_context(
        offline=True, color_scheme="light", viewport={"width": width, "height": 900}, java_script_enabled=True
    )
    context.set_default_timeout(60_000)
    seen = Seen(await context.new_page())
    await seen.page.goto(file.as_uri())
    return seen


@browsed
@pytest.mark.story
async def test_a_page_has_every_part_and_is_heard_and_read_in_light_dark_on_a_telephone_and_on_paper(
    browser: Browser, tmp_path: Path
) -> None:
    """One page after the other way of looking at it: to open one takes a browser longer than all that is asked."""
    seen = await opened(browser, tmp_path, page_of(sample()))
    await it_needs_nothing_else_and_has_every_part(seen)
    await who_does_not_see_it_hears_it(seen)
    await letters_can_be_told_from_their_ground(seen, "light")
    await letters_can_be_told_from_their_ground(seen, "dark")
    await on_paper_it_is_dark_on_white(seen)
    await nothing_is_wider_than_a_telephone(seen)


async def it_needs_nothing_else_and_has_every_part(seen: Seen) -> None:
    assert [url for url in seen.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in seen.asked if url.startswith("file:")]) == 1
    assert seen.said == []
    assert await seen.page.evaluate("document.scripts.length") == 0
    headings = await seen.page.locator("main > section > h2").all_inner_texts()
    names = ["Timeline", "Request", "Plan", "Tests", "Review", "Screenshots", "Cost by step", "Turns"]
    assert [heading.split(" feature")[0] for heading in headings] == names
    links = await seen.page.locator("nav a").evaluate_all("all => all.map(a => a.getAttribute('href').slice(1))")
    assert await seen.page.evaluate("ids => ids.filter(id => !document.getElementById(id))", links) == []
    text = await seen.page.inner_text("main")
    for words in (
        "delivered", "44 passed", "no blockers", "$0.53", "4m 40s", "1 worker death", "test_negative", "failed, new",
        "failed, as on the base", "flaky: passed when run once more", "test_zero is skipped now",
        "python -m pytest tests/test_parse.py::test_negative", "What looks like a key was added",
        "it did not answer within 15 s", "55 s of it waiting", "$0.21",
    ):  # fmt: skip
        assert words in text, words
    assert "test_case_7" not in text, "what passed is folded"
    await seen.page.locator("summary", has_text="43 passed").click()
    assert "test_case_7" in await seen.page.inner_text("main")
    pull = seen.page.get_by_role("link", name="#12")
    assert await pull.get_attribute("href") == "https://github.com/me/durations/pull/12"


async def who_does_not_see_it_hears_it(seen: Seen) -> None:
    evaluate = seen.page.evaluate
    levels = await evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels)), levels
    alts = await evaluate("[...document.images].map(i => [i.alt, i.complete && i.naturalWidth])")
    assert alts == [
        ["The page / as a browser showed it at 5aa90f3", 640],
        ["The page /settings as a browser showed it at 5aa90f3", 640],
    ]
    assert await evaluate("[...document.querySelectorAll('thead th')].every(t => t.scope == 'col')")
    columns = "r.closest('table').tHead.rows[0].cells.length"
    assert await evaluate(f"[...document.querySelectorAll('tbody tr')].every(r => r.cells.length == {columns})")
    assert await evaluate("document.documentElement.lang") == "en"
    assert await evaluate("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size") == await evaluate(
        "document.querySelectorAll('[id]').length"
    ), "an id twice"
    timeline = seen.page.get_by_role("img", name=re.compile("Timeline over 4m 40s: prepare"))
    assert await timeline.count() == 1


async def letters_can_be_told_from_their_ground(seen: Seen, scheme: Literal["light", "dark"]) -> None:
    await seen.page.emulate_media(color_scheme=scheme)
    ground = await seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", ground)[:3]) > 3 * 128
    assert light == (scheme == "light")
    poor = await seen.page.evaluate(CONTRAST)
    assert poor == [], "below 4.5 to 1"


async def on_paper_it_is_dark_on_white(seen: Seen) -> None:
    """Whatever the screen prefers."""
    await seen.page.set_viewport_size({"width": 720, "height": 900})
    await seen.page.emulate_media(media="print", color_scheme="dark")
    assert await seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert await seen.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert not await seen.page.locator("nav").is_visible()
    assert (await seen.page.pdf(format="A4")).startswith(b"%PDF")
    await seen.page.emulate_media(media="screen")


async def nothing_is_wider_than_a_telephone(seen: Seen) -> None:
    await seen.page.set_viewport_size({"width": 390, "height": 900})
    await seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    width = await seen.page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1] == 390


@browsed
async def test_words_that_cannot_be_broken_make_nothing_wider_than_a_telephone(
    browser: Browser, tmp_path: Path
) -> None:
    long = "x" * 3000
    case = TestCase(name=long, file=long, outcome="failed", message=long, command=long)
    report = TestReport(
        commit="c" * 40, tree="t" * 40, note=long, fixed=(long,),
        commands=(CommandResult(name=long, command=long, verdict="failed", tail=long, cases=(case,)),),
    )  # fmt: skip
    step = StepRecord(step="implement", status="done", summary=long, turns=3, cost_usd=123456.78, duration_s=1e6)
    wide = sample(
        test_report=report, title=long, request=long, repository=long, branch=long, message=long, unread=(long,),
        delivery_id=long, steps=(step, *sample().steps), began=(at(0), *sample().began),
        pull_request=PullRequest(number=10**9, url="http://x/" + long, title=long),
    )  # fmt: skip
    await nothing_is_wider_than_a_telephone(await opened(browser, tmp_path, page_of(wide), width=390))


@browsed
async def test_words_of_strangers_stay_words(browser: Browser, tmp_path: Path) -> None:
    html = page_of(poisoned())
    seen = await opened(browser, tmp_path, html)
    await seen.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert await seen.page.evaluate("window.hacked") is None
    assert [url for url in seen.asked if not url.startswith(("file:", "data:"))] == []
    assert seen.said == [], "the browser had to forbid something"
    assert await seen.page.evaluate("document.scripts.length") == 0
    assert (
        await seen.page.evaluate(
            "[...document.querySelectorAll('a')].filter(a => !/^(#|https?:)/.test(a.getAttribute('href'))).length"
        )
        == 0
    )
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
    assert await seen.page.evaluate(handlers) == []
    assert not set("\u202e\u2066\u200b") & set(html)
    assert "<script>window.hacked=1</script>" in await seen.page.inner_text("main"), "it is shown as it was"
    assert "{{ 7*7 }}" in await seen.page.inner_text("main")


def test_outputs_of_ten_megabytes_and_suites_of_fifty_thousand_tests_make_a_page_that_opens() -> None:
    flood = "\x1b[31mno end\u202e <&>\n" * 800_000
    cases = tuple(TestCase(name=f"test_{n}", outcome="passed") for n in range(50_000))
    failed = tuple(TestCase(name=f"bad_{n}", outcome="failed", message=flood) for n in range(300))
    report = TestReport(
        commit="c" * 40, tree="t" * 40, note=flood,
        commands=(CommandResult(name="unit", command=flood, verdict="failed", tail=flood, cases=(*failed, *cases)),),
    )  # fmt: skip
    html = page_of(sample(test_report=report, message=flood, request=flood, title=flood))
    assert len(html) < 6_000_000
    assert "and 49000 more" in html
    assert "and 100 more that failed" in html
    assert "cut here: 13,600,000 characters in all" in html


@pytest.mark.parametrize(
    ("url", "links"),
    [
        ("https://github.com/me/x/pull/1", 1),
        ("javascript:alert(1)", 0),
        ("data:text/html,<script>1</script>", 0),
        ("/srv/calc.git#pull/1", 0),
        ("https://x.test/\" onclick=alert(1) x=\"", 0),
    ],
)  # fmt: skip
def test_only_an_address_of_the_web_is_a_link(url: str, links: int) -> None:
    html = page_of(sample(pull_request=PullRequest(number=1, url=url, title="t")))
    found = Links()
    found.feed(html)
    assert len([href for href in found.hrefs if not href.startswith("#")]) == links


def test_what_could_not_be_read_is_said_at_the_top() -> None:
    words = "the plan: the delivery's host does not answer"
    html = page_of(sample(plan=None, pictures={}, unread=(words,)))
    assert html.index("What could not be read") < html.index("<nav")
    assert "the plan: the delivery&#39;s host does not answer" in html
    assert html.count("could not be read") == 3, "and so do its two pictures"
    assert "could not be read" not in page_of(sample())


def test_a_delivery_without_anything_yet_has_a_page_too() -> None:
    bare = sample(
        status="running", ended=None, taken=at(2), steps=(), began=(), turns=(), deaths=(), waits=(), plan=None,
        test_report=None, reviewed=None, findings=None, screenshots=None, pictures={}, pull_request=None, title="",
        request="", base="", branch="", budget_usd=None,
    )  # fmt: skip
    html = page_of(bare)
    assert "<h1>durations-parse-3f9c</h1>" in html
    assert "still running when this was read" in html
    assert "<svg" not in html


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value or "" for name, value in attrs if tag == "a" and name == "href"]


CONTRAST = """() => {
  const parts = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const linear = v => v / 255 <= .03928 ? v / 3294.6 : ((v / 255 + .055) / 1.055) ** 2.4;
  const lum = c => { const [r, g, b] = c.map(linear);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = parts(getComputedStyle(e).backgroundColor);
    if (c.length == 3 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  document.querySelectorAll('details').forEach(d => d.open = true);
  const poor = new Set();
  for (const e of document.querySelectorAll('main *')) {
    if (![...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e);
    const ink = parts(e.closest('svg') ? style.fill : style.color).slice(0, 3);
    if (ink.length < 3 || e.tagName == 'title') continue;
    const [a, b] = [lum(ink), lum(ground(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) poor.add(`${e.tagName}.${e.getAttribute('class')} ${ratio.toFixed(2)}`);
  }
  return [...poor];
}"""
"""WCAG's contrast of every element with text against the nearest ground behind it."""
