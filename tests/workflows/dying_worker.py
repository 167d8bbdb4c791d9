"""Workflows alone, in a process that dies as backlog and deliveries speak: `dying_worker.py ADDRESS DIRECTORY POINT…`.

POINT   `before` or `after` and a signal, `before-item_ended`: SIGKILL when it is to be sent, or was; once each, which
        files in DIRECTORY remember
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.worker import (
    Interceptor,
    SignalExternalWorkflowInput,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from activities.signal_origin import SignalOriginActivity
from perdure.adapters.system.home import Home
from perdure.adapters.worker.origin_record import AcceptedRuns
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from workflows import WORKFLOWS

DIRECTORY, POINTS = Path(sys.argv[2]), sys.argv[3:]


def here(point: str) -> None:
    if point in POINTS and not (DIRECTORY / point).exists():
        (DIRECTORY / point).touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(Interceptor):
    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return Heard


class Heard(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(Said(outbound))


class Said(WorkflowOutboundInterceptor):
    async def signal_external_workflow(self, input: SignalExternalWorkflowInput) -> Any:
        here(f"before-{input.signal}")
        await super().signal_external_workflow(input)
        here(f"after-{input.signal}")


async def main() -> None:
    client = await Client.connect(sys.argv[1], plugins=[perdure_plugin()])
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=[SignalOriginActivity(AcceptedRuns(Home(DIRECTORY / "home"))).signal_origin],  # asked in its process
        no_remote_activities=True,
        workflow_runner=UnsandboxedWorkflowRunner(),
        interceptors=[Dying()],
        max_cached_workflows=0,  # or a server asks a dead worker for ten seconds
    )
    async with worker:
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
