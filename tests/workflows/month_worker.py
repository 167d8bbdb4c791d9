"""A worker in a process of its own, of whatever release PYTHONPATH names first: `month_worker.py ADDRESS [CACHED]`.

CACHED  how many workflows it keeps in memory; 0 for a server that would ask a dead worker for ever
"""

from __future__ import annotations

import asyncio
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from perdure.models.limits import TASK_QUEUE
from perdure.models.phases import Phase
from perdure.plugin import perdure_plugin
from tests.deliveries import Script
from workflows import WORKFLOWS, delivery


async def main(address: str, cached: int) -> None:
    script = Script(Phase.PLAN, Phase.BUILD, gates=("plan",))
    client = await Client.connect(address, plugins=[perdure_plugin()])
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=script.activities(),
        max_cached_workflows=cached,
    )
    async with worker:
        print(delivery.__file__, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 100))
