"""The script, and the real activities that tell people, on a host with addresses to tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from activities import OriginInterceptor
from activities.notify import NoticeActivities
from perdure.adapters.system.home import Home
from perdure.adapters.worker.attempt import AttemptInterceptor
from perdure.adapters.worker.host import Host
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from tests.deliveries import Script
from tests.receiver import SECRET
from tests.waiting import patient
from workflows import WORKFLOWS

PLANNED = {"repository": "/srv/calc", "request": "Add sub", "phases": ["plan"]}
TOLD = {"asks": True, "notifies": True}


async def plans(work: TurnInput) -> TurnResult:
    data: dict[str, Any] = {"kind": "feature"} if work.step == "classify" else {"title": "Add sub"}
    artifact = "" if work.step == "classify" else f"{work.attempt:0>64}"
    outcome = Outcome(ending=Ending.DONE, summary="done", data=data, artifact=artifact)
    return TurnResult(checkpoint="c1", summary="turn 1", usage=Usage(), spend=Spend(usd=0.0), outcome=outcome)


@asynccontextmanager
async def telling(
    client: Client, script: Script, home: Path, *urls: str, cache: int = 1000, of_anybody: bool = False
) -> AsyncIterator[Host]:
    """The script, and the real activities that tell, on a host with these addresses; notices `of_anybody`, too."""
    env = {"PERDURE_WEBHOOK_SECRET": SECRET, "PERDURE_WEBHOOK_URL": " ".join(urls)}
    host = Host.from_environment(Home(home), env)
    notices, origin = NoticeActivities(host), OriginInterceptor(client, host.accepted_runs)
    async with (
        asyncio.timeout(patient(60)),
        Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=WORKFLOWS,
            activities=[*script.activities(), notices.has_subscribers, notices.notice_addresses, notices.notify],
            interceptors=[AttemptInterceptor(host), *([] if of_anybody else [origin])],
            max_cached_workflows=cache,
        ),
    ):
        yield host
    await host.close()


@pytest.fixture
def gated(script: Script) -> Script:
    script.phases, script.settings, script.turn = (Phase.PLAN,), {**TOLD, "gates": ("plan",)}, plans
    return script
