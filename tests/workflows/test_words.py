"""Words to a delivery: each in one turn, in order, whatever runs when they are said."""

from __future__ import annotations

import asyncio

import pytest
from people_fixtures import BUILT, WHOLE, Company, at, waiting
from temporalio.client import Client
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import MESSAGE_BYTES_PER_TURN
from perdure.models.phases import Phase
from tests.waiting import patient


class Slow(Company):
    """Its turns wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asks(Phase.BUILD)
        self.begun, self.go = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self.turn = self.waits

    async def waits(self, work: TurnInput) -> TurnResult:
        self.begun.release()
        await self.go.acquire()
        return await self.plays(work)

    async def turn_begun(self) -> None:
        await asyncio.wait_for(self.begun.acquire(), patient(30))


def heard(company: Company) -> list[list[str]]:
    return [[said.text for said in work.messages] for work in company.seen]


async def ended(client: Client, id: str) -> DeliveryResult:
    async with asyncio.timeout(patient(40)):
        return await Perdure(client).delivery(id).result()


async def test_words_reach_the_next_turn_once_and_in_order_and_those_for_no_turn_are_reported(
    client: Client, fresh: str
) -> None:
    company = Slow()
    company.turns_each = 3
    async with playing(client, company):
        await Perdure(client).submit(BUILT, id=fresh)
        handle = client.get_workflow_handle(fresh)
        await company.turn_begun()
        for said in ({"text": "one", "id": "a"}, {"text": "two"}, {"text": "one", "id": "a"}, {"text": "two"}):
            await handle.signal("say", said)
        await handle.signal("say", {"txt": "three"})
        company.go.release()
        await company.turn_begun()
        company.go.release()
        await company.turn_begun()
        await handle.signal("say", {"text": "too late " + "x" * 300})
        company.go.release()
        result = await ended(client, fresh)
    assert heard(company) == [[], ["one", "two", "two"], []]
    assert result.status == "completed"
    (unread,) = result.unread
    assert unread.startswith("too late xxx")
    assert len(unread) == 200


async def test_what_one_conversation_has_read_every_later_one_begins_with(client: Client, fresh: str) -> None:
    company = Company()
    company.asks(gates=("plan",))
    company.turns_each = 2
    async with playing(client, company):
        await Perdure(client).submit(WHOLE, id=fresh)
        handle = client.get_workflow_handle(fresh)
        asked = await waiting(handle)
        await handle.execute_update("reject", {"of": asked.target, "note": "typed"})
        asked = await waiting(handle, behind=asked.target)
        await handle.signal("say", {"text": "mind the sign"})
        await handle.execute_update("approve", {"of": asked.target})
        await ended(client, fresh)
    begun = [
        (str(work.step), [said.text for said in work.delivered_messages]) for work in company.seen if work.turn == 1
    ]
    assert begun[:4] == [("classify", []), ("plan", []), ("plan", []), ("implement", ["typed"])]
    assert {step for step, told in begun[4:] if told == ["typed", "mind the sign"]} == {
        "fix_tests", "review", "fix_review",
    }  # fmt: skip
    assert [said.text for work in company.seen for said in work.messages] == ["mind the sign"], "said once all the same"
    assert not any(work.delivered_messages for work in company.seen if work.turn > 1)


async def test_words_said_while_no_worker_runs_and_before_one_ever_did_reach_the_next_turn(
    client: Client, fresh: str
) -> None:
    company = Slow()
    company.turns_each = 2
    await Perdure(client).submit(BUILT, id=fresh)
    handle = client.get_workflow_handle(fresh)
    await handle.signal("say", {"text": "before all"})
    await handle.signal("hold", {"note": "let me read this"})
    async with playing(client, company):
        progress = await at(handle, lambda progress: progress["waiting"])
        assert progress["waiting"] == "held: let me read this"
        assert progress["unread"] == 1
        assert company.seen == []
    for number in range(3):
        await handle.signal("say", {"text": f"in the night {number}", "id": f"n{number}"})
        await handle.signal("say", {"text": f"in the night {number}", "id": f"n{number}"})
    await handle.signal("resume")
    async with playing(client, company):
        await company.turn_begun()
        company.go.release()
        company.go.release()
        assert (await ended(client, fresh)).unread == ()
    assert heard(company) == [["before all", "in the night 0", "in the night 1", "in the night 2"], []]


async def test_words_said_at_a_gate_go_to_the_turn_behind_it_and_those_of_a_delivery_that_ends_to_its_retry(
    client: Client, fresh: str
) -> None:
    company = Company()
    company.asks(gates=("plan",))
    company.verdicts, company.blockers = [], []
    async with playing(client, company):
        submitted = await Perdure(client).submit(WHOLE, id=fresh)
        handle = client.get_workflow_handle(fresh)
        asked = await waiting(handle)
        await handle.signal("say", {"text": "with types"})
        await submitted.delivery.cancel()
        result = await ended(client, fresh)
        assert (result.status, result.unread) == ("cancelled", ("with types",))
        await submitted.delivery.retry()
        handle = client.get_workflow_handle(fresh)
        assert (await waiting(handle)).target == asked.target
        await handle.signal("say", {"text": "and docs"})
        await handle.execute_update("approve", {"of": asked.target})
        assert (await ended(client, fresh)).unread == ()
    said = {work.step: texts for work, texts in zip(company.seen, heard(company), strict=True) if texts}
    assert said == {"implement": ["with types", "and docs"]}


async def test_a_hundred_words_at_once_are_read_in_order_as_many_as_fit_into_each_turn(
    client: Client, fresh: str
) -> None:
    company = Slow()
    company.turns_each = 6
    async with playing(client, company):
        await Perdure(client).submit(BUILT, id=fresh)
        handle = client.get_workflow_handle(fresh)
        await company.turn_begun()
        words = [f"{number:03} ".ljust(1000, "w") for number in range(100)]
        for word in words:
            await handle.signal("say", {"text": word})
        for _ in range(6):
            company.go.release()
        assert (await ended(client, fresh)).unread == ()
    turns = heard(company)
    assert [word for turn in turns for word in turn] == words
    assert max(sum(map(len, turn)) for turn in turns) <= MESSAGE_BYTES_PER_TURN
    assert len([turn for turn in turns if turn]) == 4


@pytest.mark.parametrize("where", ["prepare", "classify", "implement"])
async def test_a_hold_before_any_step_begins_nothing_and_a_cancel_ends_it_there(
    client: Client, fresh: str, where: str
) -> None:
    company = Slow() if where != "prepare" else Company()
    company.asks(*((Phase.PLAN,) if where == "classify" else (Phase.BUILD,)))
    company.turns_each = 2
    request = {**BUILT, "phases": ["plan" if where == "classify" else "build"]}
    submitted = await Perdure(client).submit(request, id=fresh)
    handle = client.get_workflow_handle(fresh)
    await handle.signal("resume")  # nobody held it: that is no reason to fall over
    if where == "prepare":
        await handle.signal("hold", {"nothing": "known"})
    async with playing(client, company):
        if isinstance(company, Slow):
            await company.turn_begun()
            await handle.signal("hold", {})
            company.go.release()
        await at(handle, lambda progress: progress["waiting"] == "held by a person: resume lets it go on")
        seen = len(company.seen)
    async with playing(client, company):  # another worker
        await asyncio.sleep(0.3)
        assert (await handle.query("progress"))["waiting"]
        assert len(company.seen) == seen
        await submitted.delivery.cancel()
        result = await ended(client, fresh)
    assert result.status == "cancelled"
    assert "running" not in [step.status for step in result.steps]
