"""Starting a delivery, so that the server knows of it once whatever happens to the answer."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import Priority, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.view import look_up
from perdure.models.backlog_state import BacklogState
from perdure.models.errors import InvalidRequest
from perdure.models.fairness import shared_with
from perdure.models.issue import IssueName
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.webui.markdown import cell

WORKFLOW = "Delivery"
ATTACH = "attach"

_CAPTION_CHARS, _CAPTION_BYTES, _DETAIL_CHARS = 100, 360, 4000
"""A server refuses to start what has a summary above 400 bytes or details above 20,000, counted as JSON with its
encoding's name (`limit.userMetadataSummarySize`); the embedded one takes any. Characters have up to four bytes."""


async def start(
    client: Client,
    id: str,
    raw: dict[str, Any],
    reuse: WorkflowIDReusePolicy,
    workflow: str = WORKFLOW,
    state: BacklogState | None = None,
) -> None:
    """Start it and leave. WorkflowAlreadyStartedError when it runs, or has run and `reuse` forbids another run.

    state   with which a backlog goes on: its items are there, no longer in the request
    """
    items = {} if state is None else {"items": [{"id": item} for item in state.items]}
    args = [raw] if state is None else [raw, state.carried()]
    await client.start_workflow(workflow, args=args, **_options(id, raw, reuse, workflow, raw | items))


def _options(
    id: str, raw: dict[str, Any], reuse: WorkflowIDReusePolicy, workflow: str, shown: dict[str, Any]
) -> dict[str, Any]:
    caption, details = caption_and_details(shown)
    return {
        "id": id,
        "task_queue": TASK_QUEUE,
        "task_timeout": WORKFLOW_TASK,
        "id_reuse_policy": reuse,
        "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
        "static_summary": caption,
        "static_details": details,
        "priority": Priority(fairness_key=shared_with(id, raw, backlog=workflow != WORKFLOW)),
    }


async def start_accepted(
    client: Client, id: str, raw: dict[str, Any], within: timedelta, workflow: str = WORKFLOW
) -> bool:
    """Start it, and wait until a worker has looked at the request: update-with-start, one call for both.

    False when none has within that time: it is started all the same, once, and the next worker begins with it. Raises
    WorkflowAlreadyStartedError like `start`, and InvalidRequest when the worker refuses what we took for valid.
    """
    reuse = WorkflowIDReusePolicy.REJECT_DUPLICATE
    begin: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        workflow, raw, **_options(id, raw, reuse, workflow, raw)
    )
    try:
        # The limit of one try is not one of all: the client tries again what a server has not answered.
        async with asyncio.timeout(within.total_seconds()) as patience:
            # The update's id is new: one the delivery has seen would be answered by the server, whatever became of it.
            await client.execute_update_with_start_workflow(
                ATTACH, {}, id=str(uuid.uuid4()), start_workflow_operation=begin, rpc_timeout=within
            )
        return True
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == "InvalidRequest":
            raise InvalidRequest(error.cause.message.removeprefix("InvalidRequest: "), where=id) from None
        return False  # a worker of before this update: it runs
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
        if isinstance(error.__cause__, asyncio.CancelledError) and not patience.expired():
            raise error.__cause__ from None
        # It nearly always is there without an answer: an update waits only in a started workflow.
        if await look_up(client, id) is None:
            await start(client, id, raw, reuse, workflow)
        return False
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        await start(client, id, raw, reuse, workflow)
        return False
    finally:
        await _heard(begin)


async def _heard(begin: WithStartWorkflowOperation[Any, Any]) -> None:
    """The SDK keeps a failure a second time, a cancellation too, and complains when nobody asks for it."""
    with suppress(Exception, asyncio.CancelledError):
        async with asyncio.timeout(0):
            await begin.workflow_handle()


def caption_and_details(raw: dict[str, Any]) -> tuple[str, str]:
    """One line and some Markdown about a request as it was sent, for the Web UI; also of one that is not valid.

    Whoever's words they are, they stay words: the Web UI would render their markup, links and pictures included.
    """
    words, issue = str(raw.get("request") or items_named(raw)), raw.get("issue")
    try:
        number = f"#{IssueName.parse(issue).number}" if issue is not None else ""
    except ValueError:
        number = ""
    parts = [f"**Issue** {cell(number, 20)}"] if number else []
    lines = [cell(line, _DETAIL_CHARS) for line in words[:_DETAIL_CHARS].splitlines()]
    parts += ["\n".join(["**Request**", "", *(f"{line}  " for line in lines)])] if words.strip() else []
    caption, limit = " ".join([*([number] if number else []), *words.split()]), _CAPTION_CHARS
    while len(json.dumps(cell(caption, limit), ensure_ascii=False).encode()) > _CAPTION_BYTES:
        limit -= 5
    return cell(caption, limit), "\n\n".join(parts)


def items_named(raw: dict[str, Any]) -> str:
    """A backlog's items: `8 items: api, page, …`, and the issues that it looks for; empty for anything else."""
    items, issues = raw.get("items"), [f"issues {raw['issues']}"] if isinstance(raw.get("issues"), str) else []
    names = [str(item.get("id") or item.get("issue")) for item in items or () if isinstance(item, dict)]
    listed = [f"{len(names)} item{'s' * (len(names) != 1)}: {', '.join(names)}"] if names else []
    return " · ".join([*listed, *issues])
