"""A worker whose only activity waits for a file: to be killed in the middle of it. `napping.py HOME ADDRESS QUEUE`.

And a workflow whose activity may be silent, or wait to be done again, for longer than any test.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from perdure.adapters.system.home import Home
    from perdure.adapters.worker.attempt import AttemptInterceptor, update_heartbeat
    from perdure.adapters.worker.host import Host
    from perdure.models.config.host import HostConfig
    from perdure.models.delivery.work import CloseInput
    from perdure.plugin import perdure_plugin


@activity.defn(name="implement")
async def nap(work: CloseInput) -> str:
    update_heartbeat(doing="napping")
    print(work.delivery, activity.info().attempt, flush=True)
    while not (Path(sys.argv[1]) / work.delivery).exists():
        await asyncio.sleep(0.02)
    return f"woke in attempt {activity.info().attempt}"


@workflow.defn
class Nap:
    @workflow.run
    async def run(self, files: list[str]) -> list[str]:
        return list(await asyncio.gather(*map(self.wait_for, files)))

    async def wait_for(self, file: str) -> str:
        slept: str = await workflow.execute_activity(
            "implement",
            CloseInput(delivery=file),
            heartbeat_timeout=timedelta(minutes=5),
            schedule_to_close_timeout=timedelta(minutes=20),
            # A death is nobody's failure: with a pause like this one, only its report has it done again in time.
            retry_policy=RetryPolicy(initial_interval=timedelta(minutes=10)),
        )
        return slept


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


async def main(home: Home, address: str, queue: str) -> None:
    client = await Client.connect(address, plugins=[perdure_plugin()])
    host = Host(home, HostConfig(), None)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Nap],
        activities=[nap],
        interceptors=[AttemptInterceptor(host)],
        graceful_shutdown_timeout=timedelta(seconds=1),
    ):
        print("ready", host.inflight.worker, flush=True)
        await host.inflight.report_dead_workers(client)


if __name__ == "__main__":
    asyncio.run(main(Home(Path(sys.argv[1])), sys.argv[2], sys.argv[3]))
