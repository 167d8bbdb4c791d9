"""A delivery that waits for people: bound to what they decide, counted once, at no cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.delivery.decisions import CheckPlanResult, Question
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from tests.deliveries import PLANNED, ADelivery, Script, waiting
from tests.waiting import patient
from workflows import WORKFLOWS


async def shown(handle: WorkflowHandle[Any, Any]) -> str:
    """Its details, as the Web UI asks for them."""
    metadata = await handle.query("__temporal_workflow_metadata")
    words = metadata["currentDetails"] if isinstance(metadata, dict) else metadata.current_details
    return str(words).replace("\\", "")


async def test_a_rejected_plan_is_made_again_with_the_words_and_the_approval_names_the_plan(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        first = await delivery.pending()
        assert (first.gate, first.summary) == ("plan", "approve the plan: Add sub")
        with pytest.raises(WorkflowUpdateFailedError) as refusal:
            await delivery.update("approve", of="beef")
        assert f"it waits for plan {first.target}, not for beef" in str(refusal.value.cause)
        assert await delivery.update("reject", note=" with types") == f"rejected: plan {first.target}"
        second = await delivery.pending()
        assert second.target != first.target
        assert second.summary == "approve the plan: Add sub with types"
        assert (await delivery.update("reject", of=first.target, note="again")).startswith("counted before: rejected")
        assert await delivery.update("approve") == f"approved: plan {second.target}"
        result = await delivery.ended()
    assert result.status == "completed", result.message
    assert [(step.step, step.attempt) for step in result.steps] == [
        ("prepare", 1), ("classify", 1), ("plan", 1), ("plan", 2),
    ]  # fmt: skip


async def test_an_edited_plan_is_put_to_the_person_again_also_when_the_edit_changes_nothing_or_goes_back(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        asked, mine = await delivery.pending(), "e" * 64
        original = asked.target + "0" * 56
        seen = [asked.target]
        for plan in (original, mine, mine, original, mine):
            await delivery.update("edit_plan", of=asked.target, plan=plan, title="Mine")
            asked = await delivery.pending(behind=asked)
            assert asked.target.startswith(plan[:8])
            assert asked.summary == "approve the plan: Mine"
            seen.append(asked.target)
        assert len(set(seen)) == len(seen), "an old decision could stand for a new plan"
        await delivery.update("approve", of=asked.target)
        result = await delivery.ended()
    assert result.plan == f"artifact:sha256:{mine}"
    assert [work.step for work in delivery.seen] == ["classify", "plan"], "no model was asked for another one"


async def test_a_pull_request_that_is_rejected_is_mended_with_the_words_checked_and_put_again(
    a_delivery: ADelivery,
) -> None:
    async with a_delivery(gates=("pull_request",)) as delivery:
        first = await delivery.pending()
        assert (first.gate, first.summary) == ("pull_request", "publish h1 as a pull request")
        assert delivery.script.shipped == []
        await delivery.update("reject", of=first.target, note="rename it")
        second = await delivery.pending(behind=first)
        assert delivery.script.shipped == []
        await delivery.update("approve", of=second.target)
        result = await delivery.ended()
    steps = [step.step for step in result.steps]
    mended = ["fix_review", "commit", "run_tests", "review", "open_pull_request"]
    assert (result.status, steps[-5:]) == ("delivered", mended)
    (told,) = [work.materials for work in delivery.seen if work.step == "fix_review"]
    assert told["words"] == "rename it"


async def test_an_edited_plan_that_nobody_could_work_by_leaves_the_old_one_and_asks_again(
    a_delivery: ADelivery,
) -> None:
    plan_checks = {"e" * 64: CheckPlanResult(problem="solution: is empty")}
    async with a_delivery(Phase.PLAN, gates=("plan",), checks_plans=True, plan_checks=plan_checks) as delivery:
        first = await delivery.pending()
        await delivery.update("edit_plan", of=first.target, plan="e" * 64)
        second = await delivery.pending(behind=first)
        assert second.target.startswith(first.target)
        assert second.summary == "approve the plan: Add sub"
        assert "the edited plan eeeeeeee was not taken: solution: is empty" in await shown(delivery.handle)
        await delivery.update("edit_plan", of=second.target, plan="d" * 64)
        third = await delivery.pending(behind=second)
        await delivery.update("approve", of=third.target)
        result = await delivery.ended()
    assert result.plan == f"artifact:sha256:{'d' * 64}"


async def test_a_branch_that_is_pushed_without_a_pull_request_waits_at_the_same_gate(
    a_delivery: ADelivery,
) -> None:
    request = {"branch": "mine", "push": True}
    async with a_delivery(Phase.REVIEW, request=request, blockers=[1], gates=("pull_request",), head="h0") as delivery:
        asked = await delivery.pending()
        assert (asked.gate, asked.summary) == ("pull_request", "publish h1 as the newest commit of perdure/d")
        assert delivery.script.pushed == []
        await delivery.approve()
        result = await delivery.ended()
    assert (result.status, delivery.script.pushed) == ("completed", ["h1"])


async def test_what_people_send_is_in_the_web_ui_at_once_whatever_it_is_doing(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        asked = await delivery.pending()
        await delivery.signal("hold", note="the office moves")
        await delivery.signal("say", text="mind the sign")
        seen = await shown(delivery.handle)
        assert "held: the office moves" in seen
        assert "words that no turn has read yet: 1" in seen
        await delivery.signal("resume")
        assert "the office moves" not in await shown(delivery.handle)
        await delivery.update("approve", of=asked.target)
        await delivery.ended()


async def test_a_delivery_that_waits_needs_no_slot_and_no_memory_and_still_answers(client: Client, fresh: str) -> None:
    script = Script(Phase.PLAN, gates=("plan",))
    small = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=script.activities(),
        max_cached_workflows=1,
        max_concurrent_workflow_tasks=2,
        max_concurrent_activities=1,
    )
    ids = [f"{fresh}-{number}" for number in range(4)]
    async with asyncio.timeout(patient(60)), small:
        for id in ids:
            await Perdure(client).submit(PLANNED, id=id)
        handles = [client.get_workflow_handle(id) for id in ids]
        asked = [await waiting(handle) for handle in handles]
        for handle in handles:
            described = (await handle.describe()).raw_description
            assert list(described.pending_activities) == []
            assert not described.HasField("pending_workflow_task")
        for handle, each in zip(handles, asked, strict=True):  # all but one were put out of memory
            assert (await waiting(handle)).target == each.target
            assert await handle.execute_update("approve", {"of": each.target}) == f"approved: plan {each.target}"
        assert {(await Perdure(client).delivery(id).result()).status for id in ids} == {"completed"}


async def test_a_question_waits_and_its_answer_reaches_the_next_turn_also_that_of_a_retry(
    a_delivery: ADelivery,
) -> None:
    script = Script(Phase.BUILD, turns_each=3)

    async def turn(work: TurnInput) -> TurnResult:
        result = await script.plays(work)
        asks = Question(text=f"Which one, {len(script.seen)}?", kind="choice", choices=("A", "B"))
        return result.model_copy(update={"question": asks if work.turn < 3 else None})

    async with a_delivery(script=script, turn=turn) as delivery:
        first = await delivery.pending()
        assert (first.gate, first.summary, first.options) == ("question", "question: Which one, 1?", ("answer",))
        with pytest.raises(WorkflowUpdateFailedError) as wrong:
            await delivery.update("answer", of=first.target, answer="C")
        assert "'C' is none of A / B" in str(wrong.value.cause)
        await delivery.update("answer", of=first.target, answer="a")
        second = await delivery.pending(behind=first)
        await delivery.cancel()
        assert (await delivery.ended()).status == "cancelled"
        await delivery.retry()
        again = await delivery.pending()
        assert (again.target, again.question) == (second.target, second.question)
        assert len(delivery.seen) == 2, "a turn without the answer it asked for"
        await delivery.update("answer", of=again.target, answer="B")
        assert (await delivery.ended()).status == "completed"
    answers = [[(said.question, said.text) for said in work.messages] for work in delivery.seen]
    assert answers == [[], [("Which one, 1?", "a")], [("Which one, 2?", "B")]]


async def test_a_hold_at_a_gate_outlasts_the_approval(a_delivery: ADelivery) -> None:
    async with a_delivery(Phase.PLAN, Phase.BUILD, gates=("plan",)) as delivery:
        asked = await delivery.pending()
        await delivery.signal("hold", note="tomorrow")
        await delivery.update("approve", of=asked.target)
        await delivery.at(lambda progress: progress["waiting"] == "held: tomorrow")
        assert [work.step for work in delivery.seen] == ["classify", "plan"]
        await delivery.signal("resume")
        assert (await delivery.ended()).status == "completed"
