"""A host that works: a prepared delivery on a real repository, a model that plays a screenplay over HTTP."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import ActivityEnvironment

from activities.prepare import PrepareActivity
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.transaction import take_turn
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.delivery.work import PreparedWorkspace, PrepareInput
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal
from tests.engine import HAPPY
from tests.homes import fresh_home
from tests.repositories import make_target

DELIVERY = "calc-sub"


@dataclasses.dataclass
class Bench:
    """Turns of one delivery, taken without a Temporal server."""

    host: Host
    prepared: PreparedWorkspace
    rehearsal: Rehearsal
    environ: dict[str, str]

    def work(self, turn: int, checkpoint: str, step: Step = Step.IMPLEMENT) -> TurnInput:
        prepared = self.prepared
        return TurnInput(
            delivery=DELIVERY, step=step, attempt=1, turn=turn, checkpoint=checkpoint, contract=prepared.contract
        )

    async def take(self, work: TurnInput, *, host: Host | None = None, run: str = "run-1") -> TurnResult:
        return await in_activity(take_turn, host or self.host, work, run=run)

    async def take_step(self, *, fresh: bool) -> list[TurnResult]:
        """Take all turns of the step; each by a worker that remembers nothing where `fresh`."""
        results: list[TurnResult] = []
        checkpoint = self.prepared.checkpoint
        while not results or results[-1].outcome is None:
            host = self.again() if fresh else self.host
            results.append(await self.take(self.work(len(results) + 1, checkpoint), host=host))
            checkpoint = results[-1].checkpoint
            assert len(results) < 10
        return results

    def again(self) -> Host:
        """Another worker of this host, which remembers nothing."""
        return Host.from_environment(self.host.home, dict(self.environ))


async def in_activity(do: Callable[..., Coroutine[Any, Any, Any]], *args: Any, run: str = "run-1") -> Any:
    env = ActivityEnvironment()
    env.info = dataclasses.replace(env.info, workflow_run_id=run)
    return await env.run(do, *args)


@asynccontextmanager
async def working(root: Path, screenplay: str, **more: Any) -> AsyncIterator[Bench]:
    """A bench whose model plays this; `more` are fields of its delivery's request."""
    origin = make_target(root / "calc.git")
    home = fresh_home(root / "home")
    async with Rehearsal(Screenplay.parse(screenplay)) as rehearsal:
        environ = {
            "ANTHROPIC_BASE_URL": rehearsal.url,
            "ANTHROPIC_API_KEY": "rehearsal",
            "OPENAI_BASE_URL": f"{rehearsal.url}/v1",
            "OPENAI_API_KEY": "rehearsal",
            "GOOGLE_GEMINI_BASE_URL": rehearsal.url,
            "GEMINI_API_KEY": "rehearsal",
            "PERDURE_PORTS_BACKEND": "25000-25029",
            "PERDURE_PORTS_FRONTEND": "25030-25059",
        }
        host = Host.from_environment(home, {**os.environ, **environ})
        request = DeliveryRequest(repository=str(origin), request="Add sub", **more)
        work = PrepareInput(delivery=DELIVERY, request=request)
        prepared = await in_activity(PrepareActivity(host).prepare, work)
        yield Bench(host, prepared, rehearsal, environ)
        await host.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with working(tmp_path, HAPPY.replace("&& sleep 0.5 ", "")) as made:
        yield made


def vault(bench: Bench) -> Vault:
    return Workspace.open(bench.host.home, DELIVERY).vault
