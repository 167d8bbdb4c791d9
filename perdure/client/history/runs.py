"""Reading the runs of a workflow from the server, without a worker: of a delivery, of a backlog, or the first event
alone; and what no worker has read yet. Used by the other modules of `perdure.client` alone."""

from __future__ import annotations

from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.fold import (
    BacklogHistory,
    DeliveryHistory,
    RunHistory,
    join_backlog_runs,
    join_delivery_runs,
)
from perdure.client.history.records import CancelRequested, RunStarted, SignalReceived, TaskCompleted, decode_event
from perdure.models.limits import BACKLOG_RUNS_READ, RUNS_READ


async def read_history(client: Client, id: str, newest: str | None = None) -> DeliveryHistory:
    """Read the newest run of a delivery, by default the current one, and the runs it goes on from, joined.

    Raises RPCError when there is no such delivery.
    """
    return join_delivery_runs(await read_runs(client, id, newest))


async def read_backlog_history(client: Client, id: str, newest: str | None = None) -> BacklogHistory:
    """Read the newest run of a backlog, by default the current one, and the runs it goes on from, joined.

    Raises RPCError when there is no such backlog.
    """
    return join_backlog_runs(await read_runs(client, id, newest, most=BACKLOG_RUNS_READ))


async def read_runs(client: Client, id: str, newest: str | None = None, *, most: int = RUNS_READ) -> list[RunHistory]:
    """Read the newest run of a workflow and the runs that it goes on from, oldest first.

    `newest` is the id of the newest run, by default the current one. Reads at most `most` runs, and stops at one that
    the server has deleted. Raises RPCError when there is no such workflow.
    """
    runs: list[RunHistory] = []
    run_id = newest
    while run_id != "" and len(runs) < most:
        try:
            runs.append(await read_run(client, id, run_id))
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        run_id = runs[-1].previous_run_id
    return runs[::-1]


async def read_run(client: Client, id: str, run_id: str | None) -> RunHistory:
    """Read one run alone. Raises RPCError when there is no such run."""
    history = await client.get_workflow_handle(id, run_id=run_id).fetch_history()
    run_history = RunHistory(run_id or "", events=history)
    for event in history.events:
        run_history.apply_record(await decode_event(event, client.data_converter))
    return run_history


async def read_request(client: Client, id: str, run_id: str | None = None) -> dict[str, Any]:
    """Read a workflow's request as it was sent, from the first event of a run, by default its newest; {} where that is
    no JSON object.

    Raises RPCError when there is no such workflow.
    """
    async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events(page_size=1):
        started = await decode_event(event, client.data_converter)
        request = started.arguments[0] if isinstance(started, RunStarted) and started.arguments else None
        return request if isinstance(request, dict) else {}
    return {}


async def unread_messages(client: Client, id: str, run_id: str | None) -> list[str]:
    """Return the names of signals and cancellations that no worker has read yet in a run, None for the newest, in the
    order they were sent.

    Such as `approve`, `say`, `hold`, `cancel`: of a decision that came as a signal, the update that it carries. Reads
    the whole history. Raises RPCError.
    """
    names: list[str] = []
    async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events():
        match await decode_event(event, client.data_converter):
            case TaskCompleted():
                names.clear()
            case SignalReceived(name="decide", message=message):
                names.append(str(message.get("update") or "decide").replace("_", "-"))
            case SignalReceived(name=name):
                names.append(name)
            case CancelRequested():
                names.append("cancel")
    return names
