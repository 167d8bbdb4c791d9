"""Limits of budget, turns and time: held within one reply, asked for, and gone on with at the same turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fleet_fixtures import Fleet, at_work, shared
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.budget.ledger import LimitReached, Spend, SpendingLimits, Usage
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.phases import Phase
from perdure.models.rules.allowance import exceeded_limit
from tests.deliveries import BUILT, GREEN, RED, ADelivery, Script, events, playing, reset
from tests.waiting import patient, until

STEPS = ["classify", "plan", "implement", "document", "fix_tests", "review", "fix_review", "review"]


async def test_a_breach_in_every_step_holds_within_one_reply_and_goes_on_at_the_same_turn(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(turns_each=2, verdicts=[RED, GREEN], blockers=[1], budget_usd=0.1, document=True) as delivery:
        paid, asked = 1, None
        for number, step in enumerate(STEPS, start=1):
            asked = await delivery.pending(behind=asked)
            assert (asked.gate, asked.target, asked.options) == ("budget", str(number), ("add_budget", "reject")), step
            await asyncio.sleep(0.1)
            assert (delivery.script.paid, delivery.seen[-1].step, delivery.seen[-1].turn) == (paid, step, 1)
            assert asked.summary == f"${paid * 0.1:.2f} of ${paid * 0.1:.2f} are spent"
            held_at = delivery.seen[-1]
            assert await delivery.update("add_budget", usd=0.2, of=asked.target) == "added $0.2"
            await delivery.at(lambda progress, before=held_at: len(delivery.seen) > delivery.seen.index(before) + 1)
            next_one = delivery.seen[delivery.seen.index(held_at) + 1]
            assert (next_one.step, next_one.attempt, next_one.turn) == (step, held_at.attempt, 2)
            paid += 2
        result = await delivery.ended()
        assert result.status == "delivered", result.message
        checkpoints = [work.checkpoint for work in delivery.seen]
        assert checkpoints == ["c0", *(f"{number:0>8}" for number in range(1, len(checkpoints)))], (
            "none lost, none redone"
        )


async def test_a_rejected_budget_ends_the_delivery_and_a_retry_does_not_forget_what_was_spent(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.BUILD, turns_each=5, budget_usd=0.2) as delivery:
        asked = await delivery.pending()
        await delivery.update("reject", of=asked.target, note="not worth it")
        result = await delivery.ended()
        assert (result.status, result.reason) == ("not_delivered", "budget")
        assert result.message == "$0.20 of $0.20 are spent; rejected: not worth it"
        assert (result.steps[-1].step, result.steps[-1].status) == ("implement", "failed")
        await delivery.retry()
        again = await delivery.pending()
        assert (again.target, again.summary) == ("2", "$0.20 of $0.20 are spent")
        assert delivery.script.paid == 2, "a turn before the question would be a reply nobody has allowed"
        await delivery.update("add_budget", usd=5)
        assert (await delivery.ended()).status == "completed"
        assert [work.turn for work in delivery.seen] == [1, 2, 3, 4, 5]


async def test_tokens_are_a_limit_and_only_more_of_them_lets_it_go_on(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD, turns_each=2, tokens=700, budget_tokens=700) as delivery:
        asked = await delivery.pending()
        assert asked.summary == "700 of 700 tokens are used"
        await delivery.update("add_budget", usd=50, of=asked.target)
        again = await delivery.pending(behind=asked)
        assert (again.summary, delivery.script.paid) == (asked.summary, 1)
        await delivery.update("add_budget", tokens=1, of=again.target)
        assert (await delivery.ended()).status == "completed"


async def test_a_rewind_forgets_no_tokens(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD, turns_each=4, tokens=300, budget_tokens=900) as delivery:
        assert (await delivery.pending()).summary == "900 of 900 tokens are used"
        history = await events(delivery.handle)
        await reset(delivery.handle, next(n for n, kind, _ in history if kind == "workflow_task_completed"))
        await until(lambda: delivery.script.paid == 4)
        assert (await delivery.pending()).summary == "1,200 of 900 tokens are used", "after one reply, not after three"
        assert delivery.script.paid == 4
        await delivery.update("add_budget", tokens=5000)
        assert (await delivery.ended()).status == "completed"


async def test_a_price_nobody_knows_is_asked_about_once_and_money_is_no_answer(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD, turns_each=4, price=None) as delivery:
        asked = await delivery.pending()
        assert asked.options == ("approve", "reject")
        assert await delivery.update("add_budget", usd=5) == "added $5"
        with pytest.raises(WorkflowUpdateFailedError, match="failed"):
            await delivery.update("add_budget", usd=5, of=asked.target)
        await asyncio.sleep(0.3)
        assert (await delivery.pending()).target == asked.target
        assert delivery.script.paid == 1
        await delivery.update("approve", of=asked.target)
        assert (await delivery.ended()).status == "completed"
        assert delivery.script.paid == 4


async def test_time_that_is_over_in_the_middle_of_a_turn_holds_and_that_turn_is_done_again(
    a_delivery: ADelivery,
) -> None:
    script, stuck = Script(Phase.BUILD, turns_each=2), [True]

    async def turn(work: TurnInput) -> TurnResult:
        if work.turn == 2 and stuck:
            stuck.pop()
            await asyncio.sleep(600)
        return await script.plays(work)

    async with a_delivery(script=script, turn=turn, time_s=2.0) as delivery:
        asked = await delivery.pending()
        assert asked.summary == "the time limit of 0:00:02 is over"
        assert not stuck
        await delivery.update("add_budget", time="1h", of=asked.target)
        result = await delivery.ended()
        assert result.status == "completed"
        assert [work.turn for work in delivery.seen] == [1, 2, 2]
        assert delivery.seen[1].checkpoint == delivery.seen[2].checkpoint == "00000001"
        assert [(step.step, step.status) for step in result.steps] == [
            ("prepare", "done"), ("implement", "done"), ("commit", "done"),
        ]  # fmt: skip


async def test_a_failure_whose_next_try_has_no_room_before_the_end_asks_and_does_not_try_without_pause(
    a_delivery: ADelivery,
) -> None:
    script, away = Script(Phase.BUILD), [True]

    async def turn(work: TurnInput) -> TurnResult:
        if away:
            away.pop()
            raise ApplicationError("overloaded", next_retry_delay=timedelta(minutes=10))
        return await script.plays(work)

    async with a_delivery(script=script, turn=turn, time_s=60.0) as delivery:
        asked = await delivery.pending()
        assert "time limit" in asked.summary
        await asyncio.sleep(0.3)
        assert len(delivery.seen) == 1
        await delivery.update("add_budget", time="1h", of=asked.target)
        assert (await delivery.ended()).status == "completed"


async def test_more_that_comes_before_it_is_needed_or_twice_is_counted_once(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD, turns_each=5, budget_usd=0.2) as delivery:
        asked = await delivery.pending()
        for _ in range(2):
            await delivery.signal("decide", update="add_budget", said={"usd": 0.1, "of": asked.target, "id": "a"})
        assert (await delivery.update("add_budget", usd=0.1, id="a")).startswith("counted before: approved")
        again = await delivery.pending(behind=asked)
        assert again.summary == "$0.30 of $0.30 are spent"
        with pytest.raises(WorkflowUpdateFailedError) as negative:
            await delivery.update("add_budget", usd=-5)
        assert "usd" in str(negative.value.cause)
        with pytest.raises(WorkflowUpdateFailedError) as nothing:
            await delivery.update("add_budget")
        assert "say how much more" in str(nothing.value.cause)
        await delivery.signal("hold")  # somebody wants to look before it goes on
        await delivery.at(lambda progress: True)
        await delivery.update("add_budget", usd=5, of=again.target)
        await delivery.at(lambda progress: progress["waiting"].startswith("held"))
        assert delivery.script.paid == 3, "a hold that comes while it waits for money holds behind it"
        await delivery.signal("resume")
        assert (await delivery.ended()).status == "completed"


WORDS = "$0.05 of $0.10 are spent, and the agent's next request may cost $0.16"


def stopped(limit: str, words: str, spend: Spend) -> ApplicationError:
    reached = LimitReached(limit=limit, reason=words, spend=spend)
    return ApplicationError(words, reached, type="BudgetReached", non_retryable=True)


class Greedy(Script):
    """Its first turn asks for `upper` more than its own reply."""

    def __init__(self, **upper: Any) -> None:
        super().__init__()
        self.usd, self.tokens = upper.get("usd", 0.16), upper.get("tokens", 10)
        self.rooms: list[SpendingLimits | None] = []
        self.turn = self.asks_for_more

    async def asks_for_more(self, work: TurnInput) -> TurnResult:
        self.rooms.append(work.spending_limits)
        assert work.spending_limits is not None
        spend = Spend(usd=0.05, tokens=20)
        if (over := exceeded_limit(work.spending_limits, spend, self.usd, self.tokens)) is not None:
            raise stopped(*over, spend)
        return await self.plays(work)


@pytest.mark.parametrize(
    ("upper", "added", "limit"),
    [({}, {"usd": 1}, "usd"), ({"tokens": 100, "usd": 0.01}, {"tokens": 500}, "tokens"), ({"usd": None}, {}, "price")],
)
async def test_more_of_the_limit_is_asked_for_and_the_same_turn_is_done_with_it(
    a_delivery: ADelivery, upper: dict[str, Any], added: dict[str, Any], limit: str
) -> None:
    script = Greedy(**upper)
    async with a_delivery(Phase.BUILD, script=script, budget_usd=0.1, budget_tokens=100) as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.limit) == ("budget", limit)
        assert script.paid == 0
        update = "add_budget" if added else "approve"
        await delivery.update(update, of=asked.target, **added)
        assert (await delivery.ended()).status == "completed"
    before, after = script.rooms[:2]
    assert before == SpendingLimits(usd=0.1, tokens=100)
    changed = {"usd": 1.1, "tokens": 100} if limit == "usd" else {"usd": 0.1, "tokens": 600}
    assert after == (SpendingLimits(**changed) if added else SpendingLimits(usd=0.1, tokens=100, unpriced=True))


async def test_nothing_is_added_beyond_what_the_host_lets_a_delivery_have_and_the_refusal_names_the_limit(
    a_delivery: ADelivery,
) -> None:
    host = {"most_usd": 100.0, "most_tokens": 1000, "most_time_s": 7200.0}
    async with a_delivery(Phase.BUILD, turns_each=3, budget_usd=0.1, time_s=3600.0, **host) as delivery:
        asked = await delivery.pending()
        for added, words in (
            ({"usd": 1000}, "$100.00, the most on the delivery's host"),
            ({"tokens": 2000}, "the most on the delivery's host"),
            ({"time": "2h"}, "the most on the delivery's host"),
        ):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await delivery.update("add_budget", of=asked.target, **added)
            assert words in str(refused.value.cause)
        await delivery.signal("decide", update="add_budget", said={"usd": 99.95, "of": asked.target, "id": "a"})
        assert (await delivery.handle.query("progress"))["budget_usd"] == 0.1, "nor by a signal"
        await delivery.update("add_budget", of=asked.target, usd=99.9)
        assert (await delivery.ended()).status == "completed"


@pytest.mark.parametrize("more", [{}, {"attempts": 2}, {"specialists": True}])
async def test_a_price_nobody_knows_is_asked_about_once_and_before_the_first_request(
    a_delivery: ADelivery, more: dict[str, Any]
) -> None:
    async with a_delivery(Phase.BUILD, unpriced=("gpt-foo", "nosuch"), **more) as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.limit) == ("budget", "price")
        assert "the price of gpt-foo, nosuch is not known" in asked.summary
        assert delivery.script.seen == []
        await delivery.reject("too vague")
        result = await delivery.ended()
        assert (result.status, result.reason, delivery.script.seen) == ("not_delivered", "budget", [])


async def test_a_price_that_was_approved_is_not_asked_about_again_and_where_nobody_is_asked_it_is_no_limit(
    a_delivery: ADelivery, client: Client
) -> None:
    async with a_delivery(Phase.BUILD, unpriced=("gpt-foo",), turns_each=3, price=None) as delivery:
        await delivery.pending()
        await delivery.approve()
        assert (await delivery.ended()).status == "completed"
        delivery.script.settings["asks"] = False
        alone = await (await Perdure(client).submit(BUILT, id=f"{delivery.id}-alone")).delivery.result()
        assert (alone.status, alone.usage.cost_usd) == ("completed", None)


async def test_who_says_no_ends_it_and_where_nobody_is_asked_it_ends_by_itself(
    a_delivery: ADelivery, client: Client
) -> None:
    script = Greedy()
    async with a_delivery(Phase.BUILD, script=script, budget_usd=0.1) as delivery:
        await delivery.pending()
        await delivery.reject("no more")
        result = await delivery.ended()
        assert (result.status, result.reason, result.message) == (
            "not_delivered",
            "budget",
            f"{WORDS}; rejected: no more",
        )
        script.settings["asks"] = False
        alone = await (await Perdure(client).submit(BUILT, id=f"{delivery.id}-alone")).delivery.result()
        assert (alone.status, alone.reason, alone.message) == ("not_delivered", "budget", WORDS)


async def test_a_block_of_the_days_budget_that_is_used_up_within_a_turn_is_followed_by_the_next(
    client: Client, fresh: str
) -> None:
    """It begins a turn, pays all of its block in it, and asks for more."""
    fleet, rooms = Fleet(), list[float]()

    async def works(work: TurnInput) -> TurnResult:
        assert work.spending_limits is not None
        assert work.spending_limits.day_usd is not None
        rooms.append(work.spending_limits.day_usd)
        if len(rooms) < 3:
            fleet.paid[work.delivery] = work.spending_limits.day_usd
            raise stopped(
                "day", "what was reserved of the day's budget is spent", Spend(usd=work.spending_limits.day_usd)
            )
        return await fleet.works(work)

    fleet.turn, fleet.turns = works, 1
    async with shared(client, fleet, 5.0), at_work(client, fleet):
        result = await (await Perdure(client).submit(BUILT, id=fresh)).delivery.result()
    assert result.status == "completed"
    assert rooms == [0.5, 1.0, 1.5], "a tenth of the day's each time"


BUILD = {"repository": "/r", "request": "Add sub", "phases": ["build"]}


async def deliver(client: Client, script: Script, id: str, **settings: object) -> DeliveryResult:
    script.phases, script.settings = (Phase.BUILD,), settings
    async with playing(client, script):
        submitted = await Perdure(client).submit(BUILD, id=id)
        return await submitted.delivery.result()


def steps(result: DeliveryResult) -> list[tuple[str, str]]:
    return [(step.step, step.status) for step in result.steps]


async def test_a_step_that_does_not_end_is_ended_at_its_turn_limit(client: Client, script: Script, fresh: str) -> None:
    result = await deliver(client, script, fresh, turns_per_step=3)
    assert (result.status, result.reason) == ("not_delivered", "limits")
    assert [(work.turn, work.checkpoint) for work in script.seen] == [(1, "c0"), (2, "c1"), (3, "c2")]
    assert steps(result) == [("prepare", "done"), ("implement", "failed")]
    assert result.steps[-1].turns == 3
    assert result.steps[-1].cost_usd == 0.3


async def test_no_turn_begins_when_the_budget_is_spent(client: Client, script: Script, fresh: str) -> None:
    result = await deliver(client, script, fresh, budget_usd=0.25)
    assert (result.reason, result.message) == ("budget", "$0.30 of $0.25 are spent")
    assert len(script.seen) == 3
    assert steps(result)[-1] == ("implement", "failed")


async def test_money_at_risk_and_money_known_count_where_a_price_is_not_known(
    client: Client, script: Script, fresh: str
) -> None:
    async def unknown(work: TurnInput) -> TurnResult:
        spend = Spend(usd=None, known_usd=0.2, at_risk_usd=0.1)
        return TurnResult(checkpoint="c", summary="goes on", usage=Usage(cost_usd=None), spend=spend)

    script.turn = unknown
    result = await deliver(client, script, fresh, budget_usd=0.3)
    assert (result.reason, len(script.seen)) == ("budget", 1)
    assert result.steps[-1].cost_usd is None, "an unknown price is no zero"


async def test_a_delivery_whose_time_is_over_says_so_and_leaves_no_step_running(
    client: Client, script: Script, fresh: str
) -> None:
    async def slow(work: TurnInput) -> TurnResult:
        await asyncio.sleep(0.4)
        return await script.endless(work)

    script.turn = slow
    result = await deliver(client, script, fresh, time_s=1.0)
    assert result.reason == "limits"
    assert "time limit" in result.message
    assert steps(result)[-1] == ("implement", "failed")


@pytest.mark.parametrize(("ending", "reason"), [(Ending.REFUSED, "refused"), (Ending.LOOPING, "limits")])
async def test_an_agent_that_ends_badly_ends_the_delivery(
    client: Client, script: Script, fresh: str, ending: Ending, reason: str
) -> None:
    async def ends(work: TurnInput) -> TurnResult:
        return TurnResult(checkpoint="c", summary="", outcome=Outcome(ending=ending, summary="why"))

    script.turn = ends
    result = await deliver(client, script, fresh)
    assert result.reason == reason
    assert result.message.endswith(": why")


async def test_a_final_failure_of_an_activity_is_the_deliverys_reason(
    client: Client, script: Script, fresh: str
) -> None:
    async def fails(work: TurnInput) -> TurnResult:
        raise ApplicationError("no key", type="ModelRefusesUs", non_retryable=True)

    script.turn = fails
    result = await deliver(client, script, fresh)
    assert (result.reason, result.message) == ("refused", "no key")
    assert result.next[-1] == f"perdure retry {fresh}"


async def test_a_retry_goes_on_within_the_step_that_was_cut_off(
    client: Client, script: Script, fresh: str, perdure: Perdure
) -> None:
    await deliver(client, script, fresh, turns_per_step=2)
    script.settings = {"turns_per_step": 2}
    async with playing(client, script):
        delivery = await perdure.delivery(fresh).retry(budget_usd=3)
        result = await delivery.result()
    assert result.reason == "limits"
    assert [work.turn for work in script.seen] == [1, 2, 3, 4]
    assert script.seen[2].checkpoint == "c2"
    assert (await delivery.request())["budget_usd"] == 3


async def test_a_tidying_up_that_fails_costs_nobody_the_result(client: Client, script: Script, fresh: str) -> None:
    script.closes = False
    result = await deliver(client, script, fresh, turns_per_step=1)
    assert result.reason == "limits"
    assert result.usage.cost_usd == 0.1


async def test_the_list_shows_phase_status_branch_and_cost_where_the_server_has_the_attributes(
    client: Client, script: Script, fresh: str, perdure: Perdure
) -> None:
    script.spend = Spend(usd=0.1234)
    await deliver(client, script, fresh, turns_per_step=1, attributes=True)
    async with asyncio.timeout(patient(15)):
        while not (listed := await perdure.list(query=f"WorkflowId = '{fresh}' AND PerdureStatus = 'not_delivered'")):
            await asyncio.sleep(0.1)
    assert (listed[0].repository, listed[0].phase, listed[0].cost_usd) == ("/r", "build", 0.1234)


async def test_a_step_of_one_activity_that_fails_is_recorded_as_failed(
    client: Client, script: Script, fresh: str
) -> None:
    result = await deliver(client, script, fresh, fails="SetupFailed")
    assert (result.reason, steps(result)) == ("setup_failed", [("prepare", "failed")])


@pytest.mark.parametrize(("price", "usd"), [(0.0, 0.0), (None, None)])
async def test_a_program_can_tell_an_unknown_price_from_nothing_spent(
    a_delivery: ADelivery, price: float | None, usd: float | None
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",), price=price, unpriced=()) as delivery:
        await delivery.pending()
        progress = await delivery.handle.query("progress")
    assert (progress["spend"]["usd"], progress["usage"]["cost_usd"]) == (usd, usd)
    assert progress["spend"]["at_risk_usd"] == 0.0
