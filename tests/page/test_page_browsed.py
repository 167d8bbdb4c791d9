"""The inbox and the board in a real browser; what is listed stands on a real server, and no worker has ever seen it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from browsing import PATIENCE_MS, TELEPHONE, axe_script, check_accessible, chromium, looking, open_review, question
from playwright.async_api import Browser, Page, expect
from temporalio.client import Client
from visitors import PLAN, stands_waiting

from perdure.adapters.system.home import Home
from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.local.page import ServedPage as Served
from perdure.local.server import ensure_server, find_server, stop_server
from perdure.models.delivery.decisions import Gate, PendingDecision, Question
from perdure.page.server import serve_page
from perdure.page.views.inbox import LANE_CARDS
from perdure.plugin import perdure_plugin
from tests.temporal_server import joined

browsed = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
pytestmark = browsed

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3)'


@dataclass
class Desk:
    browser: Browser
    client: Client
    page: Served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    home = Home(tmp_path_factory.mktemp("page") / "home")
    async with chromium() as browser, joined(home):
        client = await client_of(home)
        async with serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=18600)) as page:
            yield Desk(browser, client, page)


async def client_of(home: Home) -> Client:
    info = await find_server(home)
    assert info is not None
    return await Client.connect(info.address, namespace=info.namespace, plugins=[perdure_plugin()])


async def test_a_line_that_has_the_keyboard_keeps_it_while_others_come_and_leads_to_what_is_asked_now(
    desk: Desk,
) -> None:
    await stands_waiting(desk.client, "typed", PLAN)
    async with looking(desk.browser, desk.page) as page:
        await question(page, "typed").focus()
        await stands_waiting(desk.client, "another", PLAN)
        await expect(question(page, "another")).to_be_visible()
        await expect(question(page, "typed")).to_be_focused()
        old = await open_review(page, "typed")
        await old.get_by_label("Comment").fill("words for the old plan")

        handle = desk.client.get_workflow_handle("typed")
        await handle.terminate()
        await stands_waiting(
            desk.client, "typed", PLAN.model_copy(update={"target": "99999999", "summary": "the next plan"})
        )
        await page.goto(desk.page.url)
        await expect(question(page, "typed").get_by_text("the next plan")).to_be_visible()
        bar = await open_review(page, "typed")
        await expect(bar.get_by_label("Comment")).to_have_value("")
        await expect(bar.locator("input[name=of]")).to_have_value("99999999")


async def test_whatever_an_agent_or_an_issue_says_is_shown_as_text(desk: Desk) -> None:
    question = Question(text=f"What of {EVIL}?", kind="choice", choices=(f"one {EVIL}", "two"), why=EVIL)
    asked = PendingDecision(
        gate="question", target="q1", summary=EVIL, since=PLAN.since, question=question, options=("answer",)
    )
    id = f"evil-{EVIL}/../x"
    await stands_waiting(desk.client, id, asked, PerdureRepository=EVIL, PerdurePhase=EVIL)
    told = dict.fromkeys(("PerdureRepository", "PerdurePhase", "PerdureChange", "PerdureWaiting"), EVIL)
    await stands_waiting(desk.client, f"runs-{EVIL}", None, **told)
    await stands_waiting(desk.client, f"held-{EVIL}", None, **told | {"PerdureStatus": "waiting"})
    async with looking(desk.browser, desk.page) as page:
        await expect(page.locator(".question").filter(has_text="What of").get_by_text(EVIL).first).to_be_visible()
        await expect(page.locator("#inbox .words").get_by_text(EVIL).first).to_be_visible()
        await expect(page.locator(".change").get_by_text(EVIL).first).to_be_visible()
        await page.reload()
        assert await page.locator("main script, main img, main [onerror]").count() == 0
        links = await page.eval_on_selector_all("main a", "all => all.map(one => one.getAttribute('href'))")
        assert all(link.startswith(("/deliveries/", "/backlogs/")) for link in links), links
        link = page.locator(".question a").filter(has_text=id[:40]).first
        assert (await link.get_attribute("href") or "").count("/") == 3
        await link.click()
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await expect(page.get_by_label("two")).to_be_visible()
        assert await page.locator("main script, main img[src=x], main [onerror]").count() == 0


async def test_with_the_keyboard_alone_one_question_after_the_other_is_decided(desk: Desk) -> None:
    await stands_waiting(desk.client, "keys", PLAN)
    await stands_waiting(desk.client, "keys-2", PLAN)
    async with looking(desk.browser, desk.page) as page:
        await expect(question(page, "keys-2")).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="To the content")).to_be_focused()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        for _ in range(30):
            await page.keyboard.press("j")
            if await question(page, "keys").evaluate("one => one === document.activeElement"):
                break
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        await expect(question(page, "keys")).to_be_focused()
        await page.keyboard.press("o")
        await expect(page.get_by_role("form", name="Decision")).to_be_visible()
        await page.keyboard.press("r")
        await expect(page.get_by_label("Comment")).to_be_focused()
        await page.keyboard.type("joking a? no")
        await expect(page.get_by_label("Comment")).to_have_value("joking a? no")
        await page.get_by_role("heading", level=1).click()
        await page.keyboard.press("a")
        await expect(page.get_by_role("button", name="Approve plan 1a2b3c4")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status").filter(has_text="keys: recorded, not yet read")).to_be_visible()
        offered = page.locator(".next a")
        await expect(offered).to_be_focused()
        assert await offered.get_attribute("href") != "/deliveries/keys/decide"
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("form", name="Decision")).to_be_visible()
    sent = [event async for event in desk.client.get_workflow_handle("keys").fetch_history_events()]
    assert any(event.HasField("workflow_execution_signaled_event_attributes") for event in sent)


async def test_without_scripts_the_page_is_whole_and_its_forms_work(desk: Desk) -> None:
    await stands_waiting(desk.client, "plain", PLAN)
    async with looking(desk.browser, desk.page, java_script_enabled=False) as page:
        await until_listed(page, "plain")
        bar = await open_review(page, "plain")
        await bar.get_by_role("button", name="Reject").click()
        await expect(page.get_by_role("alert")).to_contain_text("say why")
        bar = await open_review(page, "plain")
        await bar.get_by_label("Comment").fill("not like this")
        await bar.get_by_role("button", name="Reject").click()
        await expect(page.get_by_role("status").filter(has_text="plain: recorded, not yet read")).to_be_visible()


async def until_listed(page: Page, id: str) -> None:
    """A person without scripts asks for the page again."""
    for _ in range(int(PATIENCE_MS / 500)):
        if await question(page, id).count():
            return
        await asyncio.sleep(0.5)
        await page.reload()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_passes_axe_and_is_no_wider_than_a_telephone(
    desk: Desk, scheme: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    script = axe_script(tmp_path_factory.getbasetemp())
    question = Question(text="Which?", kind="choice", choices=("wrap", "raise"), why="It shows.")
    asked = PendingDecision(
        gate="question", target="q1", summary="Which?", since=PLAN.since, question=question, options=("answer",)
    )
    budget = PLAN.model_copy(update={"gate": Gate.BUDGET, "limit": "usd", "options": ("add_budget", "reject")})
    for id, one in (("axe-plan", PLAN), ("axe-question", asked), ("axe-budget", budget), ("axe-runs", None)):
        words = {"PerdureChange": "+1204 −1401 in 31 files · tests 4551/4551", "PerdureRepository": "x" * 200}
        await stands_waiting(desk.client, f"{id}-{scheme}", one, PerdurePhase="build", **words)
    async with looking(desk.browser, desk.page, viewport=TELEPHONE, color_scheme=scheme, bypass_csp=True) as page:
        await expect(page.get_by_role("link", name=f"axe-runs-{scheme}")).to_be_visible()
        for path in (
            "/",
            f"/deliveries/axe-question-{scheme}/decide",
            f"/deliveries/axe-budget-{scheme}/decide",
            f"/deliveries/axe-plan-{scheme}/decide",
            "/no-such-page",
        ):
            await page.goto(desk.page.url + path)
            await check_accessible(page, script)


async def test_two_looks_at_what_waits_add_no_event_to_it(desk: Desk) -> None:
    await stands_waiting(desk.client, "asleep", PLAN)
    handle = desk.client.get_workflow_handle("asleep")
    before = (await handle.describe()).raw_description.workflow_execution_info.history_length
    async with looking(desk.browser, desk.page) as page:
        await expect(question(page, "asleep")).to_be_visible()
        await asyncio.sleep(3)
    after = (await handle.describe()).raw_description.workflow_execution_info.history_length
    assert after == before


async def test_a_page_that_is_started_again_is_found_again_by_who_has_it_open(desk: Desk, tmp_path: Path) -> None:
    home, place = Home(tmp_path / "home"), ListenAddress(port=18700)
    async with AsyncExitStack() as person:
        async with serve_page(Perdure(desk.client), ensure_page_token(home), place) as first:
            page = await person.enter_async_context(looking(desk.browser, first))
            await expect(page.get_by_role("heading", name="Board")).to_be_visible()
            await asyncio.sleep(2)  # the stream has begun
        cut = page.get_by_text("no connection: trying again")
        await expect(cut).to_be_visible()
        async with serve_page(Perdure(desk.client), ensure_page_token(home), place) as again:
            assert again.url == first.url
            await expect(cut).to_be_hidden()
            await stands_waiting(desk.client, "afterwards", PLAN)
            await expect(question(page, "afterwards")).to_be_visible()


async def test_a_server_restarted_under_the_page_is_said_and_then_what_happened_meanwhile_is_shown(
    tmp_path: Path, desk: Desk
) -> None:
    home = Home(tmp_path / "home")
    os.environ["PERDURE_SQLITE_SYNCHRONOUS"] = "1"
    await ensure_server(home, say=lambda _: None)
    try:
        client = await client_of(home)
        await stands_waiting(client, "before", PLAN)
        async with (
            serve_page(Perdure(client), ensure_page_token(home), ListenAddress(port=18800)) as served,
            looking(desk.browser, served) as page,
        ):
            await expect(question(page, "before")).to_be_visible()
            await stop_server(home)
            await expect(page.get_by_text("Temporal does not answer")).to_be_visible()
            await expect(question(page, "before")).to_be_visible()
            await ensure_server(home, say=lambda _: None)
            await stands_waiting(await client_of(home), "meanwhile", PLAN)
            await expect(question(page, "meanwhile")).to_be_visible()
            await expect(page.get_by_text("Temporal does not answer")).to_be_hidden()
            await expect(question(page, "before")).to_be_visible()
    finally:
        await stop_server(home)


async def test_a_lane_shows_so_many_cards_and_counts_the_others(desk: Desk) -> None:
    many = (
        stands_waiting(desk.client, f"many-{n}", None, PerdurePhase="review", PerdureRepository="calc")
        for n in range(LANE_CARDS + 3)
    )
    await asyncio.gather(*many)
    async with looking(desk.browser, desk.page) as page:
        lane = page.locator("#lane-review")
        await expect(lane.get_by_text("and 3 more")).to_be_visible()
        await expect(lane.get_by_role("listitem")).to_have_count(LANE_CARDS)
