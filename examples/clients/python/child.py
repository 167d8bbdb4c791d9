"""A workflow of your own that has a delivery as its child, waits for it, and cancels it when it is cancelled itself.

python child.py ID '{"repository": "https://…", "request": "…"}'
"""

import asyncio
import json
import os
import sys

from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError
from temporalio.envconfig import ClientConfig
from temporalio.worker import Worker
from temporalio.workflow import ChildWorkflowCancellationType, ParentClosePolicy

QUEUE = "releases"


@workflow.defn
class Release:
    @workflow.run
    async def run(self, request: dict) -> str:
        """Return the pull request's URL. A delivery that ended without delivering fails this workflow, too."""
        result = await workflow.execute_child_workflow(
            "Delivery",
            request,
            id=f"{workflow.info().workflow_id}-delivery",  # the same for every attempt and replay
            task_queue="perdure",
            cancellation_type=ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,  # until it has tidied up
            parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,  # likewise where this one is terminated
        )
        return result["pull_request"]["url"]


async def main(id: str, request: str) -> int:
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
    client = await Client.connect(**{"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()})
    async with Worker(client, task_queue=QUEUE, workflows=[Release]):
        try:
            print(await client.execute_workflow(Release.run, json.loads(request), id=id, task_queue=QUEUE))
            return 0
        except WorkflowFailureError as error:
            print(error.cause, getattr(error.cause, "cause", None) or "", file=sys.stderr)
            return 1


if __name__ == "__main__":
    code = asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    sys.stdout.flush()
    os._exit(code)  # the SDK can crash in an ordinary exit: github.com/temporalio/sdk-python/issues/300
