"""All that runs in one namespace, from lists and descriptions: no workflow is asked, none is woken, none records it.

One reading serves all who look: a list a second while somebody looks, and a few descriptions in rotation.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from perdure.client.view import Described, asked_of, describe, listed, look_up
from perdure.models.decisions import Asked

LOOK_S = 1.0
"""As old as what is shown may be: a list of 200 takes a server some ten milliseconds."""

DESCRIBED_A_LOOK = 10
"""Descriptions a look, those first that were described longest ago: a millisecond of a processor each."""

ROTATION = 10
"""Looks within which everything that runs is described, however much it is."""

RECENT_S = 10.0
"""As old as rows may be for whoever does not wait for the next look."""

ENDED_S = 10.0
"""Between two looks at what has ended, unless something has just gone from the list of what runs."""

ENDED_SHOWN = 20
RUNNING_MOST = 1000

SILENT_S = 10.0
"""A worker that works says so every second or so: after this long it is silent, after 30 s its work is another's."""

ANSWER_S = 5.0
"""For one look; by itself a client asks a server that is gone for half a minute. One that is back answers the next."""


@dataclass(frozen=True)
class Row:
    """One delivery or backlog.

    since         when it began to wait, None where it does not, or nobody knows
    held          for what it waits where nobody is asked anything: held by whom, or the host that does not answer
    change        `+120 −14, 3 files · tests 455/455`; empty while there is no commit
    turn, doing, worker, attempt  of what is in flight, as last heard; worker empty: none has taken it
    silent_since  when its worker was last heard, where that is too long ago
    parent        the backlog it belongs to, or what it was made by
    """

    id: str
    kind: str
    repository: str
    phase: str
    status: str
    asked: Asked | None
    since: datetime | None
    started: datetime
    closed: datetime | None
    cost_usd: float | None
    pull_request: str = ""
    parent: str = ""
    turn: int = 0
    doing: str = ""
    worker: str = ""
    attempt: int = 0
    silent_since: datetime | None = None
    held: str = ""
    change: str = ""

    @property
    def waits(self) -> bool:
        return self.closed is None and self.kind == "delivery" and (self.asked is not None or self.status == "waiting")


@dataclass
class Overview:
    """`trouble`: why the last look failed, empty where it did not; the rows are then those of the look before."""

    client: Client
    trouble: str = ""
    _rows: tuple[Row, ...] = ()
    _ended: tuple[Row, ...] = ()
    _looked: float = float("-inf")
    _ended_looked: float = float("-inf")
    _known: dict[str, tuple[float, str, Described, datetime]] = field(default_factory=dict)
    _looking: asyncio.Task[None] | None = None

    async def rows(self, fresh_s: float = LOOK_S, patience_s: float | None = None) -> Sequence[Row]:
        """Those that wait for you, the longest first; what runs, by its start; the newest of what has ended.

        patience_s  for whoever would rather have the rows of the look before, where that was less than RECENT_S ago,
                    than wait longer for the next one; it goes on all the same
        """
        age = time.monotonic() - self._looked
        if age < fresh_s:
            return self._rows
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_now())
        await asyncio.wait([self._looking], timeout=patience_s if age < RECENT_S else None)
        if self._looking.done():
            self._looking.result()
        return self._rows

    async def _look_now(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._look()
            self.trouble = ""
        except RPCError as error:
            self.trouble = error.message[:200] or error.status.name
        except TimeoutError:
            self.trouble = f"nothing within {ANSWER_S:.0f} s"
        self._looked = time.monotonic()

    async def _look(self) -> None:
        query = "WorkflowType IN ('Delivery', 'Backlog') AND ExecutionStatus = 'Running'"
        running = {row.id: (row, run) for row, run in await self._list(query, RUNNING_MOST)}
        gone = {row.id for row in self._rows if row.closed is None} - running.keys()
        if gone or time.monotonic() - self._ended_looked >= ENDED_S:
            query = query.replace("= 'Running'", "!= 'Running'")
            newest = {row.id: row for row, _ in reversed(await self._list(query, ENDED_SHOWN))}
            self._ended, self._ended_looked = tuple(newest.values())[::-1], time.monotonic()
        await self._describe(
            [(row.id, run) for row, run in running.values() if row.kind == "delivery" and not row.waits]
        )
        known = {id: (seen, at) for id, (_, _, seen, at) in self._known.items()}
        rows = [with_work(row, *known[row.id]) if row.id in known else row for row, _ in running.values()]
        rows.sort(key=lambda row: (not row.waits, (row.waits and row.since) or row.started))
        self._rows = (*rows, *(row for row in self._ended if row.id not in running))

    async def _list(self, query: str, most: int) -> list[tuple[Row, str]]:
        found = self.client.list_workflows(query, page_size=most, limit=most)
        return [(await _row(one), one.run_id) async for one in found]

    async def _describe(self, wanted: list[tuple[str, str]]) -> None:
        """The ones described longest ago, or never, at once."""
        ids = dict(wanted)
        self._known = {id: known for id, known in self._known.items() if ids.get(id) == known[1]}
        wanted.sort(key=lambda one: self._known[one[0]][0] if one[0] in self._known else float("-inf"))
        most = max(DESCRIBED_A_LOOK, -(-len(wanted) // ROTATION))
        await asyncio.gather(*(self._describe_one(id, run) for id, run in wanted[:most]))

    async def _describe_one(self, id: str, run: str) -> None:
        if (seen := await look_up(self.client, id, run)) is not None:
            self._known[id] = (time.monotonic(), run, await describe(seen), datetime.now(UTC))


def with_work(row: Row, known: Described, at: datetime) -> Row:
    """The row with what is in flight, as it was described at `at`: a worker that was heard then is not silent now."""
    if not known.pending:
        return row
    work = known.pending[0]
    turn, doing = work.details.get("turn"), work.details.get("doing")
    heard = work.heard
    return replace(
        row,
        turn=turn if isinstance(turn, int) else 0,
        doing=str(doing or work.activity.replace("_", " "))[:200],
        worker=work.worker,
        attempt=work.attempt,
        silent_since=heard if heard is not None and (at - heard).total_seconds() > SILENT_S else None,
    )


async def _row(seen: WorkflowExecution) -> Row:
    backlog = seen.workflow_type == "Backlog"
    asked = None if backlog else await asked_of(seen)
    one = listed(seen, asked)
    return Row(
        id=one.delivery_id,
        kind="backlog" if backlog else "delivery",
        repository=one.repository,
        phase=one.phase,
        status=one.status,
        asked=asked,
        since=asked.since if asked else one.since,
        started=one.started,
        closed=one.closed,
        cost_usd=one.cost_usd,
        pull_request=one.pull_request,
        parent=seen.parent_id or "",
        held=one.held,
        change=one.change,
    )


def as_data(row: Row) -> dict[str, Any]:
    """The same for programs: times in ISO 8601; `asked` null where no person is asked anything."""
    times = {name: value.isoformat() for name, value in vars(row).items() if isinstance(value, datetime)}
    return vars(row) | times | {"asked": row.asked.model_dump(mode="json") if row.asked is not None else None}
