"""One delivery: a real Temporal server, the real workflow, and activities that answer as a script says.

What decides is the workflow. `a_delivery(verdicts=[RED, GREEN])` runs a worker, submits a request, gives the delivery.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from perdure.client import Delivery, Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import CheckPlanInput, CheckPlanResult, PendingDecision
from perdure.models.delivery.publishing import (
    AccessCheckInput,
    AccessCheckResult,
    ArtifactLinks,
    ArtifactLinksInput,
    CommentInput,
    CommentResult,
    PushInput,
    PushResult,
    ShipInput,
    ShipResult,
)
from perdure.models.delivery.result import DeliveryResult, PullRequest, TestsStatus
from perdure.models.delivery.steps import AGENTIC
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import (
    CloseInput,
    CloseResult,
    CommitInput,
    CommitResult,
    InspectInput,
    InspectResult,
    PreparedWorkspace,
    PrepareInput,
    TestInput,
    TestVerdict,
)
from perdure.models.errors import StepError
from perdure.models.ids import TITLE
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.plugin import perdure_plugin
from tests.states import prepared_workspace, with_fields
from tests.waiting import patient, until
from workflows import WORKFLOWS

RED, GREEN = TestsStatus.RED, TestsStatus.GREEN

TURN_USD = 0.1

PLANNED: dict[str, Any] = {"repository": "/r", "request": "Add sub", "phases": ["plan"]}
BUILT: dict[str, Any] = {**PLANNED, "phases": ["build"]}
WHOLE: dict[str, Any] = {**PLANNED, "phases": ["plan", "build", "test", "review", "ship"]}

Turn = Callable[[TurnInput], Awaitable[TurnResult]]


class Script:
    """How the activities of deliveries answer, and what they were asked.

    phases      that `prepare` hands over; `settings` are further fields of what it hands over. By default people are
                asked: at limits, and at the `gates` that are named
    verdicts    of the tests, one run after the other; green when there are no more
    blockers    how many each review finds; none when there are no more
    turns_each  turns that a step takes; `price` in dollars and `tokens` of each
    turn        answers each turn instead
    troubles    by activity: what it fails with before it succeeds, one failure after the other
    commits, inspections, plan_checks   what `commit`, `inspect_change` and `check_plan` answer
    closes, spend, usage          whether `close` succeeds, and with what
    conflicts   by item of a backlog: what its commit meets
    seen, preparing, told, shipped, pushed, closed   what was asked of turns, `prepare`, `comment`, …
    """

    def __init__(self, *phases: Phase, **scripted: Any) -> None:
        """Take what is `scripted`: fields of this class, or settings."""
        self.phases: tuple[Phase, ...] = ()
        self.settings: dict[str, Any] = {}
        self.verdicts: list[TestsStatus] = []
        self.blockers: list[int] = []
        self.turns_each, self.tokens = 1, 0
        self.price: float | None = TURN_USD
        self.turn: Turn = self.plays
        self.paid = 0
        self.spend, self.usage = Spend(), Usage()
        self.closes = True
        self.commits: list[str] = []
        self.conflicts: dict[str, dict[str, str]] = {}
        self.inspections: list[InspectResult] = []
        self.plan_checks: dict[str, CheckPlanResult] = {}
        self.troubles: dict[str, list[ApplicationError | StepError]] = {}
        self.seen: list[TurnInput] = []
        self.preparing: list[PrepareInput] = []
        self.told: list[CommentInput] = []
        self.shipped: list[ShipInput] = []
        self.pushed: list[str] = []
        self.closed: list[tuple[str, ...]] = []
        self.asks(*phases, **scripted)

    async def plays(self, work: TurnInput) -> TurnResult:
        """Take a turn that reads what was said; the last of its step ends it."""
        self.paid += 1
        usd = None if self.price is None else round(self.paid * self.price, 6)
        return TurnResult(
            checkpoint=f"{len(self.seen):0>8}",
            summary=f"turn {work.turn}",
            usage=Usage(cost_usd=self.price, output_tokens=self.tokens),
            spend=Spend(usd=usd, tokens=self.paid * self.tokens),
            outcome=self.outcome(work) if work.turn >= self.turns_each else None,
            notes=tuple(said.id for said in work.messages),
        )

    async def builds(self, work: TurnInput) -> TurnResult:
        """Take the only turn of a step; it costs nothing."""
        outcome = Outcome(ending=Ending.DONE, summary="built")
        return TurnResult(checkpoint="c1", summary="turn 1", usage=Usage(), spend=Spend(usd=0.0), outcome=outcome)

    async def endless(self, work: TurnInput) -> TurnResult:
        """Take a turn of a step that never says it is finished; it costs $0.10."""
        spend = Spend(usd=round(0.1 * len(self.seen), 6))
        return TurnResult(checkpoint=f"c{work.turn}", summary="goes on", usage=Usage(cost_usd=0.1), spend=spend)

    def verdict(self, attempt: int) -> TestVerdict:
        status = self.verdicts.pop(0) if self.verdicts else GREEN
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

    def asks(self, *phases: Phase, **scripted: Any) -> None:
        """Have these phases (default: all) prepared, with a person who is asked."""
        self.phases, self.settings = phases or ALL_PHASES, {"asks": True, "allow_untested": True}
        self.change(**scripted)

    def change(self, **scripted: Any) -> None:
        """Change fields of this class, and settings. Raises TypeError for what is neither."""
        for name, value in scripted.items():
            if name in vars(self):
                setattr(self, name, value)
            else:
                prepared_workspace(**{name: value})
                self.settings[name] = value

    def fail_if_due(self, name: str) -> None:
        """Raise the next failure of this activity, where there is one."""
        if waiting := self.troubles.get(name):
            raise waiting.pop(0)

    def activities(self) -> list[Callable[..., Any]]:
        def turn(name: str) -> Callable[[TurnInput], Awaitable[TurnResult]]:
            @activity.defn(name=name)
            async def take(work: TurnInput) -> TurnResult:
                self.seen.append(work)
                return await self.turn(work)

            return take

        @activity.defn(name=Step.PREPARE)
        async def prepare(work: PrepareInput) -> PreparedWorkspace:
            self.preparing.append(work)
            self.fail_if_due(Step.PREPARE)
            if "fails" in self.settings:
                raise ApplicationError("no", type=self.settings["fails"], non_retryable=True)
            if work.previous is not None:
                return with_fields(work.previous, **self.settings)
            given = {"queue": TASK_QUEUE, "checkpoint": "c0", "phases": self.phases, "proxied": True}
            return prepared_workspace(**given | self.settings)

        @activity.defn(name="close")
        async def close(work: CloseInput) -> CloseResult:
            self.closed.append(work.tasks)
            if not self.closes:
                raise ApplicationError("the disk is gone", non_retryable=True)
            return CloseResult(spend=self.spend, usage=self.usage, notifies=bool(self.settings.get("notifies")))

        @activity.defn(name=Step.COMMIT)
        async def commit(work: CommitInput) -> CommitResult:
            made = self.commits.pop(0) if self.commits else "h1"
            met = next((told for item, told in self.conflicts.items() if f"-{item}-" in work.delivery), {})
            return CommitResult(commit=made, tree="t1", files=1, added=1, summary="+1 in 1 file", conflicts=met)

        @activity.defn
        async def check_access(work: AccessCheckInput) -> AccessCheckResult:
            self.fail_if_due("check_access")
            return AccessCheckResult(notes=("the repository is called me/new now",))

        @activity.defn
        async def comment(work: CommentInput) -> CommentResult:
            self.told.append(work)
            self.fail_if_due("comment")
            return CommentResult(url="http://forge/1#c1")

        @activity.defn
        async def publish_artifacts(work: ArtifactLinksInput) -> ArtifactLinks:
            self.fail_if_due("publish_artifacts")
            return ArtifactLinks(links={"plan.md": "http://forge/plan"})

        @activity.defn(name=Step.OPEN_PULL_REQUEST)
        async def open_pull_request(work: ShipInput) -> ShipResult:
            self.shipped.append(work)
            self.fail_if_due(Step.OPEN_PULL_REQUEST)
            pull = PullRequest(number=7, url="http://forge/me/calc/pull/7", title=work.title, draft=work.draft)
            return ShipResult(pull_request=pull, summary="pull request #7")

        @activity.defn(name=Step.RUN_TESTS)
        async def run_tests(work: TestInput) -> TestVerdict:
            return self.verdict(work.attempt)

        @activity.defn
        async def inspect_change(work: InspectInput) -> InspectResult:
            return self.inspections.pop(0) if self.inspections else InspectResult()

        @activity.defn
        async def check_plan(work: CheckPlanInput) -> CheckPlanResult:
            return self.plan_checks.get(work.plan, CheckPlanResult())

        @activity.defn
        async def push_branch(work: PushInput) -> PushResult:
            self.pushed.append(work.head)
            return PushResult(summary=f"pushed {work.head}")

        checks = [run_tests, inspect_change, check_plan]
        at_the_forge = [check_access, comment, publish_artifacts, open_pull_request, push_branch]
        steps = [step for step in AGENTIC if step not in (Step.DECOMPOSE, Step.FIX_LANDING)]  # those are of backlogs
        return [prepare, *map(turn, steps), commit, close, *checks, *at_the_forge]


class RunningDelivery(Delivery):
    """A delivery that was submitted, its script, and what a test asks it."""

    def __init__(self, client: Client, id: str, script: Script) -> None:
        super().__init__(client, id)
        self.script, self.seen = script, script.seen

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """Its newest run."""
        return self.client.get_workflow_handle(self.id)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Run a worker meanwhile."""
        async with playing(self.client, self.script):
            yield

    async def pending(self, *, behind: PendingDecision | None = None) -> PendingDecision:
        """Wait until it asks a person, and return that; where `behind` is one decision, the next."""
        return await waiting(self.handle, behind=behind.target if behind else "")

    async def update(self, name: str, **message: Any) -> str:
        """Send a decision as it goes over the wire, and return what it answers."""
        return str(await self.handle.execute_update(name, message))

    async def signal(self, name: str, **message: Any) -> None:
        await self.handle.signal(name, message)

    async def at(self, what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Return its progress as soon as `what` is true of it."""
        return await at(self.handle, what)

    async def ended(self) -> DeliveryResult:
        """Wait until it ends."""
        async with asyncio.timeout(patient(40)):
            return await self.result()


class ADelivery:
    """`async with a_delivery(…) as delivery:` a worker, and a delivery that it works on."""

    def __init__(self, client: Client, id: str) -> None:
        self.client, self.id = client, id

    @asynccontextmanager
    async def __call__(
        self,
        *phases: Phase,
        script: Script | None = None,
        request: dict[str, Any] | None = None,
        worker: bool = True,
        **scripted: Any,
    ) -> AsyncIterator[RunningDelivery]:
        """Submit a request for these phases (default: all), played by a script made of `scripted`.

        script   Takes its place; then `scripted` changes it.
        request  Further fields of what is submitted.
        worker   Without, nothing works on it but in `delivery.working()`.
        """
        if script is None:
            script = Script(*phases, **scripted)
        else:
            script.phases = phases or script.phases
            script.change(**scripted)
        sent = {"repository": "/r", "request": "Add sub", "phases": [*script.phases], **(request or {})}
        delivery = RunningDelivery(self.client, self.id, script)
        async with delivery.working() if worker else nullcontext():
            await Perdure(self.client).submit(sent, id=self.id)
            yield delivery


@pytest.fixture
def a_delivery(client: Client, fresh: str) -> ADelivery:
    return ADelivery(client, fresh)


@pytest.fixture
def script() -> Script:
    """Nobody is asked, and no step ever says it is finished."""
    script = Script()
    script.settings, script.turn = {}, script.endless
    return script


@pytest.fixture
async def client(server: str) -> AsyncIterator[Client]:
    """Workflows that still run after the test are ended: the next one's worker would be handed their activities."""
    client = await Client.connect(server, plugins=[perdure_plugin()])
    yield client
    async for left in client.list_workflows("ExecutionStatus = 'Running'"):
        with suppress(RPCError):  # it has ended meanwhile
            await client.get_workflow_handle(left.id).terminate()


@pytest.fixture
def perdure(client: Client) -> Perdure:
    return Perdure(client)


@pytest.fixture
def fresh() -> str:
    return f"d-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def playing(client: Client, script: Script, within: float = 60) -> AsyncIterator[None]:
    async with asyncio.timeout(patient(within)):
        doing = script.activities()
        async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=doing):
            yield


async def waiting(handle: WorkflowHandle[Any, Any], *, behind: str = "") -> PendingDecision:
    """What it waits for; where `behind` names one decision, the next."""
    progress = await at(handle, lambda progress: progress["asked"] and progress["asked"]["of"] != behind)
    return PendingDecision.model_validate(progress["asked"])


async def at(handle: WorkflowHandle[Any, Any], what: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    """The progress of a delivery or backlog as soon as `what` is true of it."""

    async def seen() -> dict[str, Any] | None:
        progress: dict[str, Any] = await handle.query("progress")
        return progress if what(progress) else None

    return dict(await until(seen, 40, every=0.05))


async def title_at_start(client: Client, id: str) -> str:
    """The title that a workflow was started with; empty without one."""
    first = await anext(aiter(client.get_workflow_handle(id).fetch_history_events()))
    fields = first.workflow_execution_started_event_attributes.search_attributes.indexed_fields
    return str(json.loads(fields[TITLE].data)) if TITLE in fields else ""


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
