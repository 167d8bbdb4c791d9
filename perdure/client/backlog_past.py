"""A backlog's Temporal history by itself: the items it was ever given, and what its deliveries said of landing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from temporalio.service import RPCError, RPCStatusCode

from perdure.models.errors import InvalidRequest
from perdure.models.limits import BACKLOG_RUNS_READ
from perdure.models.rules.backlog import parse_item

if TYPE_CHECKING:
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import Client
    from temporalio.converter import DataConverter

_UPDATES = ("add", "edit")
_SAID = ("landing_over", "item_ended")
"""Signals of its deliveries that name a commit on the integration branch."""


@dataclass(frozen=True)
class BacklogPast:
    """Over all its runs.

    request   as the oldest run that is known was started with: the first one has the items
    given     every item, by id, as it was given last: with the backlog, or by an update that was taken
    landed    by item, the commits that its deliveries said are on the branch, each once
    started   by workflow id, how many times a delivery was started
    complete  False: Temporal does not have the first runs any more
    sent      digest of the items as they were sent, where the oldest run that is known has them in its state
    """

    request: dict[str, Any]
    given: dict[str, dict[str, Any]]
    landed: dict[str, tuple[str, ...]]
    started: dict[str, int]
    complete: bool = True
    sent: str = ""


async def read_backlog_past(client: Client, id: str) -> BacklogPast:
    """The newest run of a backlog and those before it. RPCError when there is no such backlog."""
    runs: list[list[HistoryEvent]] = []
    run_id: str | None = None
    complete = False
    while len(runs) < BACKLOG_RUNS_READ:
        try:
            runs.append([event async for event in client.get_workflow_handle(id, run_id=run_id).fetch_history_events()])
        except RPCError as error:
            if not runs or error.status not in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                raise
            break
        run_id = runs[-1][0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run_id:
            complete = True
            break
    reading = _Reading(client.data_converter)
    for events in reversed(runs):
        for event in events:
            await reading.take(event)
    landed = {item: tuple(dict.fromkeys(commits)) for item, commits in reading.landed.items()}
    return BacklogPast(reading.request, reading.given, landed, reading.started, complete, reading.sent)


class _Reading:
    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._taken: dict[str, tuple[str, dict[str, Any] | None]] = {}
        self.request: dict[str, Any] = {}
        self.given: dict[str, dict[str, Any]] = {}
        self.landed: dict[str, list[str]] = {}
        self.started: dict[str, int] = {}
        self.sent = ""

    async def take(self, event: HistoryEvent) -> None:
        kind = event.WhichOneof("attributes") or ""
        told: Any = getattr(event, kind) if kind else None
        match kind.removesuffix("_event_attributes"):
            case "workflow_execution_started" if not self.request:
                self._begin(await self._converter.decode_wrapper(told.input))
            case "workflow_execution_update_accepted" if told.accepted_request.input.name in _UPDATES:
                await self._changed(told.protocol_instance_id, told.accepted_request.input.args)
            case "workflow_execution_update_completed" if told.outcome.HasField("failure"):
                self._undone(told.meta.update_id)
            case "workflow_execution_signaled" if told.signal_name in _SAID:
                said = await self._first(told.input)
                if isinstance(item := said.get("item"), str) and (commit := said.get("commit")):
                    self.landed.setdefault(item, []).append(str(commit))
            case "start_child_workflow_execution_initiated":
                self.started[told.workflow_id] = self.started.get(told.workflow_id, 0) + 1

    def _begin(self, arguments: list[Any]) -> None:
        """The items as they were sent; of a backlog that was begun again, or whose first runs are gone, all that its
        state knew by then."""
        given = [one if isinstance(one, dict) else {} for one in arguments]
        self.request = given[0] if given else {}
        states = _states(given[1:2])
        self.sent = str(given[1].get("sent") or "") if len(given) > 1 else ""
        items = self.request.get("items") or [one.get("item") for one in states]
        for one in states:
            if (delivery := one.get("delivery")) and isinstance(runs := one.get("runs"), int):
                self.started[str(delivery)] = runs
            if (commit := one.get("commit")) and isinstance(item := one.get("item"), dict):
                self.landed[str(item.get("id"))] = [str(commit)]
        for one in items if isinstance(items, list) else []:
            try:
                item = parse_item(one)
            except InvalidRequest:
                continue
            self.given[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    async def _changed(self, update: str, args: Any) -> None:
        try:
            item = parse_item((await self._first(args)).get("item"))
        except InvalidRequest:
            return
        self._taken[update] = (item.id, self.given.get(item.id))
        self.given[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    def _undone(self, update: str) -> None:
        """An update that was taken and failed after all changed nothing."""
        if update not in self._taken:
            return
        id, before = self._taken.pop(update)
        if before is None:
            self.given.pop(id, None)
        else:
            self.given[id] = before

    async def _first(self, payloads: Any) -> dict[str, Any]:
        values = await self._converter.decode_wrapper(payloads) if payloads.payloads else []
        return values[0] if values and isinstance(values[0], dict) else {}


def _states(arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    items = arguments[0].get("items") if arguments else None
    return [one for one in items.values() if isinstance(one, dict)] if isinstance(items, dict) else []
