"""Start a delivery or attach to it, approve its plan, print what came of it; or cancel it. Exit code 1: nothing did.

python deliver.py ID '{"repository": "https://…", "request": "…", "gates": ["plan"]}' | python deliver.py ID cancel
"""

import asyncio
import json
import os
import sys
from datetime import timedelta

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import ApplicationError


async def start_or_attach(client: Client, id: str, request: dict) -> None:
    """Start the delivery, or find the one of that id, running or ended, in one call."""
    operation = WithStartWorkflowOperation(
        "Delivery",
        request,
        id=id,
        task_queue="perdure",
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,  # it runs: attach
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,  # it has ended: not a second time
    )
    update = client.execute_update_with_start_workflow(
        "attach", request, id="attach", start_workflow_operation=operation, rpc_timeout=timedelta(seconds=10)
    )  # nobody answers without a worker: it is recorded, once
    there = await update  # a bad request is an InvalidRequest, which names the field
    print("attached", id, there["repository"], there["request"])  # of the one that was there, where one was: compare


async def follow_until_end(client: Client, id: str) -> None:
    """Print where it stands until it has ended; approve its plan, with a word for its next turn."""
    delivery, shown = client.get_workflow_handle(id), ""
    while (progress := await delivery.query("progress"))["status"] in ("running", "waiting"):
        if (asked := progress["asked"]) and asked["gate"] == "plan":
            await delivery.signal("say", {"id": "note-1", "text": "Mind the sign"})
            await delivery.execute_update("approve", {"of": asked["of"]})
            print("approved", asked["of"])
        if progress["phase"] != shown:
            shown = progress["phase"]
            print("phase", shown)
        await asyncio.sleep(0.3)


async def main(id: str, request: str) -> int:
    # TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, …
    client = await Client.connect(**{"target_host": "localhost:7233", **ClientConfig.load_client_connect_config()})
    try:
        if request == "cancel":
            await client.get_workflow_handle(id).cancel()
        else:
            await start_or_attach(client, id, json.loads(request))
            await follow_until_end(client, id)
        print(json.dumps(await client.get_workflow_handle(id).result()))
        return 0
    except (WorkflowFailureError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == "NotDelivered":
            print(json.dumps(error.cause.details[0]))  # the same object, with status and reason
        else:
            print(error.cause or error, file=sys.stderr)  # InvalidRequest, or cancelled
        return 1


if __name__ == "__main__":
    code = asyncio.run(main(*sys.argv[1:])) if len(sys.argv) == 3 else sys.exit(__doc__)
    sys.stdout.flush()
    os._exit(code)  # the SDK can crash in an ordinary exit: github.com/temporalio/sdk-python/issues/300
