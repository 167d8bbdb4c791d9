"""A limit that is reached holds the delivery within one reply, asks, and goes on at the same turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from people_fixtures import BUILT, WHOLE, Company, at, events, reset, waiting
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from tests.waiting import patient

STEPS = ["classify", "plan", "implement", "document", "fix_tests", "review", "fix_review", "review"]


@pytest.fixture
def company() -> Company:
    return Company()


@pytest.fixture
async def played(client: Client, company: Company) -> AsyncIterator[None]:
    async with playing(client, company):
        yield


async def ended(client: Client, id: str) -> DeliveryResult:
    async with asyncio.timeout(patient(40)):
        return await Perdure(client).delivery(id).result()


def turns(company: Company) -> list[tuple[str, int, str]]:
    return [(work.step, work.turn, work.checkpoint) for work in company.seen]


@pytest.mark.usefixtures("played")
async def test_a_breach_in_every_step_holds_within_one_reply_and_goes_on_at_the_same_turn(
    client: Client, company: Company, fresh: str
) -> None:
    company.turns_each = 2
    company.asks(budget_usd=0.1, document=True)
    await Perdure(client).submit(WHOLE, id=fresh)
    handle, paid, before = client.get_workflow_handle(fresh), 1, ""
    for number, step in enumerate(STEPS, start=1):
        asked = await waiting(handle, behind=before)
        assert (asked.gate, asked.target, asked.options) == ("budget", str(number), ("add_budget", "reject")), step
        await asyncio.sleep(0.1)
        assert (company.paid, company.seen[-1].step, company.seen[-1].turn) == (paid, step, 1)
        assert asked.summary == f"${paid * 0.1:.2f} of ${paid * 0.1:.2f} are spent"
        held_at = company.seen[-1]
        assert await handle.execute_update("add_budget", {"usd": 0.2, "of": asked.target}) == "added $0.2"
        await at(handle, lambda progress, before=held_at: len(company.seen) > company.seen.index(before) + 1)
        next_one = company.seen[company.seen.index(held_at) + 1]
        assert (next_one.step, next_one.attempt, next_one.turn) == (step, held_at.attempt, 2)
        paid, before = paid + 2, asked.target
    result = await ended(client, fresh)
    assert result.status == "delivered", result.message
    checkpoints = [work.checkpoint for work in company.seen]
    assert checkpoints == ["c0", *(f"{number:0>8}" for number in range(1, len(checkpoints)))], "none lost, none redone"


@pytest.mark.usefixtures("played")
async def test_a_rejected_budget_ends_the_delivery_and_a_retry_does_not_forget_what_was_spent(
    client: Client, company: Company, fresh: str
) -> None:
    company.asks(Phase.BUILD, budget_usd=0.2)
    company.turns_each = 5
    submitted = await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    await handle.execute_update("reject", {"of": asked.target, "note": "not worth it"})
    result = await ended(client, fresh)
    assert (result.status, result.reason) == ("not_delivered", "budget")
    assert result.message == "$0.20 of $0.20 are spent; rejected: not worth it"
    assert (result.steps[-1].step, result.steps[-1].status) == ("implement", "failed")
    await submitted.delivery.retry()
    again = await waiting(client.get_workflow_handle(fresh))
    assert (again.target, again.summary) == ("2", "$0.20 of $0.20 are spent")
    assert company.paid == 2, "a turn before the question would be a reply nobody has allowed"
    await client.get_workflow_handle(fresh).execute_update("add_budget", {"usd": 5})
    assert (await ended(client, fresh)).status == "completed"
    assert [work.turn for work in company.seen] == [1, 2, 3, 4, 5]


@pytest.mark.usefixtures("played")
async def test_tokens_are_a_limit_and_only_more_of_them_lets_it_go_on(
    client: Client, company: Company, fresh: str
) -> None:
    company.turns_each, company.tokens = 2, 700
    company.asks(Phase.BUILD, budget_tokens=700)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    assert asked.summary == "700 of 700 tokens are used"
    await handle.execute_update("add_budget", {"usd": 50, "of": asked.target})
    again = await waiting(handle, behind=asked.target)
    assert (again.summary, company.paid) == (asked.summary, 1)
    await handle.execute_update("add_budget", {"tokens": 1, "of": again.target})
    assert (await ended(client, fresh)).status == "completed"


@pytest.mark.usefixtures("played")
async def test_a_rewind_forgets_no_tokens(client: Client, company: Company, fresh: str) -> None:
    company.turns_each, company.tokens = 4, 300
    company.asks(Phase.BUILD, budget_tokens=900)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    assert (await waiting(handle)).summary == "900 of 900 tokens are used"
    await reset(handle, next(n for n, kind, _ in await events(handle) if kind == "workflow_task_completed"))
    async with asyncio.timeout(patient(40)):
        while company.paid < 4:
            await asyncio.sleep(0.05)
    assert (await waiting(handle)).summary == "1,200 of 900 tokens are used", "after one reply, not after three"
    assert company.paid == 4
    await handle.execute_update("add_budget", {"tokens": 5000})
    assert (await ended(client, fresh)).status == "completed"


@pytest.mark.usefixtures("played")
async def test_a_price_nobody_knows_is_asked_about_once_and_money_is_no_answer(
    client: Client, company: Company, fresh: str
) -> None:
    company.turns_each, company.price = 4, None
    company.asks(Phase.BUILD)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    assert asked.options == ("approve", "reject")
    assert await handle.execute_update("add_budget", {"usd": 5}) == "added $5"
    with pytest.raises(WorkflowUpdateFailedError, match="failed"):
        await handle.execute_update("add_budget", {"usd": 5, "of": asked.target})
    await asyncio.sleep(0.3)
    assert (await waiting(handle)).target == asked.target
    assert company.paid == 1
    await handle.execute_update("approve", {"of": asked.target})
    assert (await ended(client, fresh)).status == "completed"
    assert company.paid == 4


@pytest.mark.usefixtures("played")
async def test_time_that_is_over_in_the_middle_of_a_turn_holds_and_that_turn_is_done_again(
    client: Client, company: Company, fresh: str
) -> None:
    plays, stuck = company.turn, [True]

    async def turn(work: TurnInput) -> TurnResult:
        if work.turn == 2 and stuck:
            stuck.pop()
            await asyncio.sleep(60)
        return await plays(work)

    company.turn, company.turns_each = turn, 2
    company.asks(Phase.BUILD, time_s=2.0)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    assert asked.summary == "the time limit of 0:00:02 is over"
    assert not stuck
    await handle.execute_update("add_budget", {"time": "1h", "of": asked.target})
    result = await ended(client, fresh)
    assert result.status == "completed"
    assert [work.turn for work in company.seen] == [1, 2, 2]
    assert company.seen[1].checkpoint == company.seen[2].checkpoint == "00000001"
    assert [(step.step, step.status) for step in result.steps] == [
        ("prepare", "done"), ("implement", "done"), ("commit", "done"),
    ]  # fmt: skip


@pytest.mark.usefixtures("played")
async def test_a_failure_whose_next_try_has_no_room_before_the_end_asks_and_does_not_try_without_pause(
    client: Client, company: Company, fresh: str
) -> None:
    plays, away = company.turn, [True]

    async def turn(work: TurnInput) -> TurnResult:
        if away:
            away.pop()
            raise ApplicationError("overloaded", next_retry_delay=timedelta(minutes=10))
        return await plays(work)

    company.turn = turn
    company.asks(Phase.BUILD, time_s=60.0)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    assert "time limit" in asked.summary
    await asyncio.sleep(0.3)
    assert len(company.seen) == 1
    await handle.execute_update("add_budget", {"time": "1h", "of": asked.target})
    assert (await ended(client, fresh)).status == "completed"


@pytest.mark.usefixtures("played")
async def test_more_that_comes_before_it_is_needed_or_twice_is_counted_once(
    client: Client, company: Company, fresh: str
) -> None:
    company.turns_each = 5
    company.asks(Phase.BUILD, budget_usd=0.2)
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    asked = await waiting(handle)
    for _ in range(2):
        await handle.signal("decide", {"update": "add_budget", "said": {"usd": 0.1, "of": asked.target, "id": "a"}})
    assert (await handle.execute_update("add_budget", {"usd": 0.1, "id": "a"})).startswith("counted before: approved")
    again = await waiting(handle, behind=asked.target)
    assert again.summary == "$0.30 of $0.30 are spent"
    with pytest.raises(WorkflowUpdateFailedError) as negative:
        await handle.execute_update("add_budget", {"usd": -5})
    assert "usd" in str(negative.value.cause)
    with pytest.raises(WorkflowUpdateFailedError) as nothing:
        await handle.execute_update("add_budget", {})
    assert "say how much more" in str(nothing.value.cause)
    await handle.signal("hold", {})  # somebody wants to look before it goes on
    await at(handle, lambda progress: True)
    await handle.execute_update("add_budget", {"usd": 5, "of": again.target})
    await at(handle, lambda progress: progress["waiting"].startswith("held"))
    assert company.paid == 3, "a hold that comes while it waits for money holds behind it"
    await handle.signal("resume")
    assert (await ended(client, fresh)).status == "completed"
