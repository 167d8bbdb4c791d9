"""Words to a delivery: each in one turn, in order, whatever runs when they are said."""

from __future__ import annotations

import asyncio

import pytest

from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import MESSAGE_BYTES_PER_TURN
from perdure.models.phases import Phase
from tests.deliveries import GREEN, RED, ADelivery, Script
from tests.waiting import patient


class Slow(Script):
    """Its turns wait until they are let go."""

    def __init__(self) -> None:
        super().__init__(Phase.BUILD)
        self.begun, self.go = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.turn = self.waits

    async def waits(self, work: TurnInput) -> TurnResult:
        self.begun.release()
        await self.go.acquire()
        return await self.plays(work)

    async def turn_begun(self) -> None:
        await asyncio.wait_for(self.begun.acquire(), patient(30))


def heard(script: Script) -> list[list[str]]:
    return [[said.text for said in work.messages] for work in script.seen]


async def test_words_reach_the_next_turn_once_and_in_order_and_those_for_no_turn_are_reported(
    a_delivery: ADelivery,
) -> None:
    script = Slow()
    async with a_delivery(script=script, turns_each=3) as delivery:
        await script.turn_begun()
        for said in ({"text": "one", "id": "a"}, {"text": "two"}, {"text": "one", "id": "a"}, {"text": "two"}):
            await delivery.handle.signal("say", said)
        await delivery.signal("say", txt="three")
        script.go.release()
        await script.turn_begun()
        script.go.release()
        await script.turn_begun()
        await delivery.signal("say", text="too late " + "x" * 300)
        script.go.release()
        result = await delivery.ended()
    assert heard(script) == [[], ["one", "two", "two"], []]
    assert result.status == "completed"
    (unread,) = result.unread
    assert unread.startswith("too late xxx")
    assert len(unread) == 200


async def test_what_one_conversation_has_read_every_later_one_begins_with(a_delivery: ADelivery) -> None:
    async with a_delivery(turns_each=2, verdicts=[RED, GREEN], blockers=[1], gates=("plan",)) as delivery:
        asked = await delivery.pending()
        await delivery.update("reject", of=asked.target, note="typed")
        asked = await delivery.pending(behind=asked)
        await delivery.signal("say", text="mind the sign")
        await delivery.update("approve", of=asked.target)
        await delivery.ended()
    begun = [
        (str(work.step), [said.text for said in work.delivered_messages]) for work in delivery.seen if work.turn == 1
    ]
    assert begun[:4] == [("classify", []), ("plan", []), ("plan", []), ("implement", ["typed"])]
    assert {step for step, told in begun[4:] if told == ["typed", "mind the sign"]} == {
        "fix_tests", "review", "fix_review",
    }  # fmt: skip
    assert [said.text for work in delivery.seen for said in work.messages] == ["mind the sign"], (
        "said once all the same"
    )
    assert not any(work.delivered_messages for work in delivery.seen if work.turn > 1)


async def test_words_said_while_no_worker_runs_and_before_one_ever_did_reach_the_next_turn(
    a_delivery: ADelivery,
) -> None:
    script = Slow()
    async with a_delivery(script=script, turns_each=2, worker=False) as delivery:
        await delivery.signal("say", text="before all")
        await delivery.signal("hold", note="let me read this")
        async with delivery.working():
            progress = await delivery.at(lambda progress: progress["waiting"])
            assert progress["waiting"] == "held: let me read this"
            assert progress["unread"] == 1
            assert script.seen == []
        for number in (0, 0, 1, 1, 2, 2):
            await delivery.signal("say", text=f"in the night {number}", id=f"n{number}")
        await delivery.signal("resume")
        async with delivery.working():
            await script.turn_begun()
            script.go.release()
            script.go.release()
            assert (await delivery.ended()).unread == ()
    assert heard(script) == [["before all", "in the night 0", "in the night 1", "in the night 2"], []]


async def test_words_said_at_a_gate_go_to_the_turn_behind_it_and_those_of_a_delivery_that_ends_to_its_retry(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(gates=("plan",)) as delivery:
        asked = await delivery.pending()
        await delivery.signal("say", text="with types")
        await delivery.cancel()
        result = await delivery.ended()
        assert (result.status, result.unread) == ("cancelled", ("with types",))
        await delivery.retry()
        assert (await delivery.pending()).target == asked.target
        await delivery.signal("say", text="and docs")
        await delivery.update("approve", of=asked.target)
        assert (await delivery.ended()).unread == ()
    said = {work.step: texts for work, texts in zip(delivery.seen, heard(delivery.script), strict=True) if texts}
    assert said == {"implement": ["with types", "and docs"]}


async def test_a_hundred_words_at_once_are_read_in_order_as_many_as_fit_into_each_turn(a_delivery: ADelivery) -> None:
    script = Slow()
    async with a_delivery(script=script, turns_each=6) as delivery:
        await script.turn_begun()
        words = [f"{number:03} ".ljust(1000, "w") for number in range(100)]
        for word in words:
            await delivery.signal("say", text=word)
        for _ in range(6):
            script.go.release()
        assert (await delivery.ended()).unread == ()
    turns = heard(script)
    assert [word for turn in turns for word in turn] == words
    assert max(sum(map(len, turn)) for turn in turns) <= MESSAGE_BYTES_PER_TURN
    assert len([turn for turn in turns if turn]) == 4


@pytest.mark.parametrize("where", ["prepare", "classify", "implement"])
async def test_a_hold_before_any_step_begins_nothing_and_a_cancel_ends_it_there(
    a_delivery: ADelivery, where: str
) -> None:
    script = Slow() if where != "prepare" else Script()
    phase = Phase.PLAN if where == "classify" else Phase.BUILD
    async with a_delivery(phase, script=script, turns_each=2, worker=False) as delivery:
        await delivery.signal("resume")  # nobody held it: that is no reason to fall over
        if where == "prepare":
            await delivery.signal("hold", nothing="known")
        async with delivery.working():
            if isinstance(script, Slow):
                await script.turn_begun()
                await delivery.signal("hold")
                script.go.release()
            await delivery.at(lambda progress: progress["waiting"] == "held by a person: resume lets it go on")
            seen = len(script.seen)
        async with delivery.working():  # by another worker
            await asyncio.sleep(0.3)
            assert (await delivery.handle.query("progress"))["waiting"]
            assert len(script.seen) == seen
            await delivery.cancel()
            result = await delivery.ended()
    assert result.status == "cancelled"
    assert "running" not in [step.status for step in result.steps]
