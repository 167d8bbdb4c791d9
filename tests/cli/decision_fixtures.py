"""A person at the real command, a real server, and a delivery that plans, asks and waits as a test wants."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from perdure.client import Perdure
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import PendingDecision, Question, StoredText, StoreTextInput
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.turn import Ending, Outcome, TextPage, TurnInput, TurnResult, VaultReadInput
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from tests.cli.conftest import Cli, Ran
from tests.deliveries import Script
from tests.temporal_server import apart
from tests.waiting import patient
from workflows import WORKFLOWS

__all__ = ["PLAN", "Desk", "Scene", "desk", "on_a_terminal"]

PLAN = Plan(
    title="Add sub",
    problem="There is no sub.\nPeople want it.",
    solution="Write it.",
    relevant_files=["calc.py"],
    tasks=[Task(title="Write sub", details="Beside add.", files=["calc.py"])],
    validation=["sub(3, 2) is 1"],
)


class Scene(Script):
    """A delivery that plans; `artifacts` and `log` is what its host keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.phases, self.turn = (Phase.PLAN,), self.plans
        self.settings = {"asks": True, "gates": ("plan",), "budget_usd": 5.0}
        self.artifacts: dict[str, bytes] = {}
        self.question: Question | None = None
        self.replans = asyncio.Event()
        self.log, self.logs_read = "", 0

    def put(self, text: str) -> str:
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.artifacts[sha256] = text.encode()
        return sha256

    async def plans(self, work: TurnInput) -> TurnResult:
        if self.question is not None and work.step == "plan" and work.turn == 1:
            return TurnResult(checkpoint="c1" * 20, summary="turn 1", spend=Spend(usd=0.0), question=self.question)
        if "words" in work.materials:
            await self.replans.wait()
        data: dict[str, Any] = {"kind": "feature"} if work.step == "classify" else {"title": PLAN.title}
        made = PLAN.model_copy(update={"problem": f"{PLAN.problem}\n{work.materials.get('words', '')}"})
        artifact = "" if work.step == "classify" else self.put(made.model_dump_json())
        outcome = Outcome(ending=Ending.DONE, summary="done", data=data, artifact=artifact)
        notes = tuple(said.id for said in work.messages)
        return TurnResult(
            checkpoint="c2" * 20, summary="turn 2", usage=Usage(), spend=Spend(usd=0.25), outcome=outcome, notes=notes
        )

    def activities(self) -> list[Callable[..., Any]]:
        @activity.defn
        async def keep(work: StoreTextInput) -> StoredText:
            return StoredText(sha256=self.put(work.text))

        @activity.defn
        async def read(work: VaultReadInput) -> TextPage:
            if work.what == "diff":
                return TextPage(text="")
            if work.what == "logs":
                self.logs_read += 1
                return TextPage(text=self.log[work.offset :])
            return TextPage(text=base64.b64encode(self.artifacts[work.checkpoint]).decode())

        return [*super().activities(), keep, read]


class Desk:
    """Where a person sits: the real command, with nothing but a Temporal connection."""

    def __init__(self, cli: Cli, perdure: Perdure, client: Client) -> None:
        self.cli, self.perdure, self.client = cli, perdure, client
        self.scene = Scene()

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[None]:
        async with asyncio.timeout(patient(80)):
            async with Worker(
                self.client,
                task_queue=TASK_QUEUE,
                workflows=WORKFLOWS,
                activities=self.scene.activities(),
                max_heartbeat_throttle_interval=timedelta(seconds=0.1),  # cancellations come with them
            ):
                yield

    async def __call__(self, *args: str, code: int = 0, stdin: str = "") -> Ran:
        ran: Ran = await asyncio.to_thread(self.cli, *args, stdin=stdin)
        assert ran.code == code, (args, ran)
        return ran

    async def refused(self, *args: str) -> str:
        """What a command says that counts nothing: three lines at most."""
        told = (await self(*args, code=2)).err
        assert len(told.strip().splitlines()) <= 3, told
        return told

    async def submit(self, id: str, **more: Any) -> str:
        await self.perdure.submit({"repository": "/r", "request": "Add sub", "phases": ["plan"], **more}, id=id)
        return id

    async def asked(self, id: str, not_of: str = "") -> PendingDecision:
        found: PendingDecision = await self.until(lambda: self._asked(id, not_of))
        return found

    async def _asked(self, id: str, not_of: str) -> PendingDecision | None:
        asked = (await self.perdure.delivery(id).describe()).pending_decision
        return asked if asked is not None and asked.target != not_of else None

    async def until(self, what: Callable[[], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(patient(30)):
            while not (found := await what()):
                await asyncio.sleep(0.05)
        return found

    async def signals(self, id: str) -> list[tuple[str, Any]]:
        """What history holds of them: what outlives the server's memory."""
        events = [event async for event in self.client.get_workflow_handle(id).fetch_history_events()]
        found = [e.workflow_execution_signaled_event_attributes for e in events]
        return [(one.signal_name, json.loads(one.input.payloads[0].data)) for one in found if one.signal_name]

    async def result(self, id: str) -> Any:
        async with asyncio.timeout(patient(30)):
            return await self.perdure.delivery(id).result()


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    client = await apart()
    address = client.service_client.config.target_host
    cli = Cli(tmp_path / "home", tmp_path, {"TEMPORAL_ADDRESS": address, "TEMPORAL_NAMESPACE": client.namespace})
    return Desk(cli, Perdure(client), client)


async def on_a_terminal(cli: Cli, typed: str, *args: str, **env: str) -> str:
    """What a command writes to a terminal on which a person types."""
    ran: Ran = await asyncio.to_thread(cli.on_a_terminal, *args, typed=typed, TERM="xterm", NO_COLOR="1", **env)
    return ran.out
