"""A real server, and a delivery's activities that answer as a test wants: what decides is the workflow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.publishing import (
    AccessCheckInput,
    AccessCheckResult,
    ArtifactLinks,
    ArtifactLinksInput,
    CommentInput,
    CommentResult,
    ShipInput,
    ShipResult,
)
from perdure.models.delivery.result import PullRequest
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.delivery.work import (
    CloseInput,
    CloseResult,
    CommitInput,
    CommitResult,
    PreparedWorkspace,
    PrepareInput,
)
from perdure.models.errors import WorkCutOff
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.plugin import perdure_plugin
from tests.waiting import patient
from workflows import WORKFLOWS


class Cast:
    """The other side of the workflow. `turn` answers every agentic turn, `prepared` is what `prepare` hands over."""

    def __init__(self) -> None:
        self.phases: tuple[Phase, ...] = ALL_PHASES
        self.settings: dict[str, Any] = {}
        self.spend, self.usage = Spend(), Usage()
        self.closes = True
        self.closed: list[tuple[str, ...]] = []
        self.commits: list[str] = []
        self.meets: dict[str, dict[str, str]] = {}
        self.seen: list[TurnInput] = []
        self.turn: Callable[[TurnInput], Awaitable[TurnResult]] = self.endless
        self.told: list[CommentInput] = []
        self.shipped: list[ShipInput] = []
        self.troubles: dict[str, list[ApplicationError | WorkCutOff]] = {}
        self.preparing: list[PrepareInput] = []

    async def builds(self, work: TurnInput) -> TurnResult:
        """A step that is done in one turn."""
        outcome = Outcome(ending=Ending.DONE, summary="built")
        return TurnResult(checkpoint="c1", summary="turn 1", usage=Usage(), spend=Spend(usd=0.0), outcome=outcome)

    def trouble(self, name: str) -> None:
        """What this activity has to go through before it succeeds, one failure after the other."""
        if waiting := self.troubles.get(name):
            raise waiting.pop(0)

    async def endless(self, work: TurnInput) -> TurnResult:
        """A step that never says it is finished; each turn costs $0.10."""
        spend = Spend(usd=round(0.1 * len(self.seen), 6))
        return TurnResult(checkpoint=f"c{work.turn}", summary="goes on", usage=Usage(cost_usd=0.1), spend=spend)

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn(name=Step.PREPARE)
        async def prepare(work: PrepareInput) -> PreparedWorkspace:
            self.preparing.append(work)
            self.trouble(Step.PREPARE)
            if "fails" in self.settings:
                raise ApplicationError("no", type=self.settings["fails"], non_retryable=True)
            if work.previous is not None:
                return work.previous.model_copy(update=self.settings)
            given: dict[str, Any] = {
                "queue": TASK_QUEUE, "base": "main", "base_sha": "b", "head": "b", "branch": "perdure/d",
                "checkpoint": "c0", "policy": "p", "phases": self.phases, "proxied": True, **self.settings,
            }  # fmt: skip
            return PreparedWorkspace(**given)

        @activity.defn(name=Step.IMPLEMENT)
        async def implement(work: TurnInput) -> TurnResult:
            self.seen.append(work)
            return await self.turn(work)

        @activity.defn(name=Step.CLASSIFY)
        async def classify(work: TurnInput) -> TurnResult:
            return await implement(work)

        @activity.defn(name=Step.PLAN)
        async def plan(work: TurnInput) -> TurnResult:
            return await implement(work)

        @activity.defn(name="close")
        async def close(work: CloseInput) -> CloseResult:
            self.closed.append(work.tasks)
            if not self.closes:
                raise ApplicationError("the disk is gone", non_retryable=True)
            return CloseResult(spend=self.spend, usage=self.usage)

        @activity.defn(name=Step.COMMIT)
        async def commit(work: CommitInput) -> CommitResult:
            made = self.commits.pop(0) if self.commits else "h1"
            met = next((told for item, told in self.meets.items() if f"-{item}-" in work.delivery), {})
            return CommitResult(commit=made, tree="t1", files=1, added=1, summary="+1 in 1 file", conflicts=met)

        @activity.defn
        async def check_access(work: AccessCheckInput) -> AccessCheckResult:
            self.trouble("check_access")
            return AccessCheckResult(notes=("the repository is called me/new now",))

        @activity.defn
        async def comment(work: CommentInput) -> CommentResult:
            self.told.append(work)
            self.trouble("comment")
            return CommentResult(url="http://forge/1#c1")

        @activity.defn
        async def publish_artifacts(work: ArtifactLinksInput) -> ArtifactLinks:
            self.trouble("publish_artifacts")
            return ArtifactLinks(links={"plan.md": "http://forge/plan"})

        @activity.defn(name=Step.OPEN_PULL_REQUEST)
        async def open_pull_request(work: ShipInput) -> ShipResult:
            self.shipped.append(work)
            self.trouble(Step.OPEN_PULL_REQUEST)
            pull = PullRequest(number=7, url="http://forge/me/calc/pull/7", title=work.title, draft=work.draft)
            return ShipResult(pull_request=pull, summary="pull request #7")

        at_the_forge = [check_access, comment, publish_artifacts, open_pull_request]
        return [prepare, classify, plan, implement, commit, close, *at_the_forge]


@pytest.fixture
def cast() -> Cast:
    return Cast()


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
async def playing(client: Client, cast: Cast, within: float = 60) -> AsyncIterator[None]:
    async with asyncio.timeout(patient(within)):
        doing = cast.activities()
        async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=doing):
            yield
