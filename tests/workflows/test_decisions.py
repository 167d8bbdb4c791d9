"""Decisions that come twice, late, early, for another plan or behind a rewind: each counts once."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.service import RPCError

import workflows.gates
from perdure.client import DecisionReply, Perdure
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.phases import Phase, Step
from perdure.models.rules.inbox import NotCounted
from tests.deliveries import ADelivery, Script, events, reset, waiting
from tests.waiting import patient, until


async def test_an_approval_that_comes_twice_in_every_way_is_counted_once(
    a_delivery: ADelivery,
) -> None:
    script = Script(Phase.PLAN, gates=("plan",))
    script.turn = slow_after(script, "plan")
    async with a_delivery(script=script) as delivery:
        asked = await delivery.pending()
        said = {"of": asked.target, "by": "ann"}
        again = {**said, "note": " again"}
        once = await asyncio.gather(*(delivery.handle.execute_update("reject", again, id="one") for _ in range(2)))
        assert once == [f"rejected: plan {asked.target}"] * 2
        await delivery.signal("decide", update="approve", said={"of": asked.target})
        other = await delivery.handle.execute_update("reject", {**said, "note": " other"}, id="two")
        assert re.fullmatch(r"counted before: rejected by ann, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", other), other
        second = await delivery.pending(behind=asked)
        assert (await delivery.handle.execute_update("reject", {**said, "note": " late"})).startswith(
            "counted before: rejected"
        )
        assert await delivery.update("approve", of=second.target) == f"approved: plan {second.target}"
        result = await delivery.ended()
    assert [work.materials.get("words") for work in script.seen if work.step == "plan"] == [None, " again"]
    assert result.status == "completed"


def slow_after(script: Script, step: str) -> Any:
    """Turns that leave time for messages to meet in one workflow task."""
    plays = script.turn

    async def turn(work: Any) -> Any:
        await asyncio.sleep(0.1 if work.step == step else 0)
        return await plays(work)

    return turn


async def test_an_unbound_approval_that_meets_a_rejection_does_not_undo_it(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",), worker=False) as delivery:
        async with delivery.working():
            asked = await delivery.pending()
        # No worker: the signal is kept, the update waits, and one workflow task gets both.
        await delivery.signal("decide", update="reject", said={"of": asked.target, "note": " again"})
        approving = asyncio.create_task(delivery.update("approve"))
        await asyncio.sleep(1)
        async with delivery.working():
            assert (await approving).startswith("counted before: rejected")
            second = await delivery.pending(behind=asked)
            await delivery.update("approve", of=second.target)
            await delivery.ended()
    assert [work.step for work in delivery.seen].count("plan") == 2


async def test_a_decision_before_the_gate_and_after_it_is_refused_in_words_and_counts_nowhere(
    a_delivery: ADelivery,
) -> None:
    script, begun, go = Script(Phase.PLAN, gates=("plan",)), asyncio.Event(), asyncio.Event()

    async def turn(work: Any) -> Any:
        if work.step == "plan":
            begun.set()
            await go.wait()
        return await script.plays(work)

    async with a_delivery(script=script, turn=turn) as delivery:
        await asyncio.wait_for(begun.wait(), patient(30))
        for said in ({}, {"of": "0" * 8}):
            with pytest.raises(WorkflowUpdateFailedError) as early:
                await delivery.handle.execute_update("approve", said)
            assert str(early.value.cause) == "NotCounted: nothing waits for a decision: it is at plan"
        await delivery.signal("decide", update="approve", said={"of": "0" * 8})
        go.set()
        asked = await delivery.pending()
        with pytest.raises(WorkflowUpdateFailedError) as wrong:
            await delivery.update("answer", answer="yes")
        assert "answer does not decide this" in str(wrong.value.cause)
        await delivery.update("approve", of=asked.target)
        await delivery.ended()
        with pytest.raises(RPCError):
            await delivery.update("approve", of=asked.target)


async def test_what_is_decided_while_the_worker_is_down_counts_once_and_for_the_plan_it_names(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",), worker=False) as delivery:
        async with delivery.working():
            asked = await delivery.pending()
        update = {"of": asked.target, "note": " again"}
        with pytest.raises(WorkflowUpdateRPCTimeoutOrCancelledError):  # as the command line does, then the signal
            await delivery.handle.start_update(
                "reject",
                update,
                id="once",
                wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                rpc_timeout=timedelta(seconds=1),
            )
        await delivery.signal("decide", update="reject", said=update)
        await delivery.signal("decide", update="approve", said={"of": asked.target})
        async with delivery.working():
            second = await delivery.pending(behind=asked)
            await delivery.signal("decide", update="approve", said={"of": second.target})
            result = await delivery.ended()
    assert [work.materials.get("words") for work in delivery.seen if work.step == "plan"] == [None, " again"]
    assert result.status == "completed"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
async def test_a_rewind_to_before_the_gate_stops_there_again_although_an_approval_is_behind_it(
    a_delivery: ADelivery, client: Client, bound: bool
) -> None:
    """What the server applies again is measured, not assumed: the updates of the old run come to the new one."""
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        first = await delivery.pending()
        await delivery.handle.execute_update("reject", {"note": " again", **({"of": first.target} if bound else {})})
        second = await delivery.pending(behind=first)
        await delivery.handle.execute_update("approve", {"of": second.target} if bound else {})
        await delivery.ended()
        happened = await events(delivery.handle)
        planned = next(number for number, kind, name in happened if name == "plan")
        before = next(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < planned
                      and number > planned - 4)  # fmt: skip
        run = await reset(delivery.handle, before)
        rewound = client.get_workflow_handle(delivery.id, run_id=run)
        anew = await waiting(rewound)
        assert anew.target not in (first.target, second.target)
        await asyncio.sleep(0.5)
        assert (await waiting(rewound)).target == anew.target, "the approval of another plan moved it on"
        again = [name for _, kind, name in await events(rewound) if kind.endswith("update_admitted")]
        assert again == ["reject", "approve"], "the server applies them again: else this test shows nothing"
        assert await rewound.execute_update("approve", {"of": anew.target}) == f"approved: plan {anew.target}"
        assert (await delivery.ended()).status == "completed"


async def test_a_rewind_into_the_gate_takes_the_old_rejection_and_stops_at_the_next_plan(
    a_delivery: ADelivery, client: Client
) -> None:
    """Both `{}` come again in one task, where the first plan waits: the second of them is not for that plan."""
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        first = await delivery.pending()
        await delivery.update("reject", note=" again")
        second = await delivery.pending(behind=first)
        await delivery.update("approve")
        await delivery.ended()
        happened = await events(delivery.handle)
        accepted = next(number for number, kind, _ in happened if kind.endswith("update_accepted"))
        before = max(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < accepted)
        run = await reset(delivery.handle, before)
        rewound = client.get_workflow_handle(delivery.id, run_id=run)
        third = await waiting(rewound, behind=first.target)
        assert third.target != second.target
        await asyncio.sleep(0.5)
        assert (await waiting(rewound)).target == third.target, "the approval of another plan moved it on"
        await rewound.execute_update("approve", {"of": third.target})
        assert (await delivery.ended()).status == "completed"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "unbound"])
async def test_money_that_was_added_survives_a_rewind_once_or_is_asked_for_again(
    a_delivery: ADelivery, client: Client, bound: bool
) -> None:
    """Unbound it is money for this delivery, whatever happens; bound it was for one breach, which has not been yet."""
    async with a_delivery(Phase.BUILD, turns_each=4, budget_usd=0.1) as delivery:
        asked = await delivery.pending()
        await delivery.update("add_budget", usd=0.15, **{"of": asked.target} if bound else {})
        second = await delivery.pending(behind=asked)
        assert second.summary == "$0.30 of $0.25 are spent"
        await delivery.update("add_budget", usd=9, of=second.target)
        await delivery.ended()
        happened = await events(delivery.handle)
        turn = next(number for number, kind, name in happened if name == "implement")
        before = max(number for number, kind, _ in happened if kind == "workflow_task_completed" and number < turn)
        rewound = client.get_workflow_handle(delivery.id, run_id=await reset(delivery.handle, before))
        again = await waiting(rewound)
        assert (again.target, delivery.script.paid) == ("1", 5), (
            "what was paid before the rewind is not forgotten: one reply"
        )
        assert again.summary == ("$0.50 of $0.10 are spent" if bound else "$0.50 of $0.25 are spent")
        await rewound.execute_update("add_budget", {"usd": 9, "of": again.target})
        assert (await delivery.ended()).status == "completed"


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


async def test_a_run_that_is_about_to_be_left_begins_no_turn_and_goes_on_where_the_reset_does_not_come(
    a_delivery: ADelivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows.gates, "RESET_COMES", timedelta(seconds=2))
    async with a_delivery(Phase.BUILD, turns_each=30) as delivery:
        await delivery.at(lambda progress: len(delivery.seen) > 1)
        run = (await delivery.handle.describe()).run_id
        await delivery.signal("rewind", from_run=run, to="implement:1", text="not for this run")
        await delivery.at(lambda progress: progress["waiting"] == "is about to be rewound to implement:1")
        await delivery.signal("hold")

        async def noted() -> bool:
            told = await delivery.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
            return "the rewind to implement" in told.current_details and "did not happen" in told.current_details

        await until(noted)
        await delivery.signal("resume")
        assert (await delivery.ended()).status == "completed"
        assert all(not work.messages for work in delivery.seen), "its words are for the run that a reset makes"


async def test_the_word_of_another_runs_rewind_replaces_what_was_said_and_held_before(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.BUILD, turns_each=5) as delivery:
        await delivery.signal("hold")
        await delivery.at(lambda progress: progress["waiting"].startswith("held"))
        await delivery.signal("say", text="for turn six: delete it")
        await delivery.signal("rewind", from_run="another run", to="implement:1", text="use tabs", id="r")
        assert (await delivery.ended()).status == "completed"
        assert [said.text for work in delivery.seen for said in work.messages] == ["use tabs"]


async def test_a_rewind_that_is_not_well_formed_is_noted_and_changes_nothing(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.BUILD) as delivery:
        await delivery.signal("rewind", form_run="x")
        assert (await delivery.ended()).status == "completed"


@pytest.mark.parametrize("update", ["approve", "reject", "answer", "edit_plan", "add_budget"])
async def test_null_decides_nothing(a_delivery: ADelivery, update: str) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        await delivery.pending()
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await delivery.handle.execute_update(update, None)
        assert str(refused.value.cause).startswith(f"NotCounted: {update}: expected one JSON object, got null")
        await delivery.update("approve")
        await delivery.ended()
