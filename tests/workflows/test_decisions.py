"""Decisions that come twice, late, early, for another plan, behind a rewind, or while no worker runs."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from people_fixtures import PLANNED, Company, events, reset, waiting
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.service import RPCError
from workflow_fixtures import playing

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult
from perdure.models.phases import Phase
from tests.waiting import patient


@pytest.fixture
def company() -> Company:
    company = Company()
    company.asks(Phase.PLAN, gates=("plan",))
    return company


async def submitted(client: Client, id: str) -> WorkflowHandle[Any, Any]:
    await Perdure(client).submit(PLANNED, id=id)
    return client.get_workflow_handle(id)


async def ended(client: Client, id: str) -> DeliveryResult:
    async with asyncio.timeout(patient(40)):
        return await Perdure(client).delivery(id).result()


async def test_an_approval_that_comes_twice_in_every_way_is_counted_once(
    client: Client, company: Company, fresh: str
) -> None:
    company.turn = slow_after(company, "plan")
    async with playing(client, company):
        handle = await submitted(client, fresh)
        asked = await waiting(handle)
        said = {"of": asked.target, "by": "ann"}
        again = {**said, "note": " again"}
        once = await asyncio.gather(*(handle.execute_update("reject", again, id="one") for _ in range(2)))
        assert once == [f"rejected: plan {asked.target}"] * 2
        await handle.signal("decide", {"update": "approve", "said": {"of": asked.target}})
        other = await handle.execute_update("reject", {**said, "note": " other"}, id="two")
        assert re.fullmatch(r"counted before: rejected by ann, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", other), other
        second = await waiting(handle, behind=asked.target)
        assert (await handle.execute_update("reject", {**said, "note": " late"})).startswith("counted before: rejected")
        assert await handle.execute_update("approve", {"of": second.target}) == f"approved: plan {second.target}"
        result = await ended(client, fresh)
    assert [work.materials.get("words") for work in company.seen if work.step == "plan"] == [None, " again"]
    assert result.status == "completed"


def slow_after(company: Company, step: str) -> Any:
    """Turns that leave time for messages to meet in one workflow task."""
    plays = company.turn

    async def turn(work: Any) -> Any:
        await asyncio.sleep(0.1 if work.step == step else 0)
        return await plays(work)

    return turn


async def test_an_unbound_approval_that_meets_a_rejection_does_not_undo_it(
    client: Client, company: Company, fresh: str
) -> None:
    async with playing(client, company):
        handle = await submitted(client, fresh)
        asked = await waiting(handle)
    # No worker: the signal is kept, the update waits, and one workflow task gets both.
    await handle.signal("decide", {"update": "reject", "said": {"of": asked.target, "note": " again"}})
    approving = asyncio.create_task(handle.execute_update("approve", {}))
    await asyncio.sleep(1)
    async with playing(client, company):
        assert (await approving).startswith("counted before: rejected")
        second = await waiting(handle, behind=asked.target)
        await handle.execute_update("approve", {"of": second.target})
        await ended(client, fresh)
    assert [work.step for work in company.seen].count("plan") == 2


async def test_a_decision_before_the_gate_and_after_it_is_refused_in_words_and_counts_nowhere(
    client: Client, company: Company, fresh: str
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()
    plays = company.turn

    async def turn(work: Any) -> Any:
        if work.step == "plan":
            begun.set()
            await go.wait()
        return await plays(work)

    company.turn = turn
    async with playing(client, company):
        handle = await submitted(client, fresh)
        await asyncio.wait_for(begun.wait(), patient(30))
        for said in ({}, {"of": "0" * 8}):
            with pytest.raises(WorkflowUpdateFailedError) as early:
                await handle.execute_update("approve", said)
            assert str(early.value.cause) == "NotCounted: nothing waits for a decision: it is at plan"
        await handle.signal("decide", {"update": "approve", "said": {"of": "0" * 8}})
        go.set()
        asked = await waiting(handle)
        with pytest.raises(WorkflowUpdateFailedError) as wrong:
            await handle.execute_update("answer", {"answer": "yes"})
        assert "answer does not decide this" in str(wrong.value.cause)
        await handle.execute_update("approve", {"of": asked.target})
        await ended(client, fresh)
        with pytest.raises(RPCError):
            await handle.execute_update("approve", {"of": asked.target})


async def test_what_is_decided_while_the_worker_is_down_counts_once_and_for_the_plan_it_names(
    client: Client, company: Company, fresh: str
) -> None:
    async with playing(client, company):
        handle = await submitted(client, fresh)
        asked = await waiting(handle)
    update = {"of": asked.target, "note": " again"}
    with pytest.raises(WorkflowUpdateRPCTimeoutOrCancelledError):  # as the command line does, then the signal
        await handle.start_update(
            "reject",
            update,
            id="once",
            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
            rpc_timeout=timedelta(seconds=1),
        )
    await handle.signal("decide", {"update": "reject", "said": update})
    await handle.signal("decide", {"update": "approve", "said": {"of": asked.target}})
    async with playing(client, company):
        second = await waiting(handle, behind=asked.target)
        await handle.signal("decide", {"update": "approve", "said": {"of": second.target}})
        result = await ended(client, fresh)
    assert [work.materials.get("words") for work in company.seen if work.step == "plan"] == [None, " again"]
    assert result.status == "completed"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
async def test_a_rewind_to_before_the_gate_stops_there_again_although_an_approval_is_behind_it(
    client: Client, company: Company, fresh: str, bound: bool
) -> None:
    """What the server applies again is measured, not assumed: the updates of the old run come to the new one."""
    async with playing(client, company):
        handle = await submitted(client, fresh)
        first = await waiting(handle)
        await handle.execute_update("reject", {"note": " again", **({"of": first.target} if bound else {})})
        second = await waiting(handle, behind=first.target)
        await handle.execute_update("approve", {"of": second.target} if bound else {})
        await ended(client, fresh)
        happened = await events(handle)
        planned = next(number for number, kind, name in happened if name == "plan")
        before = next(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < planned
                      and number > planned - 4)  # fmt: skip
        run = await reset(handle, before)
        rewound = client.get_workflow_handle(fresh, run_id=run)
        anew = await waiting(rewound)
        assert anew.target not in (first.target, second.target)
        await asyncio.sleep(0.5)
        assert (await waiting(rewound)).target == anew.target, "the approval of another plan moved it on"
        again = [name for _, kind, name in await events(rewound) if kind.endswith("update_admitted")]
        assert again == ["reject", "approve"], "the server applies them again: else this test shows nothing"
        assert await rewound.execute_update("approve", {"of": anew.target}) == f"approved: plan {anew.target}"
        assert (await ended(client, fresh)).status == "completed"


async def test_a_rewind_into_the_gate_takes_the_old_rejection_and_stops_at_the_next_plan(
    client: Client, company: Company, fresh: str
) -> None:
    """Both `{}` come again in one task, where the first plan waits: the second of them is not for that plan."""
    async with playing(client, company):
        handle = await submitted(client, fresh)
        first = await waiting(handle)
        await handle.execute_update("reject", {"note": " again"})
        second = await waiting(handle, behind=first.target)
        await handle.execute_update("approve", {})
        await ended(client, fresh)
        happened = await events(handle)
        accepted = next(number for number, kind, _ in happened if kind.endswith("update_accepted"))
        before = max(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < accepted)
        run = await reset(handle, before)
        rewound = client.get_workflow_handle(fresh, run_id=run)
        third = await waiting(rewound, behind=first.target)
        assert third.target != second.target
        await asyncio.sleep(0.5)
        assert (await waiting(rewound)).target == third.target, "the approval of another plan moved it on"
        await rewound.execute_update("approve", {"of": third.target})
        assert (await ended(client, fresh)).status == "completed"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
async def test_money_that_was_added_survives_a_rewind_once_or_is_asked_for_again(
    client: Client, company: Company, fresh: str, bound: bool
) -> None:
    """Unbound it is money for this delivery, whatever happens; bound it was for one breach, which has not been yet."""
    company.asks(Phase.BUILD, budget_usd=0.1)
    company.turns_each = 4
    async with playing(client, company):
        await Perdure(client).submit({**PLANNED, "phases": ["build"]}, id=fresh)
        handle = client.get_workflow_handle(fresh)
        asked = await waiting(handle)
        await handle.execute_update("add_budget", {"usd": 0.15, **({"of": asked.target} if bound else {})})
        second = await waiting(handle, behind=asked.target)
        assert second.summary == "$0.30 of $0.25 are spent"
        await handle.execute_update("add_budget", {"usd": 9, "of": second.target})
        await ended(client, fresh)
        happened = await events(handle)
        turn = next(number for number, kind, name in happened if name == "implement")
        before = max(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < turn)
        rewound = client.get_workflow_handle(fresh, run_id=await reset(handle, before))
        again = await waiting(rewound)
        assert (again.target, company.paid) == ("1", 5), "what was paid before the rewind is not forgotten: one reply"
        assert again.summary == ("$0.50 of $0.10 are spent" if bound else "$0.50 of $0.25 are spent")
        await rewound.execute_update("add_budget", {"usd": 9, "of": again.target})
        assert (await ended(client, fresh)).status == "completed"
