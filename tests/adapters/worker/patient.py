"""A workflow with one activity that may be silent, or wait to be done again, for longer than any test."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

SILENCE = timedelta(minutes=10)


@workflow.defn
class Patient:
    """The activity is `implement`, on the queue that it is given."""

    @workflow.run
    async def run(self, queue: str) -> str:
        done: str = await workflow.execute_activity(
            "implement",
            task_queue=queue,
            heartbeat_timeout=SILENCE,
            schedule_to_close_timeout=2 * SILENCE,
            retry_policy=RetryPolicy(initial_interval=SILENCE),
        )
        return done
