"""Requests of an agent with a command line: one turn at a time, each paid once and covered by what is left."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.agents.proxied.base import OnBegun, ProxiedReply, ProxiedRequest, UpstreamCall
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.pace import Pace
from perdure.adapters.worker.turn.paid_replies import REPLIES_CUT_PER_TURN, PaidReplies
from perdure.adapters.worker.turn.request_gate import SIDE_REQUESTS_PER_TURN, RequestGate
from perdure.models.budget.ledger import Spend, SpendingLimits, Usage
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.turn import TurnInput
from perdure.models.errors import BudgetReached, ModelRefusesUs, ModelUnavailable, RepliesCut
from perdure.models.phases import Step
from perdure.models.rules.allowance import Limit, day_limits_only, exceeded_limit
from tests.waiting import patient

WORK = TurnInput(delivery="one", step=Step.IMPLEMENT, attempt=1, turn=1, checkpoint="c", contract="0" * 64)
RUN = "run"


def turn(number: int, **changes: Any) -> TurnInput:
    return WORK.model_copy(update={"turn": number, **changes})


def request(key: str, **changes: Any) -> ProxiedRequest:
    fields: dict[str, Any] = {
        "wire": "anthropic",
        "path": "/v1/messages",
        "model": "claude-sonnet-5-5",
        "body": {},
        "key": key,
        "upper_usd": 1.0,
        "upper_tokens": 100,
        "messages": [],
    }
    return ProxiedRequest(**{**fields, **changes})


class Api:
    """Answers with one reply after another; `errors` come first, after the reply has begun where `begun` says so."""

    def __init__(self, *errors: Exception, begun: bool = False) -> None:
        self.asked = 0
        self.errors, self.begun = list(errors), begun

    async def __call__(self, on_begun: OnBegun) -> ProxiedReply:
        self.asked += 1
        if self.errors:
            if self.begun:
                on_begun()
            raise self.errors.pop(0)
        on_begun()
        message = {"role": "assistant", "content": [{"type": "text", "text": str(self.asked)}]}
        usage = Usage(input_tokens=10, output_tokens=5, cost_usd=0.25)
        return ProxiedReply(200, "application/json", json.dumps(self.asked).encode(), usage, message, "end_turn")


def books(directory: Path) -> PaidReplies:
    """As a worker has it that has just begun: all it knows is on disk."""
    return PaidReplies(ReplyStore(directory), SpendLog(directory), Pace(directory / "pace"))


async def bought(directory: Path, asked: ProxiedRequest, ask: UpstreamCall, work: TurnInput = WORK) -> ProxiedReply:
    held = RequestGate(books(directory))
    await held.admit_turn(work, RUN)
    return await held.reply(asked, ask)


async def test_a_reply_that_was_received_is_given_again_after_a_death(tmp_path: Path) -> None:
    api = Api()
    first = await bought(tmp_path, request("a"), api)
    assert await bought(tmp_path, request("a"), api) == first
    assert api.asked == 1
    log = SpendLog(tmp_path)
    assert log.total_spend().usd == 0.25
    assert log.count_repeats() == (0, 0)


async def test_an_agent_that_was_resumed_gets_its_turns_reply_although_it_says_a_word_more(tmp_path: Path) -> None:
    api = Api()
    first = await bought(tmp_path, request("a"), api)
    assert await bought(tmp_path, request("a, and: go on"), api) == first
    assert api.asked == 1


async def test_a_turn_that_was_paid_again_with_a_word_more_counts_as_paid_twice(tmp_path: Path) -> None:
    api = Api()
    await bought(tmp_path, request("a"), api)
    (tmp_path / "replies.jsonl").write_text("torn by a bad disk")
    await bought(tmp_path, request("a, and: go on"), api)
    assert api.asked == 2
    assert SpendLog(tmp_path).count_repeats() == (1, 0)


async def test_an_agent_that_begins_again_asks_its_title_again_and_it_is_not_paid_again(tmp_path: Path) -> None:
    api = Api()
    first = await bought(tmp_path, request("title", turn=False), api)
    assert await bought(tmp_path, request("title", turn=False), api, turn(2)) == first
    await bought(tmp_path, request("title", turn=False), api, turn(2, started_run_suffix=RUN, sample="rewound"))
    assert api.asked == 2, "a run that was rewound wants another"
    assert SpendLog(tmp_path).count_repeats() == (0, 0)


async def test_equal_turns_of_a_plans_tasks_are_not_one_turn_paid_twice(tmp_path: Path) -> None:
    for name in ("one", "another"):
        await bought(tmp_path / name, request("a"), Api(), turn(1, delivery=name))
    log = SpendLog(tmp_path / "one")
    log.include_log(SpendLog(tmp_path / "another"))
    assert log.count_repeats() == (0, 0)


@pytest.mark.parametrize(
    "other",
    [
        turn(2),
        turn(1, attempt=2),
        turn(1, step=Step.REVIEW),
        turn(1, messages=(UserMessage(id="w", text="Rather not."),)),
        turn(1, started_run_suffix=RUN, sample="rewound"),
    ],
)
async def test_another_turn_is_another_reply(tmp_path: Path, other: TurnInput) -> None:
    api = Api()
    await bought(tmp_path, request("a"), api)
    await bought(tmp_path, request("a"), api, other)
    assert api.asked == 2


@pytest.mark.parametrize("changed", [{"model": "another"}, {"stream": True}, {"wire": "gemini"}])
async def test_a_reply_of_another_kind_is_not_given(tmp_path: Path, changed: dict[str, Any]) -> None:
    api = Api()
    await bought(tmp_path, request("a"), api)
    await bought(tmp_path, request("a", **changed), api)
    assert api.asked == 2


async def test_what_is_beside_the_conversation_is_told_apart_by_its_bytes(tmp_path: Path) -> None:
    api = Api()
    for key in ("title", "count", "title"):
        await bought(tmp_path, request(key, turn=False), api)
    assert api.asked == 2
    assert SpendLog(tmp_path).total_spend().usd == 0.5


async def test_a_shell_that_asks_beside_the_agents_work_comes_to_an_end_within_the_turn(tmp_path: Path) -> None:
    api, held = Api(), RequestGate(books(tmp_path))
    await held.admit_turn(turn(1), RUN)
    for number in range(SIDE_REQUESTS_PER_TURN):
        await held.reply(request(str(number), turn=False), api)
    with pytest.raises(ModelRefusesUs, match="beside its work"):
        await held.reply(request("more", turn=False), api)
    await held.admit_turn(turn(2), RUN)
    await held.reply(request("next", turn=False), api)
    assert api.asked == SIDE_REQUESTS_PER_TURN + 1


async def test_a_reply_written_down_and_not_settled_is_settled_when_it_is_found(tmp_path: Path) -> None:
    api = Api()
    await bought(tmp_path, request("a"), api)
    log = tmp_path / "spend.jsonl"
    log.write_text(log.read_text().splitlines(keepends=True)[0])  # the worker died in between
    assert SpendLog(tmp_path).total_spend().at_risk_usd == 1.0
    await bought(tmp_path, request("a"), api)
    spent = SpendLog(tmp_path).total_spend()
    assert (spent.usd, spent.at_risk_usd) == (0.25, 0.0)
    assert api.asked == 1


async def test_a_refusal_before_a_reply_costs_nothing_and_one_that_broke_off_may_have(tmp_path: Path) -> None:
    with pytest.raises(ModelRefusesUs):
        await bought(tmp_path, request("a"), Api(ModelRefusesUs("401")))
    assert SpendLog(tmp_path).total_spend().at_risk_usd == 0.0
    with pytest.raises(ModelUnavailable):
        await bought(tmp_path, request("a"), Api(ModelUnavailable("cut"), begun=True))
    assert SpendLog(tmp_path).total_spend().at_risk_usd == 1.0


async def test_replies_that_break_off_again_and_again_ask_a_person(tmp_path: Path) -> None:
    for _ in range(REPLIES_CUT_PER_TURN):
        with pytest.raises(ModelUnavailable):
            await bought(tmp_path, request("a"), Api(ModelUnavailable("cut"), begun=True))
    api = Api()
    with pytest.raises(RepliesCut):
        await bought(tmp_path, request("a"), api)
    assert api.asked == 0


async def test_429_is_waited_out_and_nobody_is_told_of_an_error(tmp_path: Path) -> None:
    limited = ModelUnavailable("429", limit_reason="rate limit", retry_after=0.2)
    api, kept = Api(limited), books(tmp_path)
    held = RequestGate(kept)
    await held.admit_turn(WORK, RUN)
    reply = await held.reply(request("a"), api)
    assert api.asked == 2
    assert kept.waited_s >= 0.2
    assert reply.usage.cost_usd == 0.25
    assert SpendLog(tmp_path).total_spend().at_risk_usd == 0.0


async def test_a_request_waits_for_its_turn_and_says_that_the_tools_are_done(tmp_path: Path) -> None:
    api, held = Api(), RequestGate(books(tmp_path))
    first = asyncio.ensure_future(held.reply(request("1"), api))
    async with asyncio.timeout(patient(30)):
        await held.wait_for_request()
        assert api.asked == 0
        one = await held.admit_turn(turn(1), RUN)
        await held.wait_for_answer(one)
        assert one.reply == await first
        assert one.request is not None
        assert one.request.key == "1"
        second = asyncio.ensure_future(held.reply(request("2"), api))
        await held.wait_for_request()
        await asyncio.sleep(0.05)
        assert not second.done()
        assert api.asked == 1
        two = await held.admit_turn(turn(2), RUN)
        assert (await second).body == b"2"
        await held.wait_for_answer(two)


async def test_a_turn_that_is_there_first_waits_for_its_request(tmp_path: Path) -> None:
    api, held = Api(), RequestGate(books(tmp_path))
    one = await held.admit_turn(turn(1), RUN)
    async with asyncio.timeout(patient(30)):
        reply = await held.reply(request("1"), api)
        await held.wait_for_answer(one)
    assert one.reply == reply


async def test_a_request_that_failed_may_come_again_within_its_turn_and_one_that_was_answered_too(
    tmp_path: Path,
) -> None:
    api, held = Api(ModelUnavailable("cut"), begun=True), RequestGate(books(tmp_path))
    one = await held.admit_turn(turn(1), RUN)
    async with asyncio.timeout(patient(30)):
        with pytest.raises(ModelUnavailable):
            await held.reply(request("1"), api)
        await held.wait_for_answer(one)
        assert isinstance(one.failure, ModelUnavailable)
        first = await held.reply(request("1 once more"), api)
        assert one.failure is None
        assert await held.reply(request("1 once more"), api) == first
    assert api.asked == 2


async def test_two_requests_at_a_time_are_two_turns_and_each_gets_its_own_reply(tmp_path: Path) -> None:
    class Slow(Api):
        async def __call__(self, on_begun: OnBegun) -> ProxiedReply:
            await asyncio.sleep(0.1)
            return await super().__call__(on_begun)

    api, held = Slow(), RequestGate(books(tmp_path))
    await held.admit_turn(turn(1), RUN)
    first = asyncio.ensure_future(held.reply(request("1"), api))
    await asyncio.sleep(0)
    other = asyncio.ensure_future(held.reply(request("of another of its agents"), api))
    async with asyncio.timeout(patient(30)):
        assert (await first).body == b"1"
        await asyncio.sleep(0.2)
        assert api.asked == 1
        await held.admit_turn(turn(2), RUN)
        assert (await other).body == b"2"
    assert SpendLog(tmp_path).count_repeats() == (0, 0)


async def test_a_request_that_was_given_up_may_come_again_changed(tmp_path: Path) -> None:
    class Silent(Api):
        async def __call__(self, on_begun: OnBegun) -> ProxiedReply:
            await asyncio.Event().wait()
            raise AssertionError

    held = RequestGate(books(tmp_path))
    await held.admit_turn(turn(1), RUN)
    first = asyncio.ensure_future(held.reply(request("1"), Silent()))
    await asyncio.sleep(0.05)
    again = asyncio.ensure_future(held.reply(request("1 once more"), Api()))
    await asyncio.sleep(0.05)
    first.cancel()
    async with asyncio.timeout(patient(30)):
        assert (await again).body == b"1"


async def test_what_is_beside_the_conversation_does_not_wait_while_a_turn_is_on(tmp_path: Path) -> None:
    api, held = Api(), RequestGate(books(tmp_path))
    await held.admit_turn(turn(1), RUN)
    async with asyncio.timeout(patient(30)):
        await held.reply(request("1"), api)
        await held.reply(request("title", turn=False), api)
    assert api.asked == 2


async def test_an_end_answers_those_that_wait_and_all_that_come(tmp_path: Path) -> None:
    api, held = Api(), RequestGate(books(tmp_path))
    waiting = asyncio.ensure_future(held.reply(request("1"), api))
    async with asyncio.timeout(patient(30)):
        await held.wait_for_request()
        await held.end(ModelRefusesUs("the budget is used up"))
        with pytest.raises(ModelRefusesUs, match="used up"):
            await waiting
        with pytest.raises(ModelRefusesUs, match="used up"):
            await held.reply(request("2", turn=False), api)
    assert api.asked == 0


async def test_a_request_that_is_given_up_while_it_waits_waits_no_more(tmp_path: Path) -> None:
    held = RequestGate(books(tmp_path))
    waiting = asyncio.ensure_future(held.reply(request("1"), Api()))
    async with asyncio.timeout(patient(30)):
        await held.wait_for_request()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await held.wait_for_request()


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
