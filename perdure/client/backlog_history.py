"""A backlog's Temporal history, read without a worker: every item it was ever given, and what its deliveries landed."""

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

_ITEM_UPDATES = ("add", "edit")
_LANDING_SIGNALS = ("landing_over", "item_ended")
"""Signals of its deliveries that name a commit on the integration branch."""


@dataclass(frozen=True)
class BacklogHistory:
    """The facts in the histories of all of a backlog's runs.

    request         of the oldest run that is known; only the first run's has the items
    items           every item by id, as it was given last: with the backlog, or by an update that was accepted
    landed_commits  by item, the commits that its deliveries said are on the branch, each once
    start_counts    by a delivery's workflow id, how many times it was started
    complete        False: Temporal does not have the first runs any more
    items_digest    digest of the items as they were sent, where the oldest known run has them in its state
    """

    request: dict[str, Any]
    items: dict[str, dict[str, Any]]
    landed_commits: dict[str, tuple[str, ...]]
    start_counts: dict[str, int]
    complete: bool = True
    items_digest: str = ""


async def read_backlog_history(client: Client, id: str) -> BacklogHistory:
    """Read the history of a backlog's newest run and of the runs before it, and fold them into one.

    Reads at most BACKLOG_RUNS_READ runs, and none that the server has deleted. Raises RPCError when there is no such
    backlog.
    """
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
    fold = _BacklogFold(client.data_converter)
    for events in reversed(runs):
        for event in events:
            await fold.apply_event(event)
    landed = {item: tuple(dict.fromkeys(commits)) for item, commits in fold.landed_commits.items()}
    return BacklogHistory(fold.request, fold.items, landed, fold.start_counts, complete, fold.items_digest)


class _BacklogFold:
    """The state of a backlog, folded event by event from the histories of its runs, the oldest run first."""

    def __init__(self, converter: DataConverter) -> None:
        self._converter = converter
        self._items_before: dict[str, tuple[str, dict[str, Any] | None]] = {}
        self.request: dict[str, Any] = {}
        self.items: dict[str, dict[str, Any]] = {}
        self.landed_commits: dict[str, list[str]] = {}
        self.start_counts: dict[str, int] = {}
        self.items_digest = ""

    async def apply_event(self, event: HistoryEvent) -> None:
        """Apply one event: the first run's start, an item update or its failure, a landed commit, a child's start."""
        kind = event.WhichOneof("attributes") or ""
        attributes: Any = getattr(event, kind) if kind else None
        match kind.removesuffix("_event_attributes"):
            case "workflow_execution_started" if not self.request:
                self._load_start(await self._converter.decode_wrapper(attributes.input))
            case "workflow_execution_update_accepted" if attributes.accepted_request.input.name in _ITEM_UPDATES:
                await self._apply_item_update(attributes.protocol_instance_id, attributes.accepted_request.input.args)
            case "workflow_execution_update_completed" if attributes.outcome.HasField("failure"):
                self._undo_item_update(attributes.meta.update_id)
            case "workflow_execution_signaled" if attributes.signal_name in _LANDING_SIGNALS:
                message = await self._decode_first(attributes.input)
                if isinstance(item := message.get("item"), str) and (commit := message.get("commit")):
                    self.landed_commits.setdefault(item, []).append(str(commit))
            case "start_child_workflow_execution_initiated":
                self.start_counts[attributes.workflow_id] = self.start_counts.get(attributes.workflow_id, 0) + 1

    def _load_start(self, arguments: list[Any]) -> None:
        """Load the items from a run's start arguments: the request and, where the run goes on from another, the state.

        That state also has the commits and the number of starts so far. It is what is known of a backlog that was
        started again or whose first runs are gone. Items that cannot be parsed are left out.
        """
        objects = [argument if isinstance(argument, dict) else {} for argument in arguments]
        self.request = objects[0] if objects else {}
        states = _item_states(objects[1:2])
        self.items_digest = str(objects[1].get("items_digest") or "") if len(objects) > 1 else ""
        items = self.request.get("items") or [argument.get("item") for argument in states]
        for argument in states:
            if (delivery := argument.get("delivery")) and isinstance(runs := argument.get("runs"), int):
                self.start_counts[str(delivery)] = runs
            if (commit := argument.get("commit")) and isinstance(item := argument.get("item"), dict):
                self.landed_commits[str(item.get("id"))] = [str(commit)]
        for argument in items if isinstance(items, list) else []:
            try:
                item = parse_item(argument)
            except InvalidRequest:
                continue
            self.items[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    async def _apply_item_update(self, update: str, args: Any) -> None:
        """Record the item of an accepted update, and the one it replaces; ignore an item that cannot be parsed."""
        try:
            item = parse_item((await self._decode_first(args)).get("item"))
        except InvalidRequest:
            return
        self._items_before[update] = (item.id, self.items.get(item.id))
        self.items[item.id] = item.model_dump(mode="json", exclude_defaults=True)

    def _undo_item_update(self, update: str) -> None:
        """Restore the item from before an update that was accepted and then failed, which changed nothing."""
        if update not in self._items_before:
            return
        id, before = self._items_before.pop(update)
        if before is None:
            self.items.pop(id, None)
        else:
            self.items[id] = before

    async def _decode_first(self, payloads: Any) -> dict[str, Any]:
        """Decode the first of the payloads; an empty dict where it is no JSON object."""
        values = await self._converter.decode_wrapper(payloads) if payloads.payloads else []
        return values[0] if values and isinstance(values[0], dict) else {}


def _item_states(arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the item states in a start argument that is a backlog's state; empty where it has none."""
    items = arguments[0].get("items") if arguments else None
    return [state for state in items.values() if isinstance(state, dict)] if isinstance(items, dict) else []
