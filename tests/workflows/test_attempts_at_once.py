"""Deliveries inside a delivery: attempts at its plan, and the plan's tasks; order, failure, cancel, who may begin."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from activities.workflow_lookup import look_for, resume_point
from perdure.client import Perdure
from perdure.models.backlog.landing import LandInput, LandResult, RebaseInput, RebaseResult
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.specialists import (
    PlannedTask,
    SplitPlanInput,
    SplitPlanResult,
    TakeTasksInput,
    TakeTasksResult,
)
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import (
    CommitInput,
    CommitResult,
    PreparedWorkspace,
    PrepareInput,
    TakeAttemptInput,
    TakeAttemptResult,
    TestInput,
    TestVerdict,
)
from perdure.models.ids import MORE_ATTRIBUTES, delivery_key
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.models.rules.parallel_builds import attempt_workflow_id, attempts_summary, best_attempt
from tests.deliveries import WHOLE, Script, at, playing, title_at_start
from tests.homes import origin_activities
from tests.states import with_fields
from tests.waiting import patient, until


class Several(Script):
    """Three attempts. holding: numbers that wait in their first turn; red, fails, asks: numbers that end red, that the
    model refuses, that ask a question. `lines`: of the change of each."""

    def __init__(self) -> None:
        super().__init__(
            *ALL_PHASES, attempts=3, test_fixes=0, attributes=True, extra_attributes=tuple(MORE_ATTRIBUTES)
        )
        self.go = asyncio.Event()
        self.holding: set[int] = set()
        self.reviewing: dict[int, asyncio.Event] = {}
        self.at_review: set[int] = set()
        self.red: set[int] = set()
        self.fails: set[int] = set()
        self.questions: set[int] = set()
        self.lines = {1: 30, 2: 20, 3: 10}
        self.numbers: dict[str, int] = {}
        self.budgets: dict[int, float] = {}

    def words(self, number: int) -> list[str]:
        return [said.text for work in self.seen if self.numbers.get(work.delivery) == number for said in work.messages]

    async def plays(self, work: TurnInput) -> TurnResult:
        number = self.numbers.get(work.delivery, 0)
        if number in self.holding and work.step is Step.IMPLEMENT and work.turn == 1:
            await self.go.wait()
        if work.step is Step.REVIEW and number in self.reviewing:
            self.at_review.add(number)
            await self.reviewing[number].wait()
        made = (await super().plays(work)).model_copy(update={"checkpoint": f"{len(self.seen):040x}"})
        if work.step is not Step.IMPLEMENT or not number:
            return made
        if number in self.fails:
            return made.model_copy(update={"outcome": Outcome(ending=Ending.REFUSED, summary="not that")})
        if work.turn == 1:
            asked = Question(text="Which sign?") if number in self.questions else None
            return made.model_copy(update={"outcome": None, "question": asked})
        return made

    def activities(self) -> list[Callable[..., Any]]:
        whole: Any
        whole, *kept = super().activities()
        kept = [one for one in kept if one.__name__ not in ("commit", "run_tests")]

        @activity.defn(name=Step.PREPARE)
        async def prepare(work: PrepareInput) -> PreparedWorkspace:
            forked = work.request.forked
            if forked is None or work.previous is None:
                made: PreparedWorkspace = await whole(work)
                return made
            self.numbers[work.delivery] = forked.attempt
            self.budgets[forked.attempt] = work.request.budget_usd or 0.0
            return with_fields(work.previous, asks=False, gates=(), budget_usd=work.request.budget_usd)

        @activity.defn(name=Step.COMMIT)
        async def commit(work: CommitInput) -> CommitResult:
            return CommitResult(commit=f"h{self.numbers.get(work.delivery, 0)}", tree="t1", summary="+1 in 1 file")

        @activity.defn(name=Step.RUN_TESTS)
        async def run_tests(work: TestInput) -> TestVerdict:
            red = self.numbers.get(work.delivery, 0) in self.red or self.red == {1, 2, 3}
            return TestVerdict(status=TestsStatus.RED if red else TestsStatus.GREEN, tree="t", summary="1 of 2 fail")

        @activity.defn
        async def take_attempt(work: TakeAttemptInput) -> TakeAttemptResult:
            sized = [one.model_copy(update={"lines": self.lines[one.number]}) for one in work.attempts]
            chosen = best_attempt(sized)
            attempts = tuple(one.model_copy(update={"chosen": one is chosen}) for one in sized)
            checkpoint = "c-taken" if chosen is not None else work.checkpoint
            return TakeAttemptResult(checkpoint=checkpoint, attempts=attempts, summary=attempts_summary(attempts))

        return [*kept, prepare, commit, run_tests, take_attempt, *origin_activities()]


async def begun(client: Client, id: str, **more: Any) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow("Delivery", {**WHOLE, **more}, id=id, task_queue=TASK_QUEUE)


def building(script: Several) -> set[int]:
    return {script.numbers.get(work.delivery, 0) for work in script.seen if work.step is Step.IMPLEMENT}


async def test_all_run_at_once_with_equal_shares_and_words_money_and_holds_reach_each(
    client: Client, fresh: str
) -> None:
    script = Several()
    script.holding = {1, 2, 3}
    async with playing(client, script):
        handle = await begun(client, fresh)
        await until(lambda: building(script) == {1, 2, 3})
        assert {await title_at_start(client, attempt_workflow_id(fresh, number)) for number in (1, 2, 3)} == {"Add sub"}
        assert len(set(script.budgets.values())) == 1
        paid_before = 0.2
        assert sum(script.budgets.values()) == pytest.approx(5.0 - paid_before, abs=0.01)
        children = [client.get_workflow_handle(attempt_workflow_id(fresh, number)) for number in (1, 2, 3)]
        await handle.signal("say", {"text": "mind the sign", "id": "w1"})
        await handle.execute_update("add_budget", {"usd": 3, "id": "b1"})
        await handle.signal("hold", {"note": "lunch"})
        for child in children:
            seen = await at(child, lambda progress: progress["held"])
            assert seen["held"] == "held: lunch"
            more = await at(child, lambda progress: progress["budget_usd"] > script.budgets[1] + 0.5)
            assert more["budget_usd"] == pytest.approx(script.budgets[1] + 1.0, abs=0.01)
        script.go.set()
        await handle.signal("resume", {})
        result = await handle.result()
    assert result["status"] == "delivered"
    assert [one["number"] for one in result["attempts"] if one["chosen"]] == [3], "the smallest"
    for number in (1, 2, 3):
        assert "mind the sign" in script.words(number)
        assert any(text.startswith(f"This is attempt {number} of 3") for text in script.words(number))
    assert result.get("unread", []) == []


async def test_words_that_not_every_attempt_with_a_commit_has_read_are_unread(client: Client, fresh: str) -> None:
    script = Several()
    script.reviewing, script.holding = {number: asyncio.Event() for number in (1, 2, 3)}, {1, 2}
    async with playing(client, script):
        handle = await begun(client, fresh)
        await until(lambda: script.at_review == {3})
        await handle.signal("say", {"text": "mind the sign", "id": "w1"})
        for number in (1, 2, 3):
            child = client.get_workflow_handle(attempt_workflow_id(fresh, number))
            beginning = number != 3  # its first words are not taken in yet
            await at(child, lambda progress, beginning=beginning: progress["unread"] == 1 + beginning)
            script.reviewing[number].set()
        script.go.set()
        result = await handle.result()
    assert result["status"] == "delivered"
    assert "mind the sign" in result["unread"], "3 was at its end"
    assert "mind the sign" in script.words(1)


async def test_a_question_of_an_attempt_is_shown_at_the_delivery_and_answered_at_the_attempt(
    client: Client, fresh: str
) -> None:
    script = Several()
    script.questions = {2}
    script.red = {1, 3}
    async with playing(client, script):
        handle = await begun(client, fresh)
        shown = await at(handle, lambda progress: "Which sign?" in progress["waiting"])
        assert f"{attempt_workflow_id(fresh, 2)} waits: question: Which sign?" in shown["waiting"]
        for number, text in ((2, ""), (2, "for your password"), (7, "for your password")):  # a client, in their name
            await handle.signal("attempt_waits", {"number": number, "waiting_for": text})
        for _ in range(20):
            assert (await handle.query("progress"))["waiting"] == shown["waiting"], "they have not sent it"
        child = client.get_workflow_handle(attempt_workflow_id(fresh, 2))
        await child.execute_update("answer", {"answer": "minus"})
        result = await handle.result()
    assert [one["number"] for one in result["attempts"] if one["chosen"]] == [2], "the only green one"
    assert "minus" in script.words(2)


async def test_where_all_are_red_the_delivery_fails_as_the_one_that_lacks_least_and_names_every_attempt(
    client: Client, fresh: str
) -> None:
    script = Several()
    script.red = {1, 2, 3}
    async with playing(client, script):
        handle = await begun(client, fresh)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert isinstance(failure.value.cause, ApplicationError)
        [result] = failure.value.cause.details
    assert (result["status"], result["reason"]) == ("not_delivered", "tests_red")
    assert [(one["number"], one["tests"], one["chosen"]) for one in result["attempts"]] == [
        (1, "red", False),
        (2, "red", False),
        (3, "red", True),
    ]
    assert all(one["words"].startswith("tests are red") for one in result["attempts"])


async def test_where_no_attempt_made_anything_a_retry_lets_them_begin_again(client: Client, fresh: str) -> None:
    script = Several()
    script.fails = {1, 2, 3}
    async with playing(client, script):
        handle = await begun(client, fresh)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
        assert isinstance(failure.value.cause, ApplicationError)
        assert "none of 3 attempts made a commit" in failure.value.cause.message
        assert failure.value.cause.message.count("the model refused") == 3
        script.fails = {1, 2}
        retried = await Perdure(client).delivery(fresh).retry()
        result = await retried.result()
    assert result.status == "delivered"
    assert [one.number for one in result.attempts if one.chosen] == [3]


async def test_an_attempt_that_nobody_but_its_delivery_begins_is_refused(client: Client, fresh: str) -> None:
    forked = {"delivery": fresh, "at": "implement:1", "checkpoint": "0" * 40, "queue": TASK_QUEUE, "attempt": 1}
    async with playing(client, Several()):
        handle = await begun(client, attempt_workflow_id(fresh, 1), forked=forked)
        with pytest.raises(WorkflowFailureError) as failure:
            await handle.result()
    assert isinstance(failure.value.cause, ApplicationError)
    assert failure.value.cause.message.endswith(f"begun by their delivery: perdure retry {fresh}")
    assert delivery_key(attempt_workflow_id(fresh, 1)) != delivery_key(fresh)


TASKS = (
    PlannedTask(number=1, title="Write it", details="Task 1: Write it", role="backend"),
    PlannedTask(number=2, title="Describe it", details="Task 2: Describe it", role="docs"),
    PlannedTask(number=3, title="Test it", details="Task 3: Test it", role="test", after=(1,)),
)


class Team(Script):
    """`tasks`: what the plan is split into; fails: items whose agent refuses; holding: items that wait in a turn."""

    def __init__(self) -> None:
        visible = {"attributes": True, "extra_attributes": tuple(MORE_ATTRIBUTES)}
        super().__init__(Phase.PLAN, Phase.BUILD, Phase.TEST, Phase.REVIEW, Phase.SHIP, specialists=True, **visible)
        self.tasks = TASKS
        self.fails: set[str] = set()
        self.holding: dict[str, asyncio.Event] = {}
        self.landed: list[str] = []
        self.built: list[str] = []
        self.requests: dict[str, Any] = {}
        self.items: dict[str, str] = {}

    def item(self, delivery: str) -> str:
        return self.items.get(delivery, "")

    async def plays(self, work: TurnInput) -> TurnResult:
        item = self.item(work.delivery)
        if event := self.holding.get(item):
            await event.wait()
        if work.step is Step.IMPLEMENT:
            self.built.append(item)
        made = await super().plays(work)
        if item in self.fails:
            made = made.model_copy(update={"outcome": Outcome(ending=Ending.REFUSED, summary="not that")})
        return made

    def activities(self) -> list[Callable[..., Any]]:
        whole: Any
        whole, *kept = super().activities()
        assert whole.__name__ == "prepare"

        @activity.defn(name=Step.PREPARE)
        async def prepare(work: PrepareInput) -> PreparedWorkspace:
            made: PreparedWorkspace = await whole(work)
            place = work.request.landing
            if place is None:
                return made
            self.items[work.delivery], self.requests[place.item] = place.item, work.request
            alone = {"landing": place.branch, "specialists": False, "phases": (Phase.BUILD,), "asks": False}
            return with_fields(made, **alone, plan=place.within.plan if place.within else "")

        @activity.defn
        async def split_plan(work: SplitPlanInput) -> SplitPlanResult:
            return SplitPlanResult(tasks=self.tasks)

        @activity.defn
        async def take_tasks(work: TakeTasksInput) -> TakeTasksResult:
            made = tuple(
                task.model_copy(update={"commit": f"c-{task.item}" if task.item in self.landed else ""})
                for task in work.tasks
            )
            paid = Usage(cost_usd=0.5)
            return TakeTasksResult(
                head="taken", checkpoint="c-taken", tasks=made, spend=Spend(usd=0.7), tasks_usage=paid
            )

        @activity.defn(name=Step.REBASE)
        async def rebase(work: RebaseInput) -> RebaseResult:
            return RebaseResult(
                onto="b", contract="p2", checkpoint=work.checkpoint, commit=f"c-{work.place.item}", tree="t"
            )

        @activity.defn(name=Step.LAND)
        async def land(work: LandInput) -> LandResult:
            self.landed.append(work.place.item)
            return LandResult(commit=work.commit, head=work.commit, summary="landed")

        return [*kept, prepare, split_plan, take_tasks, rebase, land, look_for, *origin_activities(), resume_point]


async def tasks_of(client: Client, id: str) -> WorkflowHandle[Any, Any]:
    async with asyncio.timeout(patient(40)):
        while True:
            async for run in client.list_workflows(
                f"WorkflowId STARTS_WITH '{id}/tasks-' AND WorkflowType = 'Backlog'"
            ):
                return client.get_workflow_handle(run.id)
            await asyncio.sleep(0.1)


async def test_independent_tasks_run_at_once_and_the_delivery_goes_on_with_all(client: Client, fresh: str) -> None:
    team = Team()
    team.holding = {"1-backend": asyncio.Event(), "2-docs": asyncio.Event()}
    async with playing(client, team):
        handle = await begun(client, fresh)
        await until(lambda: {"1-backend", "2-docs"} <= {team.item(work.delivery) for work in team.seen})
        assert "3-test" not in {team.item(work.delivery) for work in team.seen}
        progress = await handle.query("progress")
        assert progress["waiting"].startswith("for its tasks")
        tasks = (await tasks_of(client, fresh)).id
        assert await title_at_start(client, tasks) == "3 items: 1-backend, 2-docs, 3-test"
        assert await title_at_start(client, f"{tasks}/2-docs") == team.tasks[1].details.splitlines()[0]
        for event in team.holding.values():
            event.set()
        result = await handle.result()
    assert (result["status"], result["head_sha"]) == ("delivered", "taken")
    assert sorted(team.built) == ["1-backend", "2-docs", "3-test"], "the delivery's own agent had nothing left to build"
    assert team.landed.index("1-backend") < team.landed.index("3-test")
    assert [step["summary"] for step in result["steps"] if step["step"] == "take_tasks"] == [""]
    told = {team.item(work.delivery): work.materials for work in team.seen if work.step is Step.IMPLEMENT}
    assert told["2-docs"]["task"] == "Task 2: Describe it"
    assert told["1-backend"]["plan"] == told["3-test"]["plan"]
    place = team.requests["2-docs"].landing
    assert (place.role, place.within.task, place.within.title) == ("docs", 2, "Describe it")
    shares = [team.requests[task.item_id].budget_usd for task in TASKS]
    assert shares[:2] == [1.6, 1.6], "a third of what is left for each that begins"
    assert shares[2] < 5.0, "then of what is left of all"


async def test_a_plan_for_one_agent_is_built_by_one_and_nothing_is_started(client: Client, fresh: str) -> None:
    team = Team()
    team.tasks = ()
    async with playing(client, team):
        result = await (await begun(client, fresh)).result()
        history = await client.get_workflow_handle(fresh).fetch_history()
    assert result["status"] == "delivered"
    assert team.built == [""]
    assert "task" not in next(work for work in team.seen if work.step is Step.IMPLEMENT).materials
    kinds = [event.WhichOneof("attributes") for event in history.events]
    assert not [kind for kind in kinds if kind and kind.startswith("start_child")]


async def test_what_a_failed_task_leaves_is_built_by_one_agent_who_is_told(client: Client, fresh: str) -> None:
    team = Team()
    team.fails = {"1-backend"}
    async with playing(client, team):
        result = await (await begun(client, fresh)).result()
    assert result["status"] == "delivered"
    assert team.landed == ["2-docs"], "what depends on a failed task does not begin"
    [own] = [work for work in team.seen if work.step is Step.IMPLEMENT and not team.item(work.delivery)]
    assert own.checkpoint == "c-taken"
    assert "2. Describe it: done" in own.materials["tasks"]
    assert "1. Write it: left to do (the model refused: not that)" in own.materials["tasks"]
    assert "3. Test it: left to do (blocked by 1-backend" in own.materials["tasks"]


async def test_a_hold_and_its_end_go_down_to_the_tasks(client: Client, fresh: str) -> None:
    team = Team()
    team.holding = {"1-backend": asyncio.Event()}
    async with playing(client, team):
        handle = await begun(client, fresh)
        tasks = await tasks_of(client, fresh)
        await handle.signal("hold", {"note": "release day"})
        async with asyncio.timeout(patient(40)):
            while (await tasks.query("progress")).get("held") != "held: release day":
                await asyncio.sleep(0.05)
        await handle.signal("resume", {})
        team.holding["1-backend"].set()
        assert (await handle.result())["status"] == "delivered"
    assert sorted(team.landed) == ["1-backend", "2-docs", "3-test"]


async def test_words_and_money_for_the_delivery_reach_its_tasks_those_that_run_and_those_that_begin_later(
    client: Client, fresh: str
) -> None:
    team = Team()
    team.turns_each, team.holding = 2, {"1-backend": asyncio.Event(), "3-test": asyncio.Event()}
    async with playing(client, team):
        handle = await begun(client, fresh)
        await until(lambda: team.landed == ["2-docs"])
        tasks = await tasks_of(client, fresh)
        before = (await tasks.query("state"))["items"]["1-backend"]["child"]["granted_usd"]
        for _ in range(2):
            await handle.signal("say", {"text": "Keep the old name.", "id": "old-name"})
        await handle.execute_update("add_budget", {"usd": 4, "time": "1h"})
        first = client.get_workflow_handle(f"{tasks.id}/1-backend")
        async with asyncio.timeout(patient(40)):  # the share of the one that has ended may come first
            while (await tasks.query("progress"))["budget_usd"] < 8:
                await asyncio.sleep(0.05)
            while (await first.query("progress"))["budget_usd"] < before + 1.99:
                await asyncio.sleep(0.05)
        team.holding["1-backend"].set()
        await until(lambda: "3-test" in {team.item(work.delivery) for work in team.seen})
        last = client.get_workflow_handle(f"{tasks.id}/3-test")
        async with asyncio.timeout(patient(40)):  # its first turn may begin before the message is there, its second not
            while "say" not in [
                event.workflow_execution_signaled_event_attributes.signal_name
                async for event in last.fetch_history_events()
            ]:
                await asyncio.sleep(0.05)
        team.holding["3-test"].set()
        assert (await handle.result())["status"] == "delivered"
    read = {
        (team.item(work.delivery), said.text)
        for work in team.seen
        if work.step is Step.IMPLEMENT
        for said in work.messages
    }
    assert read == {("1-backend", "Keep the old name."), ("3-test", "Keep the old name.")}, "who has ended has ended"
    often = [said.id for work in team.seen for said in work.messages if team.item(work.delivery) == "1-backend"]
    assert often == ["old-name"], "once"
    assert team.requests["3-test"].budget_usd > 2, "of what was left there would have been less"


async def test_a_cancelled_delivery_cancels_its_tasks_and_a_retry_repeats_none_that_landed(
    client: Client, perdure: Perdure, fresh: str
) -> None:
    team = Team()
    team.holding = {"1-backend": asyncio.Event()}
    async with playing(client, team):
        handle = await begun(client, fresh)
        await until(lambda: team.landed == ["2-docs"])
        await handle.cancel()
        team.holding["1-backend"].set()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        tasks = await tasks_of(client, fresh)
        assert (await tasks.describe()).status == WorkflowExecutionStatus.CANCELED
        keys = tuple(delivery_key(f"{tasks.id}/{task.item_id}") for task in TASKS)
        assert team.closed == [(), (), keys], "its own end is the last one, and counts theirs"
        first = client.get_workflow_handle(f"{tasks.id}/1-backend")
        with pytest.raises(WorkflowFailureError):
            await first.result()
        await perdure.delivery(fresh).retry()
        assert (await client.get_workflow_handle(fresh).result())["status"] == "delivered"
    prepared = [work for work in team.preparing if team.item(work.delivery) == "1-backend"]
    assert [work.previous is None for work in prepared] == [True, False], "it goes on from where it was"
    assert sorted(team.landed) == ["1-backend", "2-docs", "3-test"]


@pytest.mark.parametrize("kind", ["Delivery", "Backlog"])
async def test_tasks_are_begun_by_their_delivery_alone(client: Client, fresh: str, kind: str) -> None:
    within = {"delivery": "d", "terms": "t", "plan": "p", "task": 1, "queue": TASK_QUEUE}
    backlog = f"{fresh}/tasks-3fa9c1"
    place = {"backlog": backlog, "item": "1-backend", "branch": "d/tasks-3fa9c1", "within": within}
    request = {"repository": "/r", "request": "Task 1: Write it", "landing": place}
    opened = {"base": "main", "base_sha": "b", "branch": "d/tasks-3fa9c1", "queue": TASK_QUEUE, "within": within}
    sent = {"Delivery": [request], "Backlog": [{"repository": "/r"}, {"opened": opened}]}
    id = {"Delivery": f"{backlog}/1-backend", "Backlog": backlog}[kind]
    async with playing(client, Team()):
        handle = await client.start_workflow(kind, args=sent[kind], id=id, task_queue=TASK_QUEUE)
        with pytest.raises(WorkflowFailureError) as refusal:
            await handle.result()
    cause = refusal.value.cause
    assert isinstance(cause, ApplicationError)
    assert cause.type == "InvalidRequest"
    assert f"begun by their delivery: perdure retry {fresh}" in cause.message
