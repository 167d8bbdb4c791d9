"""A cancel at any moment, alone or beside something else, and a retry: the same turns and commits, each once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Self

import pytest
from backlog_fixtures import Branch, backlog, night, until
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    UnsandboxedWorkflowRunner,
    Worker,
)

from perdure.client import Perdure
from perdure.models.backlog import landing
from perdure.models.backlog.landing import DeliveryLookup, DeliveryLookupInput
from perdure.models.delivery.result import DeliveryResult, TestsStatus
from perdure.models.delivery.turn import Outcome, TurnInput
from perdure.models.delivery.work import CommitInput, CommitResult, TestVerdict
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Step
from tests.deliveries import TURN_USD, WHOLE, Script, playing
from tests.homes import origin_activities
from tests.waiting import patient
from tests.waiting import until as true
from workflows import WORKFLOWS
from workflows import backlog as backlogs


class Deciding:
    """It remembers no workflow from one task to the next; with `remembers` until it is stopped: half the work.

    What it remembered then waits for it a moment only, and comes to whoever begins again.
    """

    def __init__(self, client: Client, *, remembers: bool = False) -> None:
        self._client, self._remembers = client, remembers
        self._going_on: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._worker = Worker(
            self._client,
            task_queue=TASK_QUEUE,
            workflows=WORKFLOWS,
            activities=origin_activities(),
            no_remote_activities=True,
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=100 if self._remembers else 0,
            sticky_queue_schedule_to_start_timeout=timedelta(milliseconds=100),
        )
        await self._worker.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.pause()

    async def pause(self) -> None:
        if self._going_on is not None:
            await self._going_on
        await self._worker.shutdown()

    def go_on_after(self, handle: WorkflowHandle[Any, Any]) -> None:
        """Once the activity has been reported, which is under way."""
        self._going_on = asyncio.create_task(self._once_reported(handle))

    async def _once_reported(self, handle: WorkflowHandle[Any, Any]) -> None:
        while (await handle.describe()).raw_description.pending_activities:
            await asyncio.sleep(0.01)
        await self.__aenter__()


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


@pytest.mark.story
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


@pytest.mark.timeout(120)
async def test_a_cancel_that_meets_the_end_of_the_plan_does_not_wait_at_its_gate(client: Client) -> None:
    script, id = Script(gates=("plan",)), f"d-{uuid.uuid4().hex[:12]}"
    async with asyncio.timeout(patient(60)), Deciding(client, remembers=True) as deciding:
        cancels = CancelledAt(client, 3, deciding)
        async with Worker(client, task_queue=TASK_QUEUE, activities=script.activities(), interceptors=[cancels]):
            delivery = (await Perdure(client).submit({**WHOLE, "gates": ["plan"]}, id=id)).delivery
            assert (await delivery.result()).status == "cancelled"
    assert cancels.ran[2] == Step.PLAN


CANCELED = WorkflowExecutionStatus.CANCELED


async def _is(handle: WorkflowHandle[Any, Any], status: WorkflowExecutionStatus) -> bool:
    return (await handle.describe()).status is status


def acting(client: Client, branch: Branch) -> Worker:
    return Worker(client, task_queue=TASK_QUEUE, activities=branch.activities())


class Looking(Branch):
    """Nobody comes back from a look at the deliveries."""

    def __init__(self, **changes: str) -> None:
        super().__init__(**changes)
        self.begun = asyncio.Event()

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def look_for(work: DeliveryLookupInput) -> DeliveryLookup:
            self.begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        return [*(one for one in super().activities() if one.__name__ != "look_for"), look_for]


async def test_a_backlog_that_is_cancelled_while_it_looks_for_its_deliveries_cancels_them(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlogs, "BACKLOG_LOOK", timedelta(seconds=0.2))
    branch = Looking(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with playing(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await branch.begun.wait()
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        branch.holding["one"].set()
        await true(lambda: _is(client.get_workflow_handle(f"{fresh}/one"), CANCELED))
        assert (await handle.query("progress"))["status"] == "cancelled"


async def test_a_backlog_that_is_cancelled_as_it_grants_the_turn_to_land_cancels_its_deliveries(
    client: Client, fresh: str
) -> None:
    branch = Branch(one="a")
    branch.holding = {"one": asyncio.Event()}
    async with asyncio.timeout(patient(60)), Deciding(client) as deciding, acting(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        await until(handle, lambda at: at["one"] == "building")
        one = client.get_workflow_handle(f"{fresh}/one")
        await true(lambda: bool(branch.now))
        await deciding.pause()
        asks = landing.LandingRequested(item="one", delivery=one.id, run_id=(await one.describe()).run_id, seq=1)
        await handle.signal("landing_asked", asks.model_dump(mode="json"))
        await handle.cancel()
        await deciding.__aenter__()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        branch.holding["one"].set()
        await true(lambda: _is(one, CANCELED))
        assert (await handle.query("progress"))["status"] == "cancelled"


async def test_a_delivery_that_is_cancelled_as_it_hears_that_its_backlog_has_ended_ends(
    client: Client, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen at random: it stood still for good, because the SDK asked for a signal to be taken back that had failed."""
    asks, goes_on, real = threading.Event(), threading.Event(), landing.LandingRequested

    def slowly(**given: Any) -> landing.LandingRequested:
        asks.set()
        goes_on.wait(1.5)  # the SDK takes two seconds for a deadlock
        return real(**given)

    monkeypatch.setattr(landing, "LandingRequested", slowly)
    branch = Branch(one="a")
    async with asyncio.timeout(patient(60)), Deciding(client) as deciding, acting(client, branch):
        handle = await backlog(client, fresh, night({"id": "one"}))
        one = client.get_workflow_handle(f"{fresh}/one")
        await asyncio.to_thread(asks.wait, 20)
        await handle.terminate()
        await one.cancel()
        pausing = asyncio.create_task(deciding.pause())
        await asyncio.sleep(0.1)
        goes_on.set()
        await pausing
        await true(lambda: _failed_to_tell(one))
        await deciding.__aenter__()
        await true(lambda: _is(one, CANCELED))
        assert "resume" in await (await one.describe()).memo()


async def _failed_to_tell(handle: WorkflowHandle[Any, Any]) -> bool:
    events = [event async for event in handle.fetch_history_events()]
    return any(event.HasField("signal_external_workflow_execution_failed_event_attributes") for event in events)
