"""Deliveries and backlogs at a time: Temporal schedules, each of which starts a run only while none of its own runs.

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
from temporalio.common import Priority, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode

from perdure.client import submit
from perdure.client.server.view import describe_run, find_workflow
from perdure.models.backlog.request import BacklogRequest
from perdure.models.concurrency_limit import fairness_key
from perdure.models.delivery.request import DeliveryRequest, schedule_proof
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import BACKLOG_WORKFLOW, DELIVERY_WORKFLOW, digest
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.rules.admission import backlog_refusal, delivery_refusal, id_refusal
from perdure.models.schedule import RecurringTime
from perdure.models.webui.captions import describe_items
from perdure.text import shell_word, shorten

LATE_MOST = timedelta(hours=1)
"""The delay within which a time that passed while the server was down is made up for; after that it is missed: who
asked for the night does not want it in the morning."""

_KINDS = {DELIVERY_WORKFLOW: "delivery", BACKLOG_WORKFLOW: "backlog"}
_WHEN, _SENT = "perdure_when", "perdure_sent"
"""Memo of a schedule: its time as it was written, and a digest of what was asked for."""


@dataclass(frozen=True)
class ScheduleInfo:
    """A schedule, as the server knows it.

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
    """The schedules of a namespace that start deliveries or backlogs, whoever made them.

    Methods raise BadInput where there is no schedule of an id, and for a server that knows no schedules.
    """

    def __init__(self, client: Client, key: bytes | None, queue: str = "") -> None:
        self._client, self._key, self._queue = client, key, queue

    async def add(
        self, request: DeliveryRequest | BacklogRequest, id: str, when: RecurringTime | datetime, time_text: str
    ) -> bool:
        """Create a schedule that starts a request once or again and again; False where the very same exists already.

        `time_text` is the time as it was written. A single time that has passed starts it at once. A schedule of that
        id that is over is deleted first. Raises BadInput when another schedule has that id and is not over, and when
        the server refuses this one.
        """
        workflow = BACKLOG_WORKFLOW if isinstance(request, BacklogRequest) else DELIVERY_WORKFLOW
        is_backlog = isinstance(request, BacklogRequest)
        reason = backlog_refusal(request) if isinstance(request, BacklogRequest) else delivery_refusal(request)
        if reason := reason or id_refusal(id, backlog=is_backlog, scheduled=True):
            raise InvalidRequest(reason)
        raw = request.model_dump(mode="json", exclude_defaults=True)
        sent = digest(workflow, time_text, json.dumps(raw, sort_keys=True))
        raw = await submit.add_host(self._client, raw, self._queue)
        if self._key is not None:
            proved = {
                name: value for name, value in raw.items() if name != "items"
            }  # of a backlog, whose items may change
            raw["proof"] = schedule_proof(self._key, id, proved)
        caption, details = submit.caption_and_details(raw)
        action = ScheduleActionStartWorkflow(
            workflow,
            raw,
            id=id,
            task_queue=TASK_QUEUE,
            task_timeout=WORKFLOW_TASK,
            static_summary=caption,
            static_details=details,
            priority=Priority(fairness_key=fairness_key(id, raw, backlog=workflow != DELIVERY_WORKFLOW)),
            typed_search_attributes=submit.title_attribute(self._client, raw),
        )
        schedule = Schedule(
            action=action,
            spec=_schedule_spec(when),
            policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=LATE_MOST),
            state=ScheduleState(
                note=f"{time_text}: {_request_line(raw)}",
                limited_actions=not isinstance(when, RecurringTime),
                remaining_actions=0 if isinstance(when, RecurringTime) else 1,
            ),
        )
        if await self._find_same_or_clear(id, sent):
            return False
        options: dict[str, Any] = {
            "memo": {_WHEN: time_text, _SENT: sent},
            "trigger_immediately": not isinstance(when, RecurringTime) and when <= datetime.now(UTC),
        }
        try:
            try:
                await self._client.create_schedule(id, schedule, **options)
            except RPCError as error:
                if not submit.lists_no_titles(error):
                    raise
                action.typed_search_attributes = TypedSearchAttributes.empty
                await self._client.create_schedule(id, schedule, **options)
        except ScheduleAlreadyRunningError:
            if await self._find_same_or_clear(id, sent):  # made by somebody else in this moment
                return False
            raise
        except RPCError as error:
            raise _error_of_status(error, id) from error
        return True

    async def _find_same_or_clear(self, id: str, sent: str) -> bool:
        """Return True where the same schedule, by its digest, exists and will still begin something; False: the id is
        free now.

        A schedule of that id that is over is deleted, the same one, too. Raises BadInput when the id belongs to another
        that is not over, and PerdureError when Temporal refuses to tell.
        """
        try:
            description = await self._client.get_schedule_handle(id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise _error_of_status(error, id) from error
        existing = await self._info_of(description)
        if existing.next is None:
            await self._client.get_schedule_handle(id).delete()
            return False
        if (await description.memo()).get(_SENT) == sent:
            return True
        raise BadInput(
            f"the id {id} is taken by a schedule: {existing.what}, {existing.when}",
            where=id,
            fix=f"perdure schedules remove {shell_word(id)} makes room; --id NAME makes another",
        )

    async def list(self) -> list[ScheduleInfo]:
        """List all schedules that start deliveries or backlogs, what begins next first and what is over at the end.

        Raises BadInput for a server without schedules, and when one is removed meanwhile.
        """
        schedules = [await self.get(id) async for id in self._iterate_ids()]
        return sorted(
            schedules,
            key=lambda schedule: (
                schedule.next is None,
                schedule.next or datetime.max.replace(tzinfo=UTC),
                schedule.id,
            ),
        )

    async def will_start_something(self) -> bool:
        """Return True while one of the schedules, not paused, will still start something.

        Raises BadInput for a server without schedules.
        """
        async for id in self._iterate_ids():
            if (schedule := await self.get(id)).next is not None and not schedule.paused:
                return True
        return False

    async def get(self, id: str) -> ScheduleInfo:
        async with self._handle_of(id) as schedule:
            return await self._info_of(await schedule.describe())

    async def pause(self, id: str, note: str = "") -> None:
        """Set a schedule to begin nothing until `resume`.

        What runs goes on, and times that pass meanwhile are not made up for.
        """
        async with self._handle_of(id) as schedule:
            await schedule.pause(note=note or "paused")

    async def resume(self, id: str) -> None:
        async with self._handle_of(id) as schedule:
            await schedule.unpause(note=(await self.get(id)).when)

    async def remove(self, id: str) -> None:
        """Delete a schedule; what it has started goes on."""
        async with self._handle_of(id) as schedule:
            await schedule.delete()

    @asynccontextmanager
    async def _handle_of(self, id: str) -> AsyncIterator[ScheduleHandle]:
        """Yield the handle of a schedule; convert an RPCError that the block raises.

        Raises BadInput then when there is no such schedule, or the server refuses it or knows no schedules; else the
        RPCError.
        """
        try:
            yield self._client.get_schedule_handle(id)
        except RPCError as error:
            raise await self._error_for(error, id) from None

    async def _iterate_ids(self) -> AsyncIterator[str]:
        """Yield the ids of all schedules that start a delivery or a backlog.

        Raises BadInput for a server without schedules.
        """
        try:
            async for entry in await self._client.list_schedules():
                action = entry.schedule.action if entry.schedule else None
                if isinstance(action, ScheduleListActionStartWorkflow) and action.workflow in _KINDS:
                    yield entry.id
        except RPCError as error:
            raise _error_of_status(error, "") from error

    async def _error_for(self, error: RPCError, id: str) -> Exception:
        """Return the error to raise for an RPCError: where there is no such schedule, BadInput with the nearest id."""
        if error.status != RPCStatusCode.NOT_FOUND:
            return _error_of_status(error, id)
        known = [other_id async for other_id in self._iterate_ids()]
        near = difflib.get_close_matches(id, known, n=1, cutoff=0.4)
        fix = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:5])}" if known else ""
        return BadInput(f"no schedule {id}", fix=fix or "--at and --every of deliver and backlog start make one")

    async def _info_of(self, description: ScheduleDescription) -> ScheduleInfo:
        """Return what is known of a schedule; looks up what became of the workflow that it started last.

        `last` and `outcome` are empty when it has started nothing; the outcome is `forgotten by the server` for a
        workflow that the server no longer has. Raises RPCError.
        """
        memo, info, action = await description.memo(), description.info, description.schedule.action
        last, outcome = "", ""
        last_action = info.recent_actions[-1].action if info.recent_actions else None
        if isinstance(last_action, ScheduleActionExecutionStartWorkflow):
            last = last_action.workflow_id
            execution = await find_workflow(self._client, last)
            outcome = (await describe_run(execution)).outcome if execution is not None else "forgotten by the server"
        workflow = action.workflow if isinstance(action, ScheduleActionStartWorkflow) else ""
        about = await self._decode_about(action) if isinstance(action, ScheduleActionStartWorkflow) else ""
        return ScheduleInfo(
            id=description.id,
            what=_KINDS.get(workflow, workflow),
            when=str(memo.get(_WHEN) or "as the server has it"),
            about=about,
            next=next_start(info.next_action_times, datetime.now(UTC)),
            paused=description.schedule.state.paused,
            note=description.schedule.state.note or "",
            last=last,
            outcome=outcome,
            started=info.num_actions,
            skipped=info.num_actions_skipped_overlap,
            missed=info.num_actions_missed_catchup_window,
        )

    async def _decode_about(self, action: ScheduleActionStartWorkflow) -> str:
        """Return in one line the request that a schedule starts; empty where it cannot be read."""
        values = await self._client.data_converter.decode(
            [argument for argument in action.args if isinstance(argument, Payload)]
        )
        return _request_line(values[0]) if values and isinstance(values[0], dict) else ""


def _request_line(raw: dict[str, Any]) -> str:
    issue = f"#{raw['issue']} " if raw.get("issue") is not None else ""
    return shorten(" ".join(f"{issue}{raw.get('request') or describe_items(raw)}".split()), 100)


def next_start(times: Sequence[datetime], now: datetime) -> datetime | None:
    """Return the first time that can still begin something.

    A server was seen to name a time that it had missed for ever.
    """
    return min((time for time in times if time > now - LATE_MOST), default=None)


def _schedule_spec(time: RecurringTime | datetime) -> ScheduleSpec:
    """Return Temporal's specification of a time that repeats, in its own zone, or of one moment in UTC."""
    if isinstance(time, RecurringTime):
        days, hour, minute, zone = time.calendar
        calendar = ScheduleCalendarSpec(
            minute=[ScheduleRange(minute)], hour=[ScheduleRange(hour)], day_of_week=[ScheduleRange(n) for n in days]
        )
        return ScheduleSpec(calendars=[calendar], time_zone_name=zone)
    calendar = ScheduleCalendarSpec(
        minute=[ScheduleRange(time.minute)],
        hour=[ScheduleRange(time.hour)],
        day_of_month=[ScheduleRange(time.day)],
        month=[ScheduleRange(time.month)],
        year=[ScheduleRange(time.year)],
    )
    return ScheduleSpec(calendars=[calendar], time_zone_name="UTC")


def _error_of_status(error: RPCError, id: str) -> Exception:
    """Return BadInput for a server without schedules and for a schedule it refuses; any other error as it is."""
    if error.status == RPCStatusCode.UNIMPLEMENTED:
        return BadInput("this Temporal server knows no schedules", where=id, fix="leave --at and --every out")
    if error.status == RPCStatusCode.INVALID_ARGUMENT:
        return BadInput(f"the server refuses this schedule: {error.message}", where=id, fix="name another time or zone")
    return error
