"""A worker that follows stacks, in a process that dies: `following_worker.py ADDRESS FILE`.

FILE  the pull requests by item, as `Seen`; what is moved is written there, and the first time the process is killed
      before it could say so
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from perdure.models.backlog.following import PullRequestState, StackInput, StackState
from perdure.models.limits import TASK_QUEUE
from perdure.plugin import perdure_plugin
from workflows import WORKFLOWS, follow_up

FILE = Path(sys.argv[2])


@activity.defn
async def look_at_stack(work: StackInput) -> StackState:
    pulls = {item: PullRequestState.model_validate(seen) for item, seen in json.loads(FILE.read_text()).items()}
    moved = {pull.item: pull.to for pull in work.pulls if pull.to}
    pulls |= {item: pulls[item].model_copy(update={"into": to}) for item, to in moved.items()}
    fresh = FILE.with_suffix(".new")
    fresh.write_text(json.dumps({item: seen.model_dump() for item, seen in pulls.items()}))
    fresh.rename(FILE)
    died = FILE.with_suffix(".died")
    if moved and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return StackState(pull_requests={pull.item: pulls[pull.item] for pull in work.pulls})


async def main() -> None:
    client = await Client.connect(sys.argv[1], plugins=[perdure_plugin()])
    worker = Worker(
        client,
        task_queue=TASK_QUEUE,
        workflows=WORKFLOWS,
        activities=[look_at_stack],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=0,  # or a server asks a dead worker for ten seconds
    )
    with pytest.MonkeyPatch.context() as soon:
        soon.setattr(follow_up, "FOLLOW_PAUSE", timedelta(seconds=0.3))
        soon.setattr(follow_up, "HEARTBEAT_TIMEOUT", timedelta(seconds=2))  # nobody here reports the dead
        async with worker:
            print("follows", flush=True)
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
