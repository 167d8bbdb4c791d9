"""Two people who decide the same in the same instant: one decision counts, and the other one is told."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from browsing import card, chromium, looking
from playwright.async_api import expect
from visitors import Visitor, visiting

from perdure.local.page import ListenAddress, ServedPage, ensure_page_token
from perdure.models.delivery.decisions import PendingDecision
from perdure.page.server import serve_page
from tests.e2e.test_gates import GATES
from tests.engine import Engine, finished, make_target, until

ROUNDS = 6

WON, LOST = (
    re.compile("approved: plan|rejected: plan"),
    re.compile(r"decided before, otherwise: \w+ by \S+, [\d-]+ [\d:]+ UTC"),
)


async def asked(engine: Engine, id: str) -> PendingDecision | None:
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
            waits: PendingDecision = await until(lambda id=id: asked(engine, id), timeout=120)  # type: ignore[misc]
            first, second = ("approve", "reject") if number % 2 else ("reject", "approve")
            answers = await asyncio.gather(
                sent(ada, page, id, first, waits.target), sent(grace, page, id, second, waits.target)
            )
            assert sorted(status for status, _ in answers) == [200, 409], answers
            (_, won), (_, lost) = sorted(answers, key=lambda answer: answer[0])
            assert WON.search(won), won
            assert LOST.search(lost), lost
            assert len(await counted(engine, id)) == 1, "the other one was not accepted"

        waits = await until(lambda: asked(engine, ids[-1]), timeout=120)
        async with looking(browser, page) as mine, looking(browser, page) as hers:
            for person in (mine, hers):
                await card(person, ids[-1]).get_by_text("Reject, with words").click()
                await card(person, ids[-1]).get_by_label("Say why, and what instead").fill("with types, please")
            await asyncio.gather(
                card(mine, ids[-1]).get_by_role("button", name="Approve").click(),
                card(hers, ids[-1]).get_by_role("button", name="Reject").click(),
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
