"""The events of a delivery or a backlog, folded from its Temporal history: no worker is asked, and nothing is written.

The stream is append-only and its offsets stay: all runs of the workflow, in the order in which they began, and of one
that was made by a reset what came after it. A part that Temporal no longer keeps is missing at the beginning.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.event_kinds import Told, ended, of_act, of_begin
from perdure.client.history import Reading, is_reset
from perdure.client.view import look_up
from perdure.models.errors import BadInput
from perdure.models.events import Event, EventType


@dataclass
class _Stream:
    """The place in a stream: how many events came before, and what is known of the run that is read."""

    client: Client
    id: str
    reading: Reading
    offset: int = 0
    runs: int = 0
    phase: str = ""
    asked: bool = False
    updates: dict[str, tuple[str, Any]] = field(default_factory=dict)

    def begin(self) -> None:
        """Another run: its history is folded by itself."""
        self.reading, self.asked, self.updates = Reading(self.client.data_converter), False, {}
        self.runs += 1

    async def take(self, event: HistoryEvent, copied: int) -> list[Event]:
        """Return what one event of history means. Those up to number `copied` were told before, in another run."""
        kind = event.WhichOneof("attributes") or ""
        attributes: Any = getattr(event, kind) if kind else None
        number = getattr(attributes, "scheduled_event_id", 0) or event.event_id
        before = self.reading.acts.get(number)
        await self.reading.take(event)
        if (act := self.reading.acts.get(number)) is not None:
            told = list(of_act(act, before))
        else:
            told = [
                one async for one in self._meaning(kind.removesuffix("_event_attributes"), attributes, event.event_id)
            ]
        if event.event_id <= copied:
            told = [Told(EventType.CONTINUED, {"by": "rewind"})] if event.event_id == copied else []
        at = event.event_time.ToDatetime(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        backlog, item = self._place()
        made = [
            Event(
                offset=self.offset + place,
                time=at,
                delivery=None if self.is_backlog else self.id,
                backlog=backlog,
                item=one.item or item,
                type=one.type,
                step=one.step or None,
                attempt=one.attempt or None,
                turn=one.turn or None,
                data=one.data,
            )
            for place, one in enumerate(told)
        ]
        self.offset += len(made)
        return made

    @property
    def is_backlog(self) -> bool:
        return self.reading.type == "Backlog"

    def _place(self) -> tuple[str | None, str | None]:
        if self.is_backlog:
            return self.id, None
        landing = self.reading.request.get("landing")
        place = landing if isinstance(landing, dict) else {}
        return place.get("backlog") or None, place.get("item") or None

    async def _meaning(self, kind: str, attributes: Any, number: int) -> AsyncIterator[Told]:
        match kind:
            case "workflow_execution_started":
                for one in of_begin(self.reading.request, attributes, first=self.runs == 1):
                    yield one
            case "timer_started":
                if words := self.reading.waits[number].reason:
                    yield Told(EventType.WAITING, {"why": words, "until": None})
            case "upsert_workflow_search_attributes":
                for one in self._phase(await self._fields(attributes.search_attributes.indexed_fields)):
                    yield one
            case "workflow_properties_modified":
                for one in self._asked(await self._fields(attributes.upserted_memo.fields)):
                    yield one
            case "workflow_execution_update_accepted":
                sent = attributes.accepted_request.input
                self.updates[attributes.protocol_instance_id] = sent.name, await self.reading.first(sent.args)
            case "workflow_execution_update_completed":
                name, said = self.updates.pop(attributes.meta.update_id, ("", {}))
                if name and name != "attach" and not attributes.outcome.HasField("failure"):
                    yield Told(EventType.DECISION, {"name": name, "said": said})
            case "workflow_execution_signaled":
                said = await self.reading.first(attributes.input)
                yield self._signalled(attributes.signal_name, said)
            case "child_workflow_execution_started" if self.is_backlog:
                id = attributes.workflow_execution.workflow_id
                yield Told(EventType.ITEM, {"event": "begins", "delivery": id}, item=id.rpartition("/")[2])
            case name if name.startswith("workflow_execution_"):
                if (end := ended(name, attributes, self.reading)) is not None:
                    yield end

    def _phase(self, fields: dict[str, Any]) -> Iterator[Told]:
        phase = fields.get("PerdurePhase")
        if isinstance(phase, str) and phase not in ("", self.phase):
            self.phase = phase
            yield Told(EventType.PHASE, {"phase": phase})

    def _asked(self, fields: dict[str, Any]) -> Iterator[Told]:
        if "asked" not in fields:
            return
        asked = fields["asked"] if isinstance(fields["asked"], dict) else {}
        if asked or self.asked:
            data = {name: asked.get(name, empty) for name, empty in (("gate", ""), ("of", ""), ("words", ""))}
            yield Told(EventType.GATE, {**data, "options": list(asked.get("options", ())) if asked else []})
        self.asked = bool(asked)

    def _signalled(self, name: str, said: dict[str, Any]) -> Told:
        if self.is_backlog and isinstance(item := said.get("item"), str):
            return Told(EventType.ITEM, {"event": name, **said}, item=item)
        return Told(EventType.SAID, {"name": name, "said": said})

    async def _fields(self, payloads: Any) -> dict[str, Any]:
        found = {}
        for name, payload in payloads.items():
            try:
                (found[name],) = await self.client.data_converter.decode([payload])
            except (ValueError, RuntimeError):  # encoded by others, or no JSON: not ours to tell
                continue
        return found


async def events(client: Client, id: str, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
    """The events of a delivery or a backlog, oldest first, from offset `since`; with `follow` also those to come, until
    it has ended.

    BadInput when there is no such workflow. Raises RPCError when the server cannot be reached.
    """
    stream, done = _Stream(client, id, Reading(client.data_converter)), list[str]()
    while runs := [run for run in await _runs(client, id) if run not in done]:
        for run in runs:
            stream.begin()
            async for event in _of_run(stream, run, follow=follow and run == runs[-1]):
                if event.offset >= since:
                    yield event
            done.append(run)
        if not follow:
            return


async def _of_run(stream: _Stream, run: str, *, follow: bool) -> AsyncIterator[Event]:
    """A run's own events: what a reset copied from another run is taken in and not told once more."""
    handle = stream.client.get_workflow_handle(stream.id, run_id=run)
    copied = 0
    try:
        if stream.runs > 1:
            async for event in handle.fetch_history_events():
                copied = event.event_id if is_reset(event) else copied
        async for event in handle.fetch_history_events(wait_new_event=follow):
            for told in await stream.take(event, copied):
                yield told
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:  # retention has taken this run
            raise


async def _runs(client: Client, id: str) -> list[str]:
    """All runs that the server knows, as they began. The newest is asked for by itself: lists are seconds behind."""
    if (newest := await look_up(client, id)) is None:
        raise BadInput(f"no delivery or backlog {id}", fix="see perdure list")
    began = {newest.run_id: newest.start_time}
    async for run in client.list_workflows(f"WorkflowId = '{id}'"):
        began.setdefault(run.run_id, run.start_time)
    return sorted(began, key=lambda run: (run == newest.run_id, began[run]))
