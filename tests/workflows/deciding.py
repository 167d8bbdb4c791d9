"""A worker of workflows alone, which a test stops and begins again: what comes meanwhile comes in one workflow task."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Self

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.models.limits import TASK_QUEUE
from workflows import WORKFLOWS


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
