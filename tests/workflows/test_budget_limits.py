"""A limit that is reached holds the delivery within one reply, asks, and goes on at the same turn."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.phases import Phase
from tests.deliveries import GREEN, RED, ADelivery, Script, events, reset
from tests.waiting import until

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
