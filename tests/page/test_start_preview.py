"""The form of a new delivery shows the issue that is named, and what is wrong with a path, before anything starts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from browsing import chromium, looking
from playwright.async_api import expect
from visitors import visiting

from perdure.client import Perdure
from perdure.local.page import ListenAddress, ensure_page_token
from perdure.page.server import serve_page
from tests.engine_with_github import EngineWithGitHub, engine_with_github

pytestmark = pytest.mark.timeout(180)
EVIL = "<img src=https://evil.example/x onerror=alert(1)>\u202egnp"


@pytest.fixture
async def world(tmp_path: Path, ports: int) -> AsyncIterator[EngineWithGitHub]:
    async with engine_with_github(tmp_path, ports=ports) as world:
        yield world


async def test_an_issues_address_is_shown_and_then_is_the_request(world: EngineWithGitHub) -> None:
    engine, address = world.engine, f"{world.url}/issues/{world.issue}"
    evil = world.github.add_issue("me/calc", EVIL, EVIL)
    closed = world.github.add_issue("me/calc", "Add mul", "Please.", state="closed")
    place = ListenAddress(port=18620)
    async with (
        serve_page(Perdure(engine.client, engine.home.key()), ensure_page_token(engine.home), place) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        status, text = await ada.post("/start/preview", {"request": f" {address} "})
        assert (status, "Add sub" in text, f"{world.url}</code>" in text) == (200, True, True), text
        assert "There is add, there is no sub." in text
        assert "by ada, with 1 comment" in text

        _, text = await ada.post("/start/preview", {"repository": world.url, "issue": f"#{evil}"})
        assert "<img" not in text
        assert "\u202e" not in text

        for sent, reason in (
            ({"request": f"{world.url}/issues/{closed}"}, "is closed"),
            ({"request": f"{world.url}/issues/99"}, "99"),
            ({"request": f"{world.github.url}/somebody/private/issues/1"}, "cannot be shown"),
            ({"request": "https://evil.example/me/calc/issues/1"}, "has no issues Perdure can read"),
            ({"repository": "/no/such/place", "request": "Add sub"}, "there is no directory /no/such/place"),
            ({"repository": world.url, "issue": "the first one"}, "names no issue"),
        ):
            status, text = await ada.post("/start/preview", sent)
            assert (status, reason in text) == (200, True), (sent, text)
            assert text.count("<p") == 1, "one line"
        for sent in ({}, {"request": "Add sub"}, {"request": f"See {address} please"}, {"repository": world.url}):
            assert (await ada.post("/start/preview", sent))[1].strip() == ""
        assert (await ada.post("/start/preview", {"request": address}, csrf=""))[0] == 403
        assert await engine.perdure.list() == [], "nothing has begun"

        await ada.post("/start/delivery", {"request": address, "phases": "plan", "gates": "plan"})
        (started,) = [entry async for entry in engine.client.list_workflows("WorkflowType = 'Delivery'")]
        request = await engine.perdure.delivery(started.id).request()
        assert (request["repository"], request["issue"], request.get("request", "")) == (
            world.url,
            str(world.issue),
            "",
        )


async def test_the_issues_that_a_backlog_names_are_shown_before_it_starts(world: EngineWithGitHub) -> None:
    engine = world.engine
    evil = world.github.add_issue("me/calc", EVIL, EVIL)
    place = ListenAddress(port=18680)
    async with (
        serve_page(Perdure(engine.client, engine.home.key()), ensure_page_token(engine.home), place) as page,
        visiting(page) as ada,
    ):
        engine.worker()
        items = "".join(f"- issue: {one}\n" for one in (world.issue, f"'#{evil}'", 99, "first", 96, 97, 98))
        text = f"repository: {world.url}\nitems:\n- id: words\n  request: Add mul\n{items}"
        status, shown = await ada.post("/start/preview/backlog", {"backlog": text})
        assert (status, shown.count("<li>")) == (200, 5), shown
        assert f"Issue #{world.issue}: <strong>Add sub</strong>" in shown
        assert "Issue 99 cannot be shown" in shown
        assert "Issue first cannot be shown" in shown
        assert "and 2 more issues" in shown
        assert "<img" not in shown
        assert "\u202e" not in shown
        for typed, said in (("", ""), ("- a", "a backlog has fields"), ("items: 3", ""), ("a: [", "backlog:")):
            status, shown = await ada.post("/start/preview/backlog", {"backlog": typed})
            assert (status, said in shown, bool(said) == bool(shown.strip())) == (200, True, True), (typed, shown)
        assert await engine.perdure.list() == [], "nothing has begun"


async def test_without_a_worker_it_says_so_in_one_line_and_can_be_started(world: EngineWithGitHub) -> None:
    engine, address = world.engine, f"{world.url}/issues/{world.issue}"
    async with (
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18640)) as page,
        visiting(page) as ada,
    ):
        status, text = await ada.post("/start/preview", {"request": address})
        assert (status, "The issue cannot be shown" in text, text.count("<p")) == (200, True, 1)
        await ada.post("/start/delivery", {"request": address, "phases": "plan"})
        assert [True async for _ in engine.client.list_workflows("WorkflowType = 'Delivery'")] == [True]


async def test_it_stands_on_the_form_as_soon_as_it_is_typed(world: EngineWithGitHub) -> None:
    engine = world.engine
    place, token = ListenAddress(port=18660), ensure_page_token(engine.home)
    async with (
        serve_page(Perdure(engine.client, engine.home.key()), token, place) as page,
        chromium() as browser,
        looking(browser, page) as person,
    ):
        engine.worker()
        await person.goto(page.url + "/start")
        request = person.get_by_role("textbox", name="request")
        await request.fill(f"{world.url}/issues/{world.issue}")
        await expect(person.get_by_role("heading", name="Add sub")).to_be_visible()
        await request.fill("Add sub")
        await expect(person.get_by_role("heading", name="Add sub")).to_have_count(0)
        await person.get_by_label("repository").fill("/no/such/place")
        await expect(person.get_by_text("there is no directory /no/such/place")).to_be_visible()
