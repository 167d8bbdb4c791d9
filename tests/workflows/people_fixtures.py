"""Activities for the whole process, and how a test sees what a delivery waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from workflow_fixtures import Cast

from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import CheckPlanInput, CheckPlanResult, PendingDecision
from perdure.models.delivery.publishing import PushInput, PushResult
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import InspectInput, InspectResult, TestInput, TestVerdict
from perdure.models.phases import Phase, Step
from tests.waiting import patient

PLANNED = {"repository": "/r", "request": "Add sub", "phases": ["plan"]}
BUILT = {"repository": "/r", "request": "Add sub", "phases": ["build"]}
WHOLE = {"repository": "/r", "request": "Add sub", "phases": ["plan", "build", "test", "review", "ship"]}

TURN_USD = 0.1


class Company(Cast):
    """Every step: red once and one blocker once, each mended by a fix; each turn costs $0.10 and reads what was said.

    `questions` are asked by the turn they name; `reads` says whether turns read words at all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.verdicts = [TestsStatus.RED, TestsStatus.GREEN]
        self.blockers = [1, 0]
        self.found: list[InspectResult] = []
        self.artifacts: dict[str, str] = {}
        self.plans: dict[str, CheckPlanResult] = {}
        self.pushed: list[str] = []
        self.turns_each = 1
        self.turn = self.plays
        self.paid = 0
        self.price: float | None = TURN_USD
        self.tokens = 0

    def asks(self, *phases: Phase, **settings: Any) -> None:
        """Limits and gates ask a person; nothing costs more than it does."""
        self.phases, self.settings = phases or tuple(Phase), {"asks": True, "allow_untested": True, **settings}

    async def plays(self, work: TurnInput) -> TurnResult:
        self.paid += 1
        usd = None if self.price is None else round(self.paid * self.price, 6)
        spend = Spend(usd=usd, tokens=self.paid * self.tokens)
        usage = Usage(cost_usd=self.price, output_tokens=self.tokens)
        outcome = self.outcome(work) if work.turn >= self.turns_each else None
        return TurnResult(
            checkpoint=f"{len(self.seen):0>8}",
            summary=f"turn {work.turn}",
            usage=usage,
            spend=spend,
            outcome=outcome,
            notes=tuple(said.id for said in work.messages),
        )

    def verdict(self, attempt: int) -> TestVerdict:
        status = self.verdicts.pop(0) if self.verdicts else TestsStatus.GREEN
        return TestVerdict(status=status, tree="t", report="r", fingerprint=str(attempt))

    def outcome(self, work: TurnInput) -> Outcome:
        data: dict[str, Any] = {}
        if work.step is Step.CLASSIFY:
            data = {"kind": "feature"}
        if work.step is Step.PLAN:
            data = {"title": "Add sub" + work.materials.get("words", "")}
        if work.step is Step.REVIEW:
            data = {"blocker": self.blockers.pop(0) if self.blockers else 0}
        artifact = f"{len(self.seen):0>64x}"[::-1] if work.step in (Step.PLAN, Step.REVIEW) else ""
        return Outcome(ending=Ending.DONE, summary="done", data=data, artifact=artifact)

    def activities(self) -> list[Callable[..., Any]]:
        def turn(name: str) -> Callable[[TurnInput], Awaitable[TurnResult]]:
            @activity.defn(name=name)
            async def take(work: TurnInput) -> TurnResult:
                self.seen.append(work)
                return await self.turn(work)

            return take

        @activity.defn(name=Step.RUN_TESTS)
        async def run_tests(work: TestInput) -> TestVerdict:
            return self.verdict(work.attempt)

        @activity.defn
        async def inspect_change(work: InspectInput) -> InspectResult:
            return self.found.pop(0) if self.found else InspectResult()

        @activity.defn
        async def check_plan(work: CheckPlanInput) -> CheckPlanResult:
            return self.plans.get(work.plan, CheckPlanResult())

        @activity.defn
        async def push_branch(work: PushInput) -> PushResult:
            self.pushed.append(work.head)
            return PushResult(summary=f"pushed {work.head}")

        others = [turn(step) for step in (Step.DOCUMENT, Step.FIX_TESTS, Step.REVIEW, Step.FIX_REVIEW)]
        return [*super().activities(), *others, run_tests, inspect_change, check_plan, push_branch]


async def waiting(handle: WorkflowHandle[Any, Any], *, behind: str = "") -> PendingDecision:
    """What it waits for; where `behind` names one decision, the next."""
    async with asyncio.timeout(patient(40)):
        while True:
            progress = await handle.query("progress")
            if progress["asked"] and progress["asked"]["of"] != behind:
                return PendingDecision.model_validate(progress["asked"])
            await asyncio.sleep(0.05)


async def at(handle: WorkflowHandle[Any, Any], what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The delivery's progress as soon as `what` is true of it."""
    async with asyncio.timeout(patient(40)):
        while not what(progress := await handle.query("progress")):
            await asyncio.sleep(0.05)
        return dict(progress)


async def reset(handle: WorkflowHandle[Any, Any], event: int, *, run_id: str = "") -> str:
    """Rewind to before the workflow task that `event` ended, with everything people sent applied again."""
    from temporalio.api.common.v1 import WorkflowExecution
    from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest

    client = handle._client
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=run_id),
            reason="rewound by a test",
            workflow_task_finish_event_id=event,
            request_id=f"{handle.id}-{event}",
        )
    )
    return str(answer.run_id)


async def task_timeout(client: Client, id: str, run_id: str | None = None) -> timedelta:
    """Seconds the server waits for one decision of this run (default: the newest), as history says."""
    async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events():
        return event.workflow_execution_started_event_attributes.workflow_task_timeout.ToTimedelta()
    raise AssertionError(f"{id} has no history")


async def events(handle: WorkflowHandle[Any, Any]) -> list[tuple[int, str, str]]:
    """Of the newest run: number, type, and the activity's, update's or signal's name."""
    found = []
    async for event in handle.fetch_history_events():
        kind = event.WhichOneof("attributes") or ""
        attributes = getattr(event, kind)
        name = ""
        if kind == "activity_task_scheduled_event_attributes":
            name = attributes.activity_type.name
        if kind == "workflow_execution_update_accepted_event_attributes":
            name = attributes.accepted_request.input.name
        if kind == "workflow_execution_update_admitted_event_attributes":
            name = attributes.request.input.name
        if kind == "workflow_execution_signaled_event_attributes":
            name = attributes.signal_name
        found.append((event.event_id, kind.removesuffix("_event_attributes"), name))
    return found
