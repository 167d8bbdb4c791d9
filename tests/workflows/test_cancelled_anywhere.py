"""A cancel during any activity of a delivery, and a retry: the same turns and commits as without, each of them once."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from deciding import Deciding
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    Worker,
)

from perdure.client import Perdure
from perdure.models.delivery.result import DeliveryResult, TestsStatus
from perdure.models.delivery.turn import Outcome, TurnInput
from perdure.models.delivery.work import CommitInput, CommitResult, TestVerdict
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Step
from tests.deliveries import TURN_USD, WHOLE, Script
from tests.waiting import patient

pytestmark = pytest.mark.story

LAST = (Step.OPEN_PULL_REQUEST, "close")
"""Whoever cancels here is too late: it is delivered."""

Turns = list[tuple[str, int, int]]


class Honest(Script):
    """Red until a fix of the tests was made, a blocker until one of the review was; documents. Each commit is new."""

    def __init__(self) -> None:
        super().__init__(document=True, test_fixes=2, review_fixes=2)
        self.turns_each = 2
        self.made: list[tuple[str, int]] = []

    def _fixed(self, step: Step) -> bool:
        return any(made == step for made, _ in self.made)

    def verdict(self, attempt: int) -> TestVerdict:
        status = TestsStatus.GREEN if self._fixed(Step.FIX_TESTS) else TestsStatus.RED
        return TestVerdict(status=status, tree="t", report="r", fingerprint=str(len(self.made)))

    def outcome(self, work: TurnInput) -> Outcome:
        self.blockers = [0 if self._fixed(Step.FIX_REVIEW) else 1]
        return super().outcome(work)

    def commit(self, work: CommitInput) -> CommitResult:
        self.made.append((work.step, work.attempt))
        return CommitResult(commit=f"h{len(self.made)}", tree="t", files=1, added=1, summary="+1")

    def activities(self) -> list[Any]:
        @activity.defn(name=Step.COMMIT)
        async def commit(work: CommitInput) -> CommitResult:
            return self.commit(work)

        return [*(one for one in super().activities() if one.__name__ != "commit"), commit]


class CancelledAt(Interceptor):
    """Asks for the cancellation of the delivery during its nth activity, which succeeds all the same; 0: of none.

    deciding  the worker of its workflow: stopped meanwhile, it hears of request and result in one workflow task
    """

    def __init__(self, client: Client, nth: int, deciding: Deciding) -> None:
        self.client, self.nth, self.deciding, self.ran = client, nth, deciding, list[str]()

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _During(next, self)


class _During(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, at: CancelledAt) -> None:
        super().__init__(next)
        self.at = at

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        self.at.ran.append(info.activity_type)
        if len(self.at.ran) == self.at.nth:
            await self.at.deciding.pause()
            handle = self.at.client.get_workflow_handle(info.workflow_id or "")
            await handle.cancel()
            self.at.deciding.go_on_after(handle)
        return await super().execute_activity(input)


async def delivered(client: Client, nth: int) -> tuple[DeliveryResult, Honest, list[str]]:
    """The end, after a retry where it was cancelled, who did the work, and the activities of all runs."""
    script, id = Honest(), f"d-{uuid.uuid4().hex[:12]}"
    async with asyncio.timeout(patient(60)), Deciding(client, remembers=True) as deciding:
        cancels = CancelledAt(client, nth, deciding)
        acting = Worker(client, task_queue=TASK_QUEUE, activities=script.activities(), interceptors=[cancels])
        async with acting:
            delivery = (await Perdure(client).submit(WHOLE, id=id)).delivery
            result = await delivery.result()
            assert nth == 0 or result.status == "cancelled" or cancels.ran[nth - 1] in LAST, "the cancel was lost"
            if result.status == "cancelled":
                await delivery.retry()
                result = await delivery.result()
    return result, script, cancels.ran


def turns(script: Honest) -> Turns:
    return [(work.step, work.attempt, work.turn) for work in script.seen]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_cancel_during_any_activity_costs_no_turn_and_no_commit_a_second_time(client: Client) -> None:
    result, script, activities = await delivered(client, 0)
    assert result.status == "delivered", result.message
    expected, commits = turns(script), script.made
    assert len(set(expected)) == len(expected) > 12
    wrong = {}
    for nth in range(1, len(activities) + 1):
        result, script, _ = await delivered(client, nth)
        usd = round(result.usage.cost_usd or 0, 6)
        seen = (result.status, turns(script), script.made, len(script.shipped), usd)
        if seen != ("delivered", expected, commits, 1, round(len(expected) * TURN_USD, 6)):
            wrong[f"{nth}, {activities[nth - 1]}"] = (result.message, *seen)
    assert wrong == {}
