"""Decisions taken on the page, in a real browser, by two people, also in the same instant."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from browsing import chromium, looking, open_review
from playwright.async_api import Page, expect
from visitors import Visitor, visiting

from perdure.adapters.system.home import login_name
from perdure.local.page import ListenAddress, ServedPage, ensure_page_token
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.server import serve_page
from tests.e2e.test_gates import GATES
from tests.e2e.test_web_ui import TOLD
from tests.engine import BUILT, HAPPY, Engine, check_shipped, finished, make_target, until

ASKING = GATES.replace(
    """step = "implement"
turn = 4
say""",
    """step = "implement"
turn = 4
use = [{ tool = "ask", input = { text = "What of values?", kind = "choice", choices = ["wrap", "raise `ValueError`"], why = "It shows." } }]
[[line]]
step = "implement"
turn = 5
say""",  # noqa: E501  an inline table of TOML is one line
)
CENT = 0.01


async def asked(engine: Engine, not_key: str) -> PendingDecision | None:
    described = await engine.perdure.delivery("calc-sub").describe()
    if not described.running:
        return PendingDecision(gate="plan", target="", summary="ended", since=described.started)
    return (
        described.pending_decision
        if described.pending_decision is not None and described.pending_decision.key != not_key
        else None
    )


async def stands_for(page: Page, of: str) -> bool:
    """Open the review of the delivery; True where it is about this."""
    await page.goto(urljoin(page.url, "/deliveries/calc-sub/decide"))
    names = page.locator(".decision-bar input[name=of]")
    return bool(await names.count()) and await names.first.input_value() == of


async def said(page: Page, words: str) -> None:
    await expect(page.get_by_role("status").filter(has_text=words)).to_be_visible()


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_reject_edit_answer_raise_and_approve_are_taken_on_the_page_once_each_whoever_else_decides(
    tmp_path: Path, ports: int
) -> None:
    assert 'tool = "ask"' in ASKING
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, ASKING, ports=ports) as engine,
        chromium() as browser,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=18900)) as served,
        looking(browser, served) as ada,
        looking(browser, served, java_script_enabled=False) as grace,
    ):
        engine.worker()
        submitted = await engine.submit(origin, gates=["plan", "pull_request"], budget_usd=CENT)
        taken: list[str] = []
        key = ""
        while (now := await until(lambda key=key: asked(engine, key), timeout=120)).target:  # type: ignore[misc]
            key = now.key
            if now.gate == "plan" and "edited" in taken:
                continue  # the edited one, in the moment before its approval was counted
            await until(lambda of=now.target: stands_for(ada, of))  # type: ignore[misc]
            bar = await open_review(ada, "calc-sub")
            await expect(bar.locator("input[name=of]")).to_have_value(now.target)
            match now.gate:
                case "budget":
                    taken.append("raised")
                    await bar.get_by_label("Dollars more").fill("5")
                    await bar.get_by_role("button", name="Raise the budget").click()
                    await said(ada, "Add sub: added $5")
                case "plan" if "rejected" not in taken:
                    taken.append("rejected")
                    await until(lambda of=now.target: stands_for(grace, of))  # type: ignore[misc]
                    await bar.get_by_role("button", name=f"Reject plan {now.target[:7]}").click()
                    comment = bar.get_by_label("Comment")
                    await expect(comment).to_be_focused()
                    await comment.fill("with types, please")
                    await bar.get_by_role("button", name=f"Reject plan {now.target[:7]}").click()
                    await said(ada, "Add sub: rejected: plan")
                    await grace.get_by_role("button", name=f"Approve plan {now.target[:7]}").click()
                    await expect(grace.get_by_role("alert")).to_contain_text("decided before, otherwise: rejected")
                case "plan":
                    assert "typed" in now.summary
                    taken.append("edited")
                    await ada.get_by_text("Edit plan").click()
                    plan = ada.get_by_label("The plan as text")
                    text = await plan.input_value()
                    assert "title: Add typed sub" in text
                    await plan.fill(text.replace("title: Add typed sub", "title: Add sub as edited"))
                    await ada.get_by_role("button", name="Approve as edited").click()
                    await said(ada, "Add sub: approved: plan")
                case "question":
                    taken.append("answered")
                    await bar.get_by_label(TOLD).check()
                    await bar.get_by_role("button", name="Answer").click()
                    await said(ada, "Add sub: answered")
                case "pull_request":
                    taken.append("approved")
                    file = ada.locator(".file").filter(has_text="calc.py")
                    await expect(file.locator(".added", has_text="def sub")).to_be_visible()
                    await bar.get_by_role("button", name=f"Approve commit {now.target[:7]}").click()
                    await said(ada, "Add sub: approved: pull request")
        assert {*taken} == {"raised", "rejected", "edited", "answered", "approved"}, taken
        result = await finished(submitted, engine)
        check_shipped(origin, engine, result, {})
        assert result.pull_request is not None
        assert result.pull_request.title == "feat: add sub as edited"
        assert [made.by for made in result.decisions if made.gate == "pull_request"] == [login_name()]
        await expect(ada.locator("#lane-ended").get_by_text("Add sub")).to_be_visible()


@pytest.mark.timeout(240)
async def test_a_worker_that_is_killed_is_seen_to_be_silent_and_the_next_to_go_on(tmp_path: Path, ports: int) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, HAPPY.replace("sleep 0.5", "sleep 90"), ports=ports) as engine,
        chromium() as browser,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19000)) as served,
        looking(browser, served) as ada,
    ):
        engine.worker()
        submitted = await engine.submit(origin, **BUILT)
        row = ada.locator("#lane-build li").filter(has_text="Add sub")
        await expect(row).to_contain_text("worker alive")
        await expect(row).to_contain_text("sleep 90")
        engine.kill_workers()
        await expect(row).to_contain_text("worker silent for")
        engine.worker()
        await expect(row).to_contain_text("attempt 2")
        await expect(row).to_contain_text("worker alive")
        await submitted.delivery.cancel()
        await expect(ada.locator("#lane-ended").get_by_text("Add sub")).to_be_visible()


ROUNDS = 6

WON, LOST = (
    re.compile("approved: plan|rejected: plan"),
    re.compile(r"decided before, otherwise: \w+ by \S+, [\d-]+ [\d:]+ UTC"),
)


async def asked_of_two(engine: Engine, id: str) -> PendingDecision | None:
    return (await engine.perdure.delivery(id).describe()).pending_decision


async def counted(engine: Engine, id: str) -> list[str]:
    """The answers of the delivery to decisions that it has counted: not of those that it says were decided before."""
    history = await engine.client.get_workflow_handle(id).fetch_history()
    updates = [event.workflow_execution_update_completed_event_attributes for event in history.events]
    words = [payload.data.decode() for update in updates for payload in update.outcome.success.payloads]
    assert not any(event.workflow_execution_signaled_event_attributes.signal_name for event in history.events)
    return [word for word in words if "counted before" not in word]


async def sent(person: Visitor, page: ServedPage, id: str, update: str, of: str) -> tuple[int, str]:
    """The answer to a decision, with the words that the page says once where it was counted."""
    note = {"note": "with types, please"} if update == "reject" else {}
    status, text = await person.post(f"/deliveries/{id}/decide/{update}", {"of": of, **note})
    return (status, text) if status != 303 else (await person.get("/"))


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.timeout(400)
async def test_an_approval_and_a_rejection_in_the_same_instant_are_one_decision_and_a_line_for_who_came_second(
    tmp_path: Path, ports: int
) -> None:
    origin = make_target(tmp_path / "calc.git")
    async with (
        Engine.open(tmp_path, GATES, ports=ports) as engine,
        chromium() as browser,
        serve_page(engine.perdure, ensure_page_token(engine.home), ListenAddress(port=19100)) as page,
        visiting(page) as ada,
        visiting(page) as grace,
    ):
        engine.worker()
        ids = [f"night-{number}" for number in range(ROUNDS + 1)]
        begun = [await engine.submit(origin, id=id, request=f"Add sub, {id}", gates=["plan"]) for id in ids]
        for number, id in enumerate(ids[:-1]):
            waits: PendingDecision = await until(lambda id=id: asked_of_two(engine, id), timeout=120)  # type: ignore[misc]
            first, second = ("approve", "reject") if number % 2 else ("reject", "approve")
            answers = await asyncio.gather(
                sent(ada, page, id, first, waits.target), sent(grace, page, id, second, waits.target)
            )
            assert sorted(status for status, _ in answers) == [200, 409], answers
            (_, won), (_, lost) = sorted(answers, key=lambda answer: answer[0])
            assert WON.search(won), won
            assert LOST.search(lost), lost
            assert len(await counted(engine, id)) == 1, "the other one was not accepted"

        waits = await until(lambda: asked_of_two(engine, ids[-1]), timeout=120)
        async with looking(browser, page) as mine, looking(browser, page) as hers:
            bars = [await open_review(person, ids[-1]) for person in (mine, hers)]
            await bars[1].get_by_label("Comment").fill("with types, please")
            await asyncio.gather(
                bars[0].get_by_role("button", name="Approve").click(),
                bars[1].get_by_role("button", name="Reject").click(),
            )
            said = [person.get_by_role("status").filter(has_text=WON) for person in (mine, hers)]
            refused = [person.get_by_role("alert").filter(has_text=LOST) for person in (mine, hers)]
            await expect(said[0].or_(refused[0])).to_be_visible()
            await expect(said[1].or_(refused[1])).to_be_visible()
            assert [await one.count() for one in said] in ([1, 0], [0, 1]), "one of them decided"
            lost_by = hers if await refused[1].count() else mine
            if lost_by is hers:
                await expect(hers.get_by_text("with types, please")).to_be_visible()
        assert len(await counted(engine, ids[-1])) == 1
        for one in begun:
            await one.delivery.cancel()
        for one in begun:
            await finished(one, engine)
