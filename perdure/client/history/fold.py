"""The records of a run folded into one picture of it: what it was asked, has done, waits for and was told; and what the
pictures of all runs together say of a delivery and of a backlog. The client's other modules fold with it; commands and
reports take its classes. Reading the server is in perdure.client.history.runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from temporalio.client import WorkflowHistory

from perdure.client.history.records import (
    ActivityEnded,
    ActivityScheduled,
    ActivityStarted,
    ChildInitiated,
    ChildStarted,
    HistoryRecord,
    RunEnded,
    RunStarted,
    SendersAccepted,
    SignalReceived,
    TaskFailed,
    TimerEnded,
    TimerStarted,
    UpdateAccepted,
    UpdateCompleted,
)
from perdure.models.delivery.decisions import describe_hold
from perdure.models.errors import InvalidRequest
from perdure.models.rules.backlog import parse_item


@dataclass(frozen=True)
class ActivityRecord:
    """An activity as history has it.

    input             its first argument
    attempt, turn     which loop of the step, which turn of the loop, 0 where it has none
    scheduled, ended  when; ended None while it runs
    tries             how often it was started; 0: it has not ended, and history does not say before
    began             when the last try started, None as above; the try before it had ended just then
    died, silent      the try before the last had ended with its worker; nobody reported that, it was not heard of
    worker            identity of the one that took the last try
    queue             the task queue it was scheduled on; id: Temporal's for it
    task              number of the event that completed the workflow task which scheduled it: a reset goes there
    result            its result, None unless it succeeded; failure: why it did not, empty while it runs
    """

    activity: str
    input: dict[str, Any]
    scheduled: datetime
    attempt: int = 0
    turn: int = 0
    task: int = 0
    queue: str = ""
    tries: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    died: bool = False
    silent: bool = False
    worker: str = ""
    result: dict[str, Any] | None = None
    failure: str = ""
    id: str = ""


@dataclass(frozen=True)
class WaitPeriod:
    """A time in which nothing was to be done, and what for. `until` None: it lasts."""

    since: datetime
    until: datetime | None
    reason: str


@dataclass(frozen=True)
class UpdateRecord:
    """An update that was accepted. `failed`: it changed nothing."""

    name: str
    message: dict[str, Any]
    failed: bool = False


@dataclass
class RunHistory:
    """The picture of one run, folded record by record.

    run_id      empty where it was read as the newest one
    workflow    its type; arguments: those it was started with, as they were sent
    activities  by the number of the event that scheduled them; waits: by that of the event that began them
    signals     in order; updates: those that were accepted, by id
    children    ids of the child workflows that it started, each as often as it did
    delivery_runs  of a backlog, ids of the runs whose signals count: it started them, or the server has named them
    rewound     it was reset to an earlier point: what it had done after that is in no history
    events      as Temporal has them; None while the run is followed
    """

    run_id: str = ""
    workflow: str = ""
    arguments: tuple[Any, ...] = ()
    continued_from: str = ""
    activities: dict[int, ActivityRecord] = field(default_factory=dict)
    waits: dict[int, WaitPeriod] = field(default_factory=dict)
    signals: list[SignalReceived] = field(default_factory=list)
    updates: dict[str, UpdateRecord] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    delivery_runs: set[str] = field(default_factory=set)
    rewound: bool = False
    events: WorkflowHistory | None = field(default=None, repr=False)

    @property
    def request(self) -> dict[str, Any]:
        """Return the request that it got; an empty dict where that is no JSON object."""
        return self._argument(0)

    @property
    def resume(self) -> dict[str, Any]:
        """Return what its request says of the run that it goes on from; empty where it goes on from none."""
        resume = self.request.get("resume")
        return resume if isinstance(resume, dict) else {}

    @property
    def previous_run_id(self) -> str:
        """Return the id of the run that it goes on from, as new or by a retry or rewind; empty: it is the first."""
        return str(self.resume.get("run_id") or self.continued_from)

    @property
    def backlog_state(self) -> dict[str, Any]:
        """Return the state that a backlog's run began with, as it was sent; empty where it began with none."""
        return self._argument(1)

    @property
    def rewinds(self) -> list[dict[str, Any]]:
        """Return the messages of the signals `rewind`."""
        return [signal.message for signal in self.signals if signal.name == "rewind"]

    @property
    def hold_reason(self) -> str:
        """Return the line that says that a person holds it, with the note; empty when the last hold was ended or none
        was sent.

        A `resume` or `rewind` ends a hold.
        """
        for signal in reversed(self.signals):
            if signal.name in ("hold", "resume", "rewind"):
                return describe_hold(str(signal.message.get("note") or "")) if signal.name == "hold" else ""
        return ""

    def _argument(self, place: int) -> dict[str, Any]:
        """Return an argument; an empty dict where there is none, or where it is no JSON object."""
        argument = self.arguments[place] if len(self.arguments) > place else None
        return argument if isinstance(argument, dict) else {}

    def apply_record(self, record: HistoryRecord | None) -> None:
        """Apply the next record of the run; one that says nothing of the picture changes nothing.

        The end of the run ends all waits.
        """
        match record:
            case RunStarted():
                self.workflow, self.arguments = record.workflow, record.arguments
                self.continued_from = record.continued_from
            case ActivityScheduled():
                self.activities[record.number] = _scheduled_activity(record)
            case ActivityStarted():
                self._change_activity(
                    record.scheduled,
                    tries=record.tries,
                    began=record.time,
                    died=record.died,
                    silent=record.silent,
                    worker=record.worker,
                )
            case ActivityEnded():
                self._change_activity(record.scheduled, ended=record.time, result=record.result, failure=record.failure)
            case TimerStarted():
                self.waits[record.number] = WaitPeriod(record.time, None, record.reason)
            case TimerEnded():
                if wait := self.waits.get(record.started):
                    self.waits[record.started] = replace(wait, until=record.time)
            case SignalReceived():
                self.signals.append(record)
            case UpdateAccepted():
                self.updates[record.id] = UpdateRecord(record.name, record.message)
            case UpdateCompleted(failed=True) if update := self.updates.get(record.id):
                self.updates[record.id] = replace(update, failed=True)
            case ChildInitiated():
                self.children.append(record.id)
            case ChildStarted():
                self.delivery_runs.add(record.run_id)
            case SendersAccepted():
                self.delivery_runs.update(record.runs)
            case TaskFailed(reset=True):
                self.rewound = True
            case RunEnded():
                self.waits = {
                    number: replace(wait, until=wait.until or record.time) for number, wait in self.waits.items()
                }

    def _change_activity(self, number: int, **changes: Any) -> None:
        if number in self.activities:
            self.activities[number] = replace(self.activities[number], **changes)


def _scheduled_activity(record: ActivityScheduled) -> ActivityRecord:
    """Return an activity as it is scheduled, with the attempt and turn that its input names; 0 for what it does not
    name.
    """
    attempt, turn = (value if isinstance(value := record.input.get(name), int) else 0 for name in ("attempt", "turn"))
    return ActivityRecord(
        record.activity,
        record.input,
        record.time,
        attempt=attempt,
        turn=turn,
        task=record.task,
        queue=record.queue,
        id=record.id,
    )


@dataclass(frozen=True)
class DeliveryHistory:
    """The facts in the histories of a delivery's runs, the oldest first.

    request       as the newest run got it
    newest_start  how many of `activities` are of the runs before the newest
    complete      False: Temporal does not have the first runs any more
    hold_reason   who holds it and why, by the newest run; empty: nobody does
    rewound       a run was reset to an earlier point: what it had done after that is in no history
    histories     of the runs, as Temporal has them
    """

    request: dict[str, Any] = field(default_factory=dict)
    activities: tuple[ActivityRecord, ...] = ()
    waits: tuple[WaitPeriod, ...] = ()
    newest_start: int = 0
    complete: bool = True
    hold_reason: str = ""
    rewound: bool = False
    histories: tuple[WorkflowHistory, ...] = field(default=(), repr=False)


def join_delivery_runs(runs: Sequence[RunHistory]) -> DeliveryHistory:
    """Join the runs of a delivery, oldest first and at least one, to its history."""
    return DeliveryHistory(
        request=runs[-1].request,
        activities=tuple(act for run_history in runs for act in run_history.activities.values()),
        waits=tuple(wait for run_history in runs for wait in run_history.waits.values()),
        newest_start=sum(len(run_history.activities) for run_history in runs[:-1]),
        complete=not runs[0].previous_run_id,
        hold_reason=runs[-1].hold_reason,
        rewound=any(run_history.rewound for run_history in runs),
        histories=tuple(run_history.events for run_history in runs if run_history.events is not None),
    )


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


def join_backlog_runs(runs: Sequence[RunHistory]) -> BacklogHistory:
    """Join the runs of a backlog, oldest first and at least one, to its history.

    The oldest run has the items in its request or, where it goes on from another, in its state, with the commits and
    the number of starts so far: what is known of a backlog that was started again or whose first runs are gone.
    """
    oldest = next((run_history for run_history in runs if run_history.request), runs[0])
    items_before = oldest.backlog_state.get("items")
    states = (
        [state for state in items_before.values() if isinstance(state, dict)] if isinstance(items_before, dict) else []
    )
    start_counts: dict[str, int] = {}
    delivery_runs = set[str]().union(*(run_history.delivery_runs for run_history in runs))
    commits: dict[str, dict[str, None]] = {}
    for state in states:
        last_child, landing = _get_piece(state, "child"), _get_piece(state, "landing")
        delivery_runs.add(str(last_child.get("run_id")))
        if (delivery := last_child.get("id")) and isinstance(starts := last_child.get("runs"), int):
            start_counts[str(delivery)] = starts
        if (commit := landing.get("commit")) and (item_id := _get_piece(state, "item").get("id")):
            commits[str(item_id)] = {str(commit): None}
    sent_items = oldest.request.get("items") or [state.get("item") for state in states]
    updates = [
        update.message.get("item")
        for run_history in runs
        for update in run_history.updates.values()
        if _gives_item(update)
    ]
    for child in (child for run_history in runs for child in run_history.children):
        start_counts[child] = start_counts.get(child, 0) + 1
    for signal in (signal for run_history in runs for signal in run_history.signals):
        if (
            signal.name in _LANDING_SIGNALS
            and signal.sender_run in delivery_runs  # any client may send one
            and isinstance(id := signal.message.get("item"), str)
            and (commit := signal.message.get("commit"))
        ):
            commits.setdefault(id, {})[str(commit)] = None
    return BacklogHistory(
        request=oldest.request,
        items=_parse_items([*(sent_items if isinstance(sent_items, list) else []), *updates]),
        landed_commits={id: tuple(landed) for id, landed in commits.items()},
        start_counts=start_counts,
        complete=not runs[0].previous_run_id,
        items_digest=str(oldest.backlog_state.get("items_digest") or ""),
    )


def _get_piece(state: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a piece of an item's state as the history has it; empty where there is none, or no object."""
    return piece if isinstance(piece := state.get(name), dict) else {}


def _gives_item(update: UpdateRecord) -> bool:
    """Return True where an update added an item or replaced one."""
    return update.name in _ITEM_UPDATES and not update.failed


def _parse_items(raw_items: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the items by id, the last of each id, as JSON without defaults; without those that cannot be parsed."""
    items = {}
    for raw in raw_items:
        try:
            item = parse_item(raw)
        except InvalidRequest:
            continue
        items[item.id] = item.model_dump(mode="json", exclude_defaults=True)
    return items
