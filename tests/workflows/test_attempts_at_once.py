"""Attempts at a plan as children of their delivery: what they are told, what they ask, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.result import TestsStatus
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
from perdure.models.ids import delivery_key
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import ALL_PHASES, Step
from perdure.models.rules.parallel_builds import attempt_workflow_id, attempts_summary, best_attempt
from tests.deliveries import WHOLE, Script, at, playing
from tests.states import with_fields
from tests.waiting import until


class Several(Script):
    """Three attempts. holding: numbers that wait in their first turn; red, fails, asks: numbers that end red, that the
    model refuses, that ask a question. `lines`: of the change of each."""

    def __init__(self) -> None:
        super().__init__(*ALL_PHASES, attempts=3, test_fixes=0)
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

        return [*kept, prepare, commit, run_tests, take_attempt]


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
