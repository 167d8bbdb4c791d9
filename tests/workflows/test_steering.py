"""Decisions from a program: bound to what they decide, counted once, and never reported as something else."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import pytest
from temporalio.client import Client

from perdure.client import DecisionReply, Perdure
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.phases import Phase, Step
from perdure.models.rules.inbox import NotCounted
from tests.deliveries import ADelivery, Script


async def test_of_two_people_who_decide_otherwise_at_once_the_second_is_told_so(
    a_delivery: ADelivery,
) -> None:
    script, done = Script(Phase.PLAN, Phase.BUILD, gates=("plan",)), asyncio.Event()

    async def builds(work: TurnInput) -> TurnResult:
        """The delivery must not end before everybody has decided."""
        if work.step is Step.IMPLEMENT:
            await done.wait()
        return await script.plays(work)

    async with a_delivery(script=script, turn=builds) as delivery:
        asked = await delivery.pending()
        assert (await delivery.waits_for()) == asked
        decided = await asyncio.gather(
            delivery.approve(by="ann"), delivery.reject("no", asked.target, by="bob"), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in decided) == ["DecisionReply", "NotCounted"]
        lost = next(one for one in decided if isinstance(one, NotCounted))
        won = "approved by ann" if isinstance(decided[0], DecisionReply) else "rejected by bob"
        assert re.search(f"decided before, otherwise: {won}, [0-9-]{{10}} [0-9:]{{8}} UTC$", lost.what), lost.what
        if isinstance(decided[0], DecisionReply):
            again = await delivery.approve(asked.target, by="bob")
            assert again.message.startswith("counted before: approved by ann, "), "the same again counts once"
        done.set()


async def test_a_decision_of_something_else_and_one_without_form_change_nothing(
    a_delivery: ADelivery, client: Client
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        asked = await delivery.pending()
        with pytest.raises(NotCounted, match=f"waits for plan {asked.target}, not for beef"):
            await delivery.approve("beef")
        with pytest.raises(InvalidRequest, match="note: "):
            await delivery.reject("")
        with pytest.raises(NotCounted, match="does not decide this"):
            await delivery.answer("yes")
        with pytest.raises(InvalidRequest, match="text: is 8193 bytes"):
            await delivery.say("x" * 8193)
        with pytest.raises(NotCounted, match="how much more"):
            await delivery.add_budget()
        with pytest.raises(InvalidRequest, match="usd: "):
            await delivery.add_budget(-1)
        with pytest.raises(BadInput, match="65537 bytes"):
            await delivery.edit_plan("x" * 65537)
        assert (await delivery.waits_for()) == asked
        await delivery.approve()
        assert (await delivery.ended()).status == "completed"
        with pytest.raises(BadInput, match=r"has ended \(completed\)"):
            await delivery.approve(asked.target)
        with pytest.raises(BadInput, match="no delivery nobody-knows-it"):
            await Perdure(client).delivery("nobody-knows-it").say("hello")


async def test_more_budget_is_added_once_for_each_id_whether_a_worker_runs_or_not(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",), worker=False) as delivery:
        assert await delivery.add_budget(1, id="once") == DecisionReply(received=False)
        async with delivery.working():
            await delivery.pending()
            assert (await delivery.add_budget(1, id="once")).message.startswith(("added $1", "counted before"))
            assert (await delivery.add_budget(2, id="twice")).message == "added $2"
            assert (await delivery.progress()).budget_usd == 5 + 1 + 2
            await delivery.approve()


async def test_a_delivery_comes_to_rest_between_two_turns_and_keeps_its_checkpoint(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.PLAN, turns_each=1000) as delivery:
        assert await delivery.hold_until_idle(timedelta(seconds=20))
        taken = len(delivery.seen)
        await delivery.cancel()
        assert (await delivery.ended()).status == "cancelled"
        assert len(delivery.seen) == taken
