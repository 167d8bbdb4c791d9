"""Deliveries and backlogs at a time: Temporal schedules, of which one starts a run while none of its own runs.

The id of what it starts is its own with the time: `night-2026-11-23T23:00:00Z`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionExecutionStartWorkflow,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleDescription,
    ScheduleHandle,
    ScheduleListActionStartWorkflow,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.common import Priority
from temporalio.service import RPCError, RPCStatusCode

from perdure.client import backlog, submit
from perdure.client.view import describe, look_up
from perdure.models.backlog import BacklogRequest
from perdure.models.errors import BadInput
from perdure.models.fairness import shared_with
from perdure.models.ids import digest
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.proof import schedule_proof
from perdure.models.request import DeliveryRequest
from perdure.models.schedule import Every

LATE_MOST = timedelta(hours=1)
"""A time that passes while the server is down is made up for within this, and is missed after it: who asked for the
night does not want it in the morning."""

_KINDS = {submit.WORKFLOW: "delivery", backlog.WORKFLOW: "backlog"}
_WHEN, _SENT = "perdure_when", "perdure_sent"
"""Memo of a schedule: its time as it was written, and a digest of what was asked for."""


@dataclass(frozen=True)
class Scheduled:
    """One schedule, as the server knows it.

    what     delivery or backlog; when: the time, as it was written; about: the request in one line
    next     when it begins next; None: never again
    last     the id of what it started last; outcome: what became of that
    started, skipped, missed   times at which it began something, found the last one still running, or came too late
    """

    id: str
    what: str
    when: str
    about: str
    next: datetime | None
    paused: bool
    note: str
    last: str
    outcome: str
    started: int
    skipped: int
    missed: int

    @property
    def state(self) -> str:
        if self.next is None:
            return "over" if self.started or self.missed or self.skipped else "over, never begun"
        return "paused" if self.paused else "waits"


class Schedules:
    """Those of a namespace that start deliveries or backlogs, whoever made them. BadInput where there is none of an id,
    and for a server that knows no schedules."""

    def __init__(self, client: Client, key: bytes | None) -> None:
        self._client, self._key = client, key

    async def add(self, request: DeliveryRequest | BacklogRequest, id: str, when: Every | datetime, said: str) -> bool:
        """Make one; False where the very same is there already. BadInput for another one of that id that is not over.

        said  the time as it was written
        """
        workflow = backlog.WORKFLOW if isinstance(request, BacklogRequest) else submit.WORKFLOW
        raw = request.model_dump(mode="json", exclude_defaults=True)
        sent = digest(workflow, said, json.dumps(raw, sort_keys=True))
        if self._key is not None:
            proved = {
                name: value for name, value in raw.items() if name != "items"
            }  # of a backlog, whose items may change
            raw["proof"] = schedule_proof(self._key, id, proved)
        caption, details = submit.caption_and_details(raw)
        schedule = Schedule(
            action=ScheduleActionStartWorkflow(
                workflow,
                raw,
                id=id,
                task_queue=TASK_QUEUE,
                task_timeout=WORKFLOW_TASK,
                static_summary=caption,
                static_details=details,
                priority=Priority(fairness_key=shared_with(id, raw, backlog=workflow != submit.WORKFLOW)),
            ),
            spec=_spec(when),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=LATE_MOST),
            state=ScheduleState(
                note=f"{said}: {_about(raw)}",
                limited_actions=not isinstance(when, Every),
                remaining_actions=0 if isinstance(when, Every) else 1,
            ),
        )
        if await self._there(id, sent):
            return False
        try:
            await self._client.create_schedule(
                id,
                schedule,
                memo={_WHEN: said, _SENT: sent},
                trigger_immediately=not isinstance(when, Every) and when <= datetime.now(UTC),
            )
        except ScheduleAlreadyRunningError:
            if await self._there(id, sent):  # made by somebody else in this moment
                return False
            raise
        except RPCError as error:
            raise _as_error(error, id) from error
        return True

    async def _there(self, id: str, sent: str) -> bool:
        """True where it is there, BadInput where another one of this id is; one that is over makes room."""
        try:
            seen = await self._client.get_schedule_handle(id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise _as_error(error, id) from error
        there = await self._scheduled(seen)
        if there.next is None:
            await self._client.get_schedule_handle(id).delete()
            return False
        if (await seen.memo()).get(_SENT) == sent:
            return True
        raise BadInput(
            f"the id {id} is taken by a schedule: {there.what}, {there.when}",
            where=id,
            fix=f"perdure schedules remove {id} makes room; --id NAME makes another",
        )

    async def list(self) -> list[Scheduled]:
        """All of them, what begins next first; what is over at the end."""
        found = [await self.get(id) async for id in self._ids()]
        return sorted(found, key=lambda one: (one.next is None, one.next or datetime.max.replace(tzinfo=UTC), one.id))

    async def waiting(self) -> bool:
        """True while one of them will start something."""
        async for id in self._ids():
            if (one := await self.get(id)).next is not None and not one.paused:
                return True
        return False

    async def get(self, id: str) -> Scheduled:
        async with self._of(id) as schedule:
            return await self._scheduled(await schedule.describe())

    async def pause(self, id: str, note: str = "") -> None:
        """Begin nothing until `resume`; what runs goes on, and times that pass meanwhile are not made up for."""
        async with self._of(id) as schedule:
            await schedule.pause(note=note or "paused")

    async def resume(self, id: str) -> None:
        async with self._of(id) as schedule:
            await schedule.unpause(note=(await self.get(id)).when)

    async def remove(self, id: str) -> None:
        """Forget it; what it has started goes on."""
        async with self._of(id) as schedule:
            await schedule.delete()

    @asynccontextmanager
    async def _of(self, id: str) -> AsyncIterator[ScheduleHandle]:
        """The one of that id, with a server's no in words."""
        try:
            yield self._client.get_schedule_handle(id)
        except RPCError as error:
            raise await self._unknown(error, id) from None

    async def _ids(self) -> AsyncIterator[str]:
        try:
            async for one in await self._client.list_schedules():
                action = one.schedule.action if one.schedule else None
                if isinstance(action, ScheduleListActionStartWorkflow) and action.workflow in _KINDS:
                    yield one.id
        except RPCError as error:
            raise _as_error(error, "") from error

    async def _unknown(self, error: RPCError, id: str) -> Exception:
        if error.status != RPCStatusCode.NOT_FOUND:
            return _as_error(error, id)
        known = [one async for one in self._ids()]
        near = difflib.get_close_matches(id, known, n=1, cutoff=0.4)
        fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:5])}" if known else ""
        return BadInput(f"no schedule {id}", fix=fix or "--at and --every of deliver and backlog start make one")

    async def _scheduled(self, seen: ScheduleDescription) -> Scheduled:
        memo, info, action = await seen.memo(), seen.info, seen.schedule.action
        last, outcome = "", ""
        begun = info.recent_actions[-1].action if info.recent_actions else None
        if isinstance(begun, ScheduleActionExecutionStartWorkflow):
            last = begun.workflow_id
            run = await look_up(self._client, last)
            outcome = (await describe(run)).outcome if run is not None else "forgotten by the server"
        workflow = action.workflow if isinstance(action, ScheduleActionStartWorkflow) else ""
        about = await self._asked(action) if isinstance(action, ScheduleActionStartWorkflow) else ""
        return Scheduled(
            id=seen.id,
            what=_KINDS.get(workflow, workflow),
            when=str(memo.get(_WHEN) or "as the server has it"),
            about=about,
            next=to_come(info.next_action_times, datetime.now(UTC)),
            paused=seen.schedule.state.paused,
            note=seen.schedule.state.note or "",
            last=last,
            outcome=outcome,
            started=info.num_actions,
            skipped=info.num_actions_skipped_overlap,
            missed=info.num_actions_missed_catchup_window,
        )

    async def _asked(self, action: ScheduleActionStartWorkflow) -> str:
        values = await self._client.data_converter.decode([one for one in action.args if isinstance(one, Payload)])
        return _about(values[0]) if values and isinstance(values[0], dict) else ""


def _about(raw: dict[str, Any]) -> str:
    issue = f"#{raw['issue']} " if raw.get("issue") is not None else ""
    return " ".join(f"{issue}{raw.get('request') or submit.items_named(raw)}".split())[:100]


def to_come(times: Sequence[datetime], now: datetime) -> datetime | None:
    """The first that can still begin something. A server was seen to name a time that it had missed for ever."""
    return min((time for time in times if time > now - LATE_MOST), default=None)


def _spec(when: Every | datetime) -> ScheduleSpec:
    if isinstance(when, Every):
        days, hour, minute, zone = when.calendar
        calendar = ScheduleCalendarSpec(
            minute=[ScheduleRange(minute)], hour=[ScheduleRange(hour)], day_of_week=[ScheduleRange(n) for n in days]
        )
        return ScheduleSpec(calendars=[calendar], time_zone_name=zone)
    calendar = ScheduleCalendarSpec(
        minute=[ScheduleRange(when.minute)],
        hour=[ScheduleRange(when.hour)],
        day_of_month=[ScheduleRange(when.day)],
        month=[ScheduleRange(when.month)],
        year=[ScheduleRange(when.year)],
    )
    return ScheduleSpec(calendars=[calendar], time_zone_name="UTC")


def _as_error(error: RPCError, id: str) -> Exception:
    if error.status == RPCStatusCode.UNIMPLEMENTED:
        return BadInput("this Temporal server knows no schedules", where=id, fix="leave --at and --every out")
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return BadInput(f"the server refuses this schedule: {error.message}", where=id, fix="name another time or zone")
    return error
