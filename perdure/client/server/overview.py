"""All that runs in one namespace, for `perdure top` and the page, from lists and descriptions: no workflow is asked,
none is woken, none records it. What has ended lately follows.

One reading serves all who look: a list a second while somebody looks, and a few descriptions in rotation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from perdure.client.server.slots import explain_queue_waits
from perdure.client.server.titles import TitleCache
from perdure.client.server.view import (
    RunDescription,
    describe_run,
    find_workflow,
    list_entry_of,
    pending_decision_of,
    read_ending,
)
from perdure.models.delivery.decisions import PendingDecision
from perdure.text import shorten

LOOK_S = 1.0
"""Greatest age of rows before they are read again: a list of 200 takes a server some ten milliseconds."""

DESCRIBED_A_LOOK = 10
"""Descriptions in each look, of those first that were described longest ago: a millisecond of a processor each."""

ROTATION = 10
"""Looks within which everything that runs is described, however much it is."""

RECENT_S = 10.0
"""Greatest age of the rows that a caller gets who does not wait for the next look."""

ENDED_S = 10.0
"""Pause between two looks at what has ended, unless something has just gone from the list of what runs."""

ENDED_SHOWN = 20
RUNNING_MOST = 1000
"""Running deliveries and backlogs of one look, those that began last."""

SILENT_S = 10.0
"""A worker that works says so every second or so: after this long it is silent, after 30 s another takes its work."""

ANSWER_S = 5.0
"""Limit for one look; by itself a client asks a server that is gone for half a minute. One that is back answers the
next look."""


@dataclass(frozen=True)
class OverviewRow:
    """A delivery or backlog.

    since         when it began to wait, None where it does not, or nobody knows
    held          what it waits for where nobody is asked anything: held by whom, or the host that does not answer
    change        `+120 −14, 3 files · tests 455/455`; empty while there is no commit
    activity, turn, doing, worker, attempt  what is in flight, as last heard; worker empty: none has taken it
    silent_since  when its worker was last heard, where that is too long ago
    parent        the backlog it belongs to, or the workflow that started it
    title         as in RunDescription; empty until it was read
    reason        why it ended without what was asked for; empty until it was read
    """

    id: str
    kind: str
    repository: str
    phase: str
    status: str
    pending_decision: PendingDecision | None
    since: datetime | None
    started: datetime
    closed: datetime | None
    cost_usd: float | None
    pull_request: str = ""
    parent: str = ""
    activity: str = ""
    turn: int = 0
    doing: str = ""
    worker: str = ""
    attempt: int = 0
    silent_since: datetime | None = None
    held: str = ""
    change: str = ""
    title: str = ""
    reason: str = ""

    @property
    def failed(self) -> bool:
        """True where it has ended without what was asked for, and was not cancelled."""
        return self.closed is not None and self.status in ("not_delivered", "failed", "timed_out", "terminated")

    @property
    def waits(self) -> bool:
        """True for a running delivery that waits for a decision, or whose status is `waiting`."""
        return (
            self.closed is None
            and self.kind == "delivery"
            and (self.pending_decision is not None or self.status == "waiting")
        )


@dataclass
class Overview:
    """The rows of all that runs, read again when somebody asks for them.

    `trouble` says why the last look failed, empty where it did not; the rows are then those of the look before.
    `is_cut`: more may run than the RUNNING_MOST of these rows.
    """

    client: Client
    trouble: str = ""
    is_cut: bool = False
    _rows: tuple[OverviewRow, ...] = ()
    _ended: tuple[OverviewRow, ...] = ()
    _last_look: float = float("-inf")
    _last_ended_look: float = float("-inf")
    _descriptions: dict[str, tuple[float, str, RunDescription, datetime]] = field(default_factory=dict)
    _reasons: dict[str, str] = field(default_factory=dict)
    _title_cache: TitleCache = field(init=False)
    _look_task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._title_cache = TitleCache(self.client)

    async def rows(self, fresh_s: float = LOOK_S, patience_s: float | None = None) -> Sequence[OverviewRow]:
        """Return the rows, read again when older than `fresh_s`: what waits for a person, what runs, what has ended.

        Those that wait for a person come first, the longest first; then what runs, by its start; then the newest of
        what has ended. With `patience_s` a caller waits no longer than that for the reading, and gets the rows of the
        one before when that was less than RECENT_S ago; the reading goes on all the same. When it fails, the old rows
        are returned and `trouble` says why.
        """
        age = time.monotonic() - self._last_look
        if age < fresh_s:
            return self._rows
        if self._look_task is None or self._look_task.done():
            self._look_task = asyncio.create_task(self._refresh())
        await asyncio.wait([self._look_task], timeout=patience_s if age < RECENT_S else None)
        if self._look_task.done():
            self._look_task.result()
        return self._rows

    async def _refresh(self) -> None:
        """Read all rows within ANSWER_S; on a failure keep the old ones and say why in `trouble`."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._read_rows()
            self.trouble = ""
        except RPCError as error:
            self.trouble = shorten(error.message, 200) or error.status.name
        except TimeoutError:
            self.trouble = f"nothing within {ANSWER_S:.0f} s"
        self._last_look = time.monotonic()

    async def _read_rows(self) -> None:
        """List what runs and, when due, what has ended; describe some of the running deliveries that wait for nobody;
        set the rows, what waits first. Raises RPCError.
        """
        query = "WorkflowType IN ('Delivery', 'Backlog') AND ExecutionStatus = 'Running'"
        running = {row.id: (row, run_id) for row, run_id in await self._list_rows(query, RUNNING_MOST)}
        self.is_cut = len(running) >= RUNNING_MOST
        ended_ids = {row.id for row in self._rows if row.closed is None} - running.keys()
        if ended_ids or time.monotonic() - self._last_ended_look >= ENDED_S:
            query = query.replace("= 'Running'", "!= 'Running'")
            newest = {row.id: (row, run_id) for row, run_id in reversed(await self._list_rows(query, ENDED_SHOWN))}
            self._ended, self._last_ended_look = (await self._add_reasons(newest.values()))[::-1], time.monotonic()
        await self._describe_oldest(
            [(row.id, run_id) for row, run_id in running.values() if row.kind == "delivery" and not row.waits]
        )
        shown = [*(row for row, _ in running.values()), *self._ended]
        untitled = [row for row in shown if not row.title]
        titles = await self._title_cache.read_titles(row.id for row in sorted(untitled, key=lambda row: not row.waits))
        descriptions = {id: (seen, at) for id, (_, _, seen, at) in self._descriptions.items()}
        rows = [
            add_work_in_flight(row, *descriptions[row.id]) if row.id in descriptions else row
            for row in (replace(row, title=titles.get(row.id, row.title)) for row, _ in running.values())
        ]
        rows.sort(key=lambda row: (not row.waits, (row.waits and row.since) or row.started))
        ended = [replace(row, title=titles.get(row.id, row.title)) for row in self._ended]
        self._rows = (*rows, *(row for row in ended if row.id not in running))

    async def _add_reasons(self, listed: Collection[tuple[OverviewRow, str]]) -> tuple[OverviewRow, ...]:
        """Return ended rows with their reasons, each read once from its run's result. `listed`: rows with run ids."""
        failed = {run_id: row.id for row, run_id in listed if row.failed and row.kind == "delivery"}
        missing = [run_id for run_id in failed if run_id not in self._reasons]
        reasons = await asyncio.gather(*(read_ending(self.client, failed[run_id], run_id) for run_id in missing))
        known = self._reasons | dict(zip(missing, reasons, strict=True))
        self._reasons = {run_id: known[run_id] for run_id in failed}
        return tuple(replace(row, reason=self._reasons.get(run_id, "")) for row, run_id in listed)

    async def _list_rows(self, query: str, limit: int) -> list[tuple[OverviewRow, str]]:
        """List workflows as rows, each with its run's id."""
        executions = self.client.list_workflows(query, page_size=limit, limit=limit)
        return [(await _row_of(execution), execution.run_id) async for execution in executions]

    async def _describe_oldest(self, deliveries: list[tuple[str, str]]) -> None:
        """Fetch new descriptions, at once, of those of these deliveries that were described longest ago or never.

        `deliveries`: pairs of id and run id. Descriptions of all others are forgotten.
        """
        ids = dict(deliveries)
        self._descriptions = {id: known for id, known in self._descriptions.items() if ids.get(id) == known[1]}
        deliveries.sort(
            key=lambda pair: self._descriptions[pair[0]][0] if pair[0] in self._descriptions else float("-inf")
        )
        limit = max(DESCRIBED_A_LOOK, -(-len(deliveries) // ROTATION))
        answers = await asyncio.gather(*(find_workflow(self.client, *pair) for pair in deliveries[:limit]))
        executions = [execution for execution in answers if execution is not None]
        seconds, now = time.monotonic(), datetime.now(UTC)
        described = await explain_queue_waits(self.client, [await describe_run(execution) for execution in executions])
        for execution, description in zip(executions, described, strict=True):
            self._descriptions[execution.id] = (seconds, execution.run_id, description, now)


def add_work_in_flight(row: OverviewRow, description: RunDescription, described_at: datetime) -> OverviewRow:
    """Return the row with what is in flight according to a description made at `described_at`; unchanged when nothing
    is.

    Only the first pending activity counts. Its worker counts as silent when it had not been heard for SILENT_S by then.
    """
    if not description.pending:
        return row
    activity = description.pending[0]
    turn, doing = activity.details.get("turn"), activity.details.get("doing")
    heard = activity.heard
    return replace(
        row,
        activity=activity.activity,
        turn=turn if isinstance(turn, int) else 0,
        doing=activity.queue_wait or shorten(str(doing or activity.activity.replace("_", " ")), 200),
        worker=activity.worker,
        attempt=activity.attempt,
        silent_since=heard if heard is not None and (described_at - heard).total_seconds() > SILENT_S else None,
    )


async def _row_of(execution: WorkflowExecution) -> OverviewRow:
    """Return the row of a listed delivery or backlog, without what is in flight."""
    backlog = execution.workflow_type == "Backlog"
    pending_decision = None if backlog else await pending_decision_of(execution)
    entry = list_entry_of(execution, pending_decision)
    return OverviewRow(
        id=entry.delivery_id,
        kind="backlog" if backlog else "delivery",
        repository=entry.repository,
        phase=entry.phase,
        status=entry.status,
        pending_decision=pending_decision,
        since=pending_decision.since if pending_decision else entry.since,
        started=entry.started,
        closed=entry.closed,
        cost_usd=entry.cost_usd,
        pull_request=entry.pull_request,
        parent=execution.parent_id or "",
        held=entry.held,
        change=entry.change,
        title=entry.title,
    )


def row_data(row: OverviewRow) -> dict[str, Any]:
    """Return a row as JSON for programs: times in ISO 8601; `asked` null where no person is asked anything."""
    times = {name: value.isoformat() for name, value in vars(row).items() if isinstance(value, datetime)}
    fields = vars(row) | times
    pending = fields.pop("pending_decision")
    return fields | {"asked": pending.model_dump(mode="json") if pending is not None else None}
