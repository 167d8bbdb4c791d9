"""A delivery at its gates: bound to what people decide, their words each in one turn, at no cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from backlog_fixtures import Branch, night
from backlog_fixtures import backlog as begun
from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateHandle,
)
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.client.server.calls import UPDATE_TRIES
from perdure.models.delivery.decisions import CheckPlanResult, Question
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.limits import MESSAGE_BYTES_PER_TURN, TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import GREEN, PLANNED, RED, ADelivery, Script, playing, waiting
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


REFUSED = "Unable to perform workflow execution update due to unexpected workflow task failure."


class Refusing(Interceptor):
    """A part of the client, in the place of a server that is caught in that moment so many times."""

    def __init__(self, times: int, status: RPCStatusCode = RPCStatusCode.FAILED_PRECONDITION) -> None:
        self.times, self.status, self.ids = times, status, list[str | None]()

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        refusing = self

        class Outbound(OutboundInterceptor):
            async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
                refusing.ids.append(input.update_id)
                if len(refusing.ids) <= refusing.times:
                    raise RPCError(REFUSED, refusing.status, b"")
                return await super().start_workflow_update(input)

        return Outbound(next)

    async def client(self, server: str) -> Perdure:
        return Perdure(await Client.connect(server, plugins=[perdure_plugin(interceptors=[self])]))


async def test_a_change_to_a_backlog_outlasts_the_moment_and_counts_once(
    client: Client, server: str, fresh: str
) -> None:
    branch, refusing = Branch(api="a", page="p"), Refusing(2)
    branch.holding = {"api": asyncio.Event()}
    async with playing(client, branch):
        await Perdure(client).submit_backlog(night({"id": "api"}), fresh)
        backlog = (await refusing.client(server)).backlog(fresh)
        assert "added: page" in await backlog.add({"id": "page", "request": "Do page"})
        assert len(refusing.ids) == 3
        assert len(set(refusing.ids)) == 1, "the same one each time"
        assert [view.id for view in (await backlog.progress()).items] == ["api", "page"]
        branch.holding["api"].set()


async def test_a_decision_outlasts_it_too(a_delivery: ADelivery, server: str) -> None:
    refusing = Refusing(1)
    async with a_delivery(Phase.PLAN, gates=("plan",)) as delivery:
        asked = await delivery.pending()
        answered = await (await refusing.client(server)).delivery(delivery.id).approve(asked.target)
        assert (answered.message, answered.received) == (f"approved: plan {asked.target}", True)
        assert len(refusing.ids) == 2
        assert len(set(refusing.ids)) == 1


@pytest.mark.parametrize(
    ("refusing", "sent"),
    [
        (Refusing(99), UPDATE_TRIES),
        (Refusing(99, RPCStatusCode.PERMISSION_DENIED), 1),
    ],
    ids=["for_ever", "for_another_reason"],
)
async def test_an_update_that_is_refused_for_good_is_not_sent_for_ever(
    client: Client, server: str, fresh: str, refusing: Refusing, sent: int
) -> None:
    await begun(client, fresh, night({"id": "api"}))
    with pytest.raises(RPCError, match="Unable to perform"):
        await (await refusing.client(server)).backlog(fresh).prioritise("api", 5)
    assert len(refusing.ids) == sent


@pytest.mark.timeout(60)
async def test_every_gate_says_by_which_updates_it_can_be_decided(a_delivery: ADelivery, client: Client) -> None:
    """In the query, in the memo and in the events: the names of the updates, also where they are the usual two."""
    async with a_delivery(gates=("plan", "pull_request")) as delivery:
        expected = [["approve", "reject", "edit_plan"], ["approve", "reject"]]
        pending = None
        for options in expected:
            pending = await delivery.pending(behind=pending)
            assert (await delivery.handle.query("progress"))["asked"]["options"] == options
            assert (await (await delivery.handle.describe()).memo())["asked"]["options"] == options
            await delivery.update("approve")
        await delivery.ended()
        told = [event.data async for event in Perdure(client).events(delivery.id) if event.type == "gate"]
        assert [data["options"] for data in told if data["gate"]] == expected
