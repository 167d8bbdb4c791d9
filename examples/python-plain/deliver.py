"""Perdure for a Python program with nothing of ours: `pip install temporalio` is all it needs. Copy what you need.

python deliver.py submit ID '{"repository": …, "request": …}' | progress ID | approve ID ['{"of": …}'] | result ID
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from contextlib import suppress
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowFailureError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

NO_WORKER_S = 5


class Refused(Exception):
    """What Perdure refused, in its own words: a request (InvalidRequest, it names the field), a decision (NotCounted)."""


class NotDelivered(Exception):
    """A delivery that ended without delivering; the argument is its result."""


async def submit(client: Client, id: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Start a delivery, or attach to the one of that id, running or ended, in one call. Raises Refused.

    None: it is recorded, and no worker has looked at it yet; the next one begins with it.
    """
    start = WithStartWorkflowOperation(
        "Delivery",
        request,
        id=id,
        task_queue="perdure",
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,  # it runs: attach
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,  # it has ended: never a second time
    )
    # Under an id of its own every attaching call would be written into history; under this one the first is.
    update = client.execute_update_with_start_workflow("attach", request, id="attach", start_workflow_operation=start)
    try:
        there = await asyncio.wait_for(update, NO_WORKER_S)
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
        return None  # also when its type or task queue is misspelt: then no worker ever looks at it
    except (WorkflowUpdateFailedError, WorkflowAlreadyStartedError) as error:
        raise refusal(error) from None
    finally:
        with suppress(
            Exception, asyncio.CancelledError
        ):  # the SDK keeps a failure here as well, and logs it unless read
            async with asyncio.timeout(0):
                await start.workflow_handle()
    if there["repository"] != request["repository"]:
        raise Refused(f"InvalidRequest: {id} is taken by another repository, {there['repository']}")
    if "issue" not in request and there["request"] != " ".join(request["request"].split())[:200]:
        raise Refused(f"InvalidRequest: {id} is taken by another request there, {there['request']}")
    return there


async def decide(client: Client, id: str, name: str, said: dict[str, Any]) -> str:
    """approve, reject, answer, add_budget: what it waits for is in query `progress`, `asked`; `said` names it in `of`.

    The update's id makes it count once if this is called again. Raises Refused.
    """
    once = f"{name}-{said['of']}" if "of" in said else str(uuid.uuid4())
    try:
        return await client.get_workflow_handle(id).execute_update(name, said, id=once)
    except WorkflowUpdateFailedError as error:
        raise refusal(error) from None
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        raise Refused(f"{id} has ended, or there is none") from None


async def result(client: Client, id: str) -> dict[str, Any]:
    """Wait for the end. Raises NotDelivered with the result, or Refused for a bad request."""
    try:
        return await client.get_workflow_handle(id).result()
    except WorkflowFailureError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == "NotDelivered":
            raise NotDelivered(error.cause.details[0]) from None
        raise refusal(error) from None


def refusal(error: Exception) -> Exception:
    if isinstance(error, WorkflowAlreadyStartedError):
        return Refused("a delivery of this id has ended, before anybody attached: read its result")
    cause = getattr(error, "cause", None)
    return Refused(cause.message) if isinstance(cause, ApplicationError) else error


async def main(command: str, id: str, text: str = "{}") -> int:
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "127.0.0.1:7233"))
    try:
        match command:
            case "submit":
                shown: Any = await submit(client, id, json.loads(text))
            case "progress":
                shown = await client.get_workflow_handle(id).query("progress")
            case "approve":
                shown = await decide(client, id, "approve", json.loads(text))
            case "result":
                shown = await result(client, id)
            case _:
                sys.exit(__doc__)
    except Refused as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return 1
    except NotDelivered as error:
        print(json.dumps({"not_delivered": error.args[0]}), flush=True)
        return 1
    print(json.dumps(shown), flush=True)
    return 0


if __name__ == "__main__":
    code = asyncio.run(main(*sys.argv[1:])) if len(sys.argv) in (3, 4) else sys.exit(__doc__)
    os._exit(code)  # the Temporal SDK was seen to crash in an ordinary exit (sdk-python issue 300)
