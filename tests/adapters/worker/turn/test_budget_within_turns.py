"""Requests of an agent beyond the one its turn was begun for: each has to be covered by what is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from test_held_requests import RUN, WORK, Api, books, request, turn

from perdure.adapters.agents.proxied.base import OnBegun, ProxiedReply
from perdure.adapters.worker.journal import SpendLog
from perdure.adapters.worker.turn.request_gate import RequestGate
from perdure.models.budget.ledger import Spend, SpendingLimits
from perdure.models.errors import BudgetReached, ModelRefusesUs, ModelUnavailable
from perdure.models.rules.allowance import Limit, day_limits_only, exceeded_limit
from tests.waiting import patient

OWN = "claude-sonnet-5-5"


def within(usd: float, **more: object) -> SpendingLimits:
    return SpendingLimits.model_validate({"usd": usd, **more})


async def held(directory: Path, room: SpendingLimits | None, *models: str) -> RequestGate:
    made = RequestGate(books(directory), models or ("*",))
    await made.admit_turn(turn(1, spending_limits=room), RUN)
    return made


async def test_the_request_a_turn_was_begun_for_may_cost_more_than_is_left_and_no_other(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, within(0.9))
    await agent.reply(request("1"), api)
    before = SpendLog(tmp_path).total_spend()
    with pytest.raises(BudgetReached, match=r"0.25 of \$0.90 are spent, and the agent.s next request may cost \$1.00"):
        await agent.reply(request("title", turn=False), api)
    assert api.asked == 1
    assert SpendLog(tmp_path).total_spend() == before, "nothing was reserved for what was not asked"


async def test_what_was_bought_before_is_given_again_whatever_is_left(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, within(1.5))
    first = await agent.reply(request("1"), api)
    title = await agent.reply(request("title", turn=False), api)
    poor = await held(tmp_path, within(0.1))
    assert await poor.reply(request("1"), api) == first
    assert await poor.reply(request("title", turn=False), api) == title
    assert api.asked == 2


async def test_an_agent_that_asked_for_too_much_gets_the_same_error_from_then_on(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, within(0.9))
    one = await agent.admit_turn(turn(1, spending_limits=within(0.9)), RUN)
    async with asyncio.timeout(patient(30)):
        await agent.reply(request("1"), api)
        waiting = asyncio.ensure_future(agent.reply(request("2"), api))
        await agent.wait_for_request()
        with pytest.raises(BudgetReached):
            await agent.reply(request("title", turn=False), api)
        with pytest.raises(BudgetReached):
            await waiting
        await agent.wait_for_request()
        await agent.wait_for_answer(one)
    assert isinstance(agent.end_error, BudgetReached)


async def test_several_at_a_time_do_not_count_on_the_same_rest(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, within(1.5))
    refused = asyncio.Semaphore(0)

    async def late(on_begun: OnBegun) -> ProxiedReply:
        """Answer once the others were refused: what is spent by then is less than what was reserved."""
        await refused.acquire()
        await refused.acquire()
        return await api(on_begun)

    async def ask(name: str) -> bool:
        try:
            await agent.reply(request(name, turn=False), late)
        except BudgetReached:
            refused.release()
            return False
        return True

    async with asyncio.timeout(patient(30)):
        assert sorted(await asyncio.gather(*map(ask, "abc"))) == [False, False, True]
    assert api.asked == 1


async def test_a_reply_that_broke_off_counts_before_its_request_comes_again(tmp_path: Path) -> None:
    agent = await held(tmp_path, within(1.5))
    with pytest.raises(ModelUnavailable):
        await agent.reply(request("1"), Api(ModelUnavailable("503")))
    with pytest.raises(ModelUnavailable):
        await agent.reply(request("1"), Api(ModelUnavailable("cut"), begun=True))
    api = Api()
    with pytest.raises(BudgetReached):
        await agent.reply(request("1"), api)
    assert api.asked == 0


async def test_an_unknown_price_is_not_free_until_somebody_says_so(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, within(5))
    await agent.reply(request("1"), api)
    with pytest.raises(BudgetReached, match="price") as stopped:
        await agent.reply(request("title", turn=False, upper_usd=None), api)
    assert stopped.value.reached.limit == Limit.PRICE
    allowed = await held(tmp_path, within(5, unpriced=True))
    await allowed.reply(request("title", turn=False, upper_usd=None), api)


@pytest.mark.parametrize(
    ("room", "spent", "asked", "limit"),
    [
        (within(1), Spend(usd=0.5), (0.5, 10), None),
        (within(1), Spend(usd=0.5), (0.51, 10), Limit.USD),
        (within(1), Spend(usd=0.3, at_risk_usd=0.3), (0.5, 10), Limit.USD),
        (within(1), Spend(usd=None, known_usd=0.6), (0.5, 10), Limit.USD),
        (within(1), Spend(usd=2), (0.0, 0), None),
        (within(9, tokens=100), Spend(tokens=60, at_risk_tokens=20), (0.1, 20), None),
        (within(9, tokens=100), Spend(tokens=60, at_risk_tokens=20), (0.1, 21), Limit.TOKENS),
        (within(9, day_usd=1), Spend(usd=0.5), (0.5, 10), None),
        (within(9, day_usd=1), Spend(usd=0.5), (0.51, 10), Limit.DAY),
        (day_limits_only(within(0.1, day_usd=1, tokens=1)), Spend(usd=0.5, tokens=9), (0.5, 10), None),
        (day_limits_only(within(0.1, day_usd=1)), Spend(usd=0.5), (0.51, 10), Limit.DAY),
        (day_limits_only(within(0.1, day_usd=1)), Spend(usd=0.5), (None, 10), None),
        (within(9, day_usd=1), Spend(usd=0.8, at_risk_usd=0.2), (0.1, 10), Limit.DAY),
        (within(9, tokens=100, unpriced=True), Spend(tokens=90), (None, 11), Limit.TOKENS),
    ],
)
def test_a_limit_counts_what_was_paid_what_is_at_risk_and_what_is_asked_for(
    room: SpendingLimits, spent: Spend, asked: tuple[float | None, int], limit: Limit | None
) -> None:
    over = exceeded_limit(room, spent, *asked)
    assert (over[0] if over else None) == limit


async def test_another_model_is_refused_and_one_of_the_list_is_not(tmp_path: Path) -> None:
    api, agent = Api(), await held(tmp_path, None, OWN, "claude-haiku-*")
    await agent.reply(request("title", turn=False, model="claude-haiku-5-5"), api)
    for name in ("claude-opus-5-5", "claude-haiku", f"{OWN}-1"):
        with pytest.raises(ModelRefusesUs, match="may ask claude-sonnet-5-5 or claude-haiku"):
            await agent.reply(request("title", turn=False, model=name), api)
    await agent.reply(request("1"), api)
    assert api.asked == 2


async def test_an_agent_that_asks_another_model_for_its_work_fails_in_its_turn(tmp_path: Path) -> None:
    api, agent = Api(), RequestGate(books(tmp_path), (OWN,))
    asking = asyncio.ensure_future(agent.reply(request("1", model="claude-opus-5-5"), api))
    await asyncio.sleep(0)
    one = await agent.admit_turn(WORK, RUN)
    async with asyncio.timeout(patient(30)):
        with pytest.raises(ModelRefusesUs):
            await asking
        await agent.wait_for_answer(one)
    assert isinstance(one.failure, ModelRefusesUs)
    assert api.asked == 0
