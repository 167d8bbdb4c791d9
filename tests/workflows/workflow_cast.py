"""A real server, and a delivery's activities that answer as a test wants: what decides is the workflow."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.ledger import Spend, Usage
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.models.policy import TASK_QUEUE
from perdure.models.turn import TurnInput, TurnResult
from perdure.models.work import Closed, CloseInput, Prepared, PrepareInput
from perdure.plugin import perdure_plugin
from workflows import WORKFLOWS


class Cast:
    """The other side of the workflow. `turn` answers every agentic turn, `prepared` is what `prepare` hands over."""

    def __init__(self) -> None:
        self.phases: tuple[Phase, ...] = ALL_PHASES
        self.settings: dict[str, Any] = {}
        self.spend = Spend()
        self.closes = True
        self.seen: list[TurnInput] = []
        self.turn: Callable[[TurnInput], Awaitable[TurnResult]] = self.endless

    async def endless(self, work: TurnInput) -> TurnResult:
        """A step that never says it is finished; each turn costs $0.10."""
        spend = Spend(usd=round(0.1 * len(self.seen), 6))
        return TurnResult(checkpoint=f"c{work.turn}", summary="goes on", usage=Usage(cost_usd=0.1), spend=spend)

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn(name=Step.PREPARE)
        async def prepare(work: PrepareInput) -> Prepared:
            if "fails" in self.settings:
                raise ApplicationError("no", type=self.settings["fails"], non_retryable=True)
            if work.previous is not None:
                return work.previous.model_copy(update=self.settings)
            given: dict[str, Any] = {
                "queue": TASK_QUEUE, "base": "main", "base_sha": "b", "head": "b", "branch": "perdure/d",
                "checkpoint": "c0", "policy": "p", "phases": self.phases, **self.settings,
            }  # fmt: skip
            return Prepared(**given)

        @activity.defn(name=Step.IMPLEMENT)
        async def implement(work: TurnInput) -> TurnResult:
            self.seen.append(work)
            return await self.turn(work)

        @activity.defn(name="close")
        async def close(work: CloseInput) -> Closed:
            if not self.closes:
                raise ApplicationError("the disk is gone", non_retryable=True)
            return Closed(spend=self.spend)

        return [prepare, implement, close]


@pytest.fixture
def cast() -> Cast:
    return Cast()


@pytest.fixture
async def client(server: str) -> Client:
    return await Client.connect(server, plugins=[perdure_plugin()])


@pytest.fixture
def perdure(client: Client) -> Perdure:
    return Perdure(client)


@pytest.fixture
def fresh() -> str:
    return f"d-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def playing(client: Client, cast: Cast) -> AsyncIterator[None]:
    async with asyncio.timeout(60):
        async with Worker(client, task_queue=TASK_QUEUE, workflows=WORKFLOWS, activities=cast.activities()):
            yield
