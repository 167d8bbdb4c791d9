"""A delivery every night at three: a Temporal schedule, which begins none while the last one runs.

python schedule.py ID '{"repository": "https://…", "request": "…"}'

What it starts is called ID with the time: ID-2026-11-28T03:00:00Z.
"""

import asyncio
import json
import os
import sys

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleCalendarSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
)
from temporalio.envconfig import ClientConfig


async def main(id: str, request: str) -> None:
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
    client = await Client.connect(**{"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()})
    await client.create_schedule(
        id,
        Schedule(
            action=ScheduleActionStartWorkflow("Delivery", json.loads(request), id=id, task_queue="perdure"),
            spec=ScheduleSpec(
                calendars=[ScheduleCalendarSpec(hour=[ScheduleRange(3)])], time_zone_name="Europe/Berlin"
            ),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP),
        ),
    )
    print("scheduled", id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    sys.stdout.flush()
    os._exit(0)  # the SDK can crash in an ordinary exit: github.com/temporalio/sdk-python/issues/300
