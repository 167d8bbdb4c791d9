"""Replies are paid once: a retry goes on with them, a rewind wants others, a silent delivery's host is asked."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from perdure.client import Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import DeliveryResult
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import TestVerdict
from perdure.models.ids import short_run_id
from perdure.models.phases import Phase, Step
from tests.deliveries import GREEN, PLANNED, RED, ADelivery, Script, events, playing, reset, waiting

REFUSED = ApplicationError("no", type="ForgeRefused", non_retryable=True)


async def retried(
    a_delivery: ADelivery, **scripted: Any
) -> tuple[DeliveryResult, DeliveryResult, list[tuple[Step, int, int]]]:
    """Its end, the end of its retry, and the retry's turns."""
    async with a_delivery(**scripted) as delivery:
        first = await delivery.ended()
        delivery.seen.clear()
        await delivery.retry()
        return first, await delivery.ended(), [(work.step, work.attempt, work.turn) for work in delivery.seen]


async def test_a_retry_after_a_failure_in_ship_alone_buys_no_second_review_of_the_same_tree(
    a_delivery: ADelivery,
) -> None:
    first, second, turns = await retried(a_delivery, troubles={"open_pull_request": [REFUSED]})
    assert (first.reason, second.status) == ("forge_refused", "delivered")
    assert turns == []
    assert second.review == first.review
    assert second.review.report is not None


async def test_a_retry_whose_tests_are_red_now_has_the_mended_tree_reviewed(a_delivery: ADelivery) -> None:
    refused = {"open_pull_request": [REFUSED]}
    _, second, turns = await retried(a_delivery, troubles=refused, verdicts=[GREEN, RED], commits=["h1", "h2"])
    assert (second.status, second.head_sha) == ("delivered", "h2")
    assert [step for step, *_ in turns] == ["fix_tests", "review"]


async def test_tokens_and_dollars_of_a_result_are_those_of_all_runs(a_delivery: ADelivery) -> None:
    usage = Usage(input_tokens=5, cache_read_tokens=40, output_tokens=3, cost_usd=0.9)
    refused = {"open_pull_request": [REFUSED]}
    _, second, _ = await retried(a_delivery, troubles=refused, spend=Spend(usd=0.9), usage=usage)
    told = second.usage
    assert (told.input_tokens, told.cache_read_tokens, told.output_tokens, told.cost_usd) == (5, 40, 3, 0.9)


class Breaking(Script):
    """The model goes away in this turn; what was asked there, in both runs, is `asked`."""

    def __init__(self, step: Step, attempt: int, turn: int) -> None:
        super().__init__()
        self.there, self.away = (step, attempt, turn), True
        self.asked: list[TurnInput] = []
        self.turn, self.turns_each = self.goes_away, 3

    async def goes_away(self, work: TurnInput) -> TurnResult:
        if (work.step, work.attempt, work.turn) == self.there:
            self.asked.append(work.model_copy(update={"started_run_suffix": ""}))  # a rewind would be told by it
            if self.away:
                self.away = False
                raise ApplicationError("no credit", type="ModelRefusesUs", non_retryable=True)
        return await self.plays(work)

    def verdict(self, attempt: int) -> TestVerdict:
        """Of the newest commit. Another report each time, though it be about the same."""
        newest = str(len(self.commits))
        return super().verdict(attempt).model_copy(update={"report": f"r{attempt}", "fingerprint": newest})


@pytest.mark.parametrize("turn", [1, 2])
@pytest.mark.parametrize("attempt", [1, 2])
async def test_a_retry_goes_on_in_the_middle_of_any_fix_of_the_tests(
    a_delivery: ADelivery, attempt: int, turn: int
) -> None:
    """The very turn is asked for again, so its reply is found where it was bought."""
    script = Breaking(Step.FIX_TESTS, attempt, turn)
    verdicts = [*[RED] * (attempt + 1), *[RED] * (2 - attempt), GREEN]
    first, second, turns = await retried(a_delivery, script=script, verdicts=verdicts, commits=["h1", "h2", "h3"])
    assert (first.reason, second.status) == ("refused", "delivered")
    assert len(script.asked) == 2
    assert script.asked[0] == script.asked[1]
    fixed = [(a, t) for step, a, t in turns if step is Step.FIX_TESTS]
    assert fixed == [(a, t) for a in (1, 2) for t in (1, 2, 3) if (a, t) >= (attempt, turn)]
    assert turns[-1][0] == "review"


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_retry_goes_on_in_the_middle_of_the_second_fix_of_the_review(a_delivery: ADelivery, turn: int) -> None:
    script = Breaking(Step.FIX_REVIEW, 2, turn)
    first, second, turns = await retried(a_delivery, script=script, blockers=[1, 1], commits=["h1", "h2", "h3"])
    assert (first.reason, second.status) == ("refused", "delivered")
    assert len(script.asked) == 2
    assert script.asked[0] == script.asked[1]
    fixed = [(a, t) for step, a, t in turns if step is Step.FIX_REVIEW]
    assert fixed == [(2, turn) for turn in range(turn, 4)]


async def test_fixes_of_a_retry_are_numbered_on_and_as_many_as_if_there_had_been_none_before(
    a_delivery: ADelivery,
) -> None:
    first, second, turns = await retried(a_delivery, test_fixes=2, verdicts=[RED] * 6)
    assert (first.message, second.message) == ("tests are red after 2 fixes",) * 2
    assert turns == [("fix_tests", 3, 1), ("fix_tests", 4, 1)]


async def test_each_turn_says_which_run_was_started_and_a_retry_goes_on_with_what_a_rewind_began(
    client: Client, fresh: str
) -> None:
    script = Script(Phase.PLAN, gates=("plan",))
    async with playing(client, script):
        delivery = (await Perdure(client).submit(PLANNED, id=fresh)).delivery
        handle = client.get_workflow_handle(fresh)
        await waiting(handle)
        first = (await delivery.describe()).run_id
        done = [event for event, kind, _ in await events(handle) if kind == "workflow_task_completed"]
        rewound = await reset(handle, done[1])
        await waiting(client.get_workflow_handle(fresh, run_id=rewound))
        begun = [(work.step, work.started_run_suffix, work.sample) for work in script.seen]
        assert begun == [("classify", short_run_id(first), ""), ("plan", short_run_id(first), "")] * 2, (
            "a rewound run has the same input"
        )

        await delivery.cancel()
        assert (await delivery.result()).status == "cancelled"
        script.seen.clear()
        described = await delivery.describe()
        assert described.resume is not None
        assert described.resume.state["turns"]["sample"] == short_run_id(rewound)
        await delivery.retry()
        asked = await waiting(handle)
        await delivery.reject("another one")
        await waiting(handle, behind=asked.target)
        again = (await delivery.describe()).run_id
        assert {(work.started_run_suffix, work.sample) for work in script.seen} == {
            (short_run_id(again), short_run_id(rewound))
        }
        await delivery.approve()
        assert (await delivery.result()).status == "completed"
