"""Take the messages a backlog gets while it runs: from people by updates and the signals `hold` and `resume`, from its
deliveries by signals.

Most change only its state and wake its loop. `hold` and `resume` also signal every running delivery, `cancel_item`
cancels the item's, and `prioritise` changes the priority of a running one by an activity. An update that does not count
is refused by its validator before it enters history, in words its sender can use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models.backlog.landing import (
    ItemEnded,
    ItemForeseen,
    ItemPlanned,
    ItemWaits,
    LandingEnded,
    LandingRequested,
    PriorityInput,
    PriorityResult,
)
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import (
    AddItem,
    BacklogAttached,
    BacklogState,
    ItemPhase,
    ItemState,
    NamedItem,
    PrioritisedItem,
)
from perdure.models.backlog.touches import patterns_of_paths
from perdure.models.concurrency_limit import MIDDLE_PRIORITY, fairness_key, temporal_priority
from perdure.models.delivery.decisions import Hold, parse_input
from perdure.models.errors import InvalidRequest
from perdure.models.limits import NOTES_KEPT
from perdure.models.rules.admission import labels_refusal
from perdure.models.rules.backlog import backlog_attach_refusal
from perdure.models.rules.changes import change_refusal, end_idle_item, ended_reason, reopen_item
from perdure.models.rules.dependencies import no_place_reason
from perdure.models.rules.landed_checks import record_branch_move
from perdure.models.rules.scheduling import record_conflicts
from perdure.text import shorten
from workflows.children import hold_signal
from workflows.endings import failure_reason
from workflows.items import Items
from workflows.signal_origin import SignalOrigins
from workflows.unknown_messages import UnknownMessages

T = TypeVar("T")


class BacklogInbox(UnknownMessages):
    """Handles the messages that a backlog takes: updates `attach`, `add`, `edit`, `skip`, `retry`, `cancel_item`,
    `prioritise`; signals `hold`, `resume`, and those of its deliveries."""

    request: BacklogRequest
    state: BacklogState
    items: Items
    origins: SignalOrigins
    submission_error: ApplicationError | None

    @workflow.update(description="Submit or attach in one call, by update-with-start: {} or the backlog again")
    def attach(self, raw_request: Any = None) -> BacklogAttached:
        """Return the backlog's ids, repository and number of items."""
        info = workflow.info()
        return BacklogAttached(
            backlog_id=info.workflow_id,
            run_id=info.run_id,
            repository=self.request.repository,
            items=len(self.state.items),
        )

    @attach.validator
    def _validate_attach(self, raw_request: Any = None) -> None:
        """Raise ApplicationError InvalidRequest when this backlog's own request was bad, or when another request than
        its own is sent."""
        if self.submission_error is not None:
            raise self.submission_error
        if reason := backlog_attach_refusal(self.request, self.state, raw_request):
            raise ApplicationError(f"InvalidRequest: {reason}", type="InvalidRequest", non_retryable=True)

    @workflow.update(description='Add an item: {"item": {"id": "api", "request": "…"}}')
    def add(self, change: Any = None) -> str:
        """Add an item at the end of the list, wake the backlog's loop, and return the answer for the sender. Raises
        ApplicationError NotCounted when the item does not fit."""
        item = self._parse_change("add", change)[1]
        assert item is not None
        order = 1 + max((entry.order for entry in self.state.items.values()), default=-1)
        self.state.items[item.id] = ItemState(item=item, order=order, added_at=workflow.now())
        return self._mark_changed(f"added: {item.id}")

    @add.validator
    def _validate_add(self, change: Any = None) -> None:
        self._validate_item("add", change)

    @workflow.update(description='Put another in the place of one that has not begun: {"item": {"id": "api", …}}')
    def edit(self, change: Any = None) -> str:
        """Replace an item that has not begun, wake the backlog's loop, and return the answer for the sender. Raises
        ApplicationError NotCounted when there is no such item, or it has begun."""
        id, item = self._parse_change("edit", change)
        assert item is not None
        self.state.items[id].item = item
        return self._mark_changed(f"edited: {id}")

    @edit.validator
    def _validate_edit(self, change: Any = None) -> None:
        self._validate_item("edit", change)

    @workflow.update(description='Leave one out, what depends on it may go on: {"item": "api", "note": "why"}')
    def skip(self, change: Any = None) -> str:
        """End an item as skipped, wake the backlog's loop, and return the answer for the sender. Raises
        ApplicationError NotCounted when the item cannot be skipped."""
        id, _ = self._parse_change("skip", change)
        end_idle_item(self.state.items[id], ItemPhase.SKIPPED, parse_input(NamedItem, change).note, workflow.now())
        return self._mark_changed(f"skipped: {id}")

    @skip.validator
    def _validate_skip(self, change: Any = None) -> None:
        self._parse_change("skip", change, closed_reason=ended_reason(self.state))

    @workflow.update(description='Let one that failed go on from where it stands: {"item": "api"}')
    def retry(self, change: Any = None) -> str:
        """Make an item that failed or was cancelled ready to start again, wake the backlog's loop, and return the
        answer for the sender. Raises ApplicationError NotCounted when the item cannot be retried."""
        id, _ = self._parse_change("retry", change)
        reopen_item(self.state.items[id])
        return self._mark_changed(f"goes on: {id}")

    @retry.validator
    def _validate_retry(self, change: Any = None) -> None:
        self._parse_change("retry", change, closed_reason=ended_reason(self.state))

    @workflow.update(description='End one: {"item": "api"}; its work is kept, retry goes on with it')
    async def cancel_item(self, change: Any = None) -> str:
        """Cancel an item's delivery when one runs, else end the item as cancelled; wake the backlog's loop, and return
        the answer for the sender. Raises ApplicationError NotCounted when the item cannot be cancelled."""
        id, _ = self._parse_change("cancel_item", change)
        entry, note = self.state.items[id], parse_input(NamedItem, change).note
        if entry.phase is ItemPhase.BUILDING:
            await self.items.cancel_delivery(id, note)
        else:
            end_idle_item(entry, ItemPhase.CANCELLED, note, workflow.now())
        return self._mark_changed(f"cancelled: {id}")

    @cancel_item.validator
    def _validate_cancel_item(self, change: Any = None) -> None:
        self._parse_change("cancel_item", change, closed_reason=ended_reason(self.state))

    @workflow.update(description='Higher goes first among those that are ready: {"item": "api", "priority": 5}')
    async def prioritise(self, change: Any = None) -> str:
        """Change an item's priority and, while its delivery runs, the delivery's too, by activity
        `prioritise_delivery`. Return the answer for the sender, which also says why the delivery keeps its old
        priority, when it does. Raises ApplicationError NotCounted when the change does not fit."""
        id, _ = self._parse_change("prioritise", change)
        priority, entry = parse_input(PrioritisedItem, change).priority, self.state.items[id]
        entry.item = entry.item.model_copy(update={"priority": priority})
        answer = self._mark_changed(f"priority {priority}: {id}")
        if entry.phase is not ItemPhase.BUILDING:
            return answer
        work = PriorityInput(
            delivery=entry.child.id,
            key=temporal_priority(priority) or MIDDLE_PRIORITY,
            shared_with=fairness_key(entry.child.id, self._fairness_place) or "",
        )
        try:
            output = await self.items.run_activity(
                "prioritise_delivery", work, PriorityResult, f"{id} has priority {priority}"
            )
        except ActivityError as error:
            return shorten(f"{answer}, but its delivery keeps its own: {failure_reason(error)}", 300)
        return f"{answer}, but its delivery keeps its own: {output.reason}" if output.reason else answer

    @property
    def _fairness_place(self) -> dict[str, Any]:
        """Return the part of a delivery's request that says with which other deliveries it shares worker time
        fairly."""
        within = self.state.parent_delivery is not None
        return {"landing": {"backlog": workflow.info().workflow_id, "within": within}}

    @prioritise.validator
    def _validate_prioritise(self, change: Any = None) -> None:
        self._parse_change("prioritise", change, closed_reason=ended_reason(self.state))

    @workflow.signal(description='Begin nothing more, and no further turn of what runs: {} or {"note": "why"}')
    async def hold(self, raw_hold: Any = None) -> None:
        """Hold the backlog, so that it starts nothing, and every delivery that runs, by signal; a malformed message
        holds them all the same, without a note."""
        note = self._parse_leniently(Hold, raw_hold, lambda parsed: parsed.note) or ""
        self.state.hold_reason = f"held: {note}" if note else "held"
        self._mark_changed("")
        await self.items.send(self.items.running_ids, hold_signal(self.state.hold_reason))

    @workflow.signal(description="Go on after a hold: {}")
    async def resume(self, raw_resume: Any = None) -> None:
        """Let the backlog and its running deliveries go on after a hold."""
        self.state.hold_reason = ""
        self._mark_changed("")
        await self.items.send(self.items.running_ids, hold_signal(""))

    @workflow.signal(description="Sent by a delivery that wants to land")
    async def landing_asked(self, signal: LandingRequested) -> None:
        """Record a request for the turn to land."""
        await self.origins.record_if_sent("landing_asked", signal, self._record_landing_request)

    def _record_landing_request(self, signal: LandingRequested) -> None:
        """Put an item at the end of the queue to land, and record its delivery's id and run; a turn it had is taken
        back. A delivery that somebody continued by hand counts as running again. Ignored when the item does not exist
        or belongs to another delivery."""
        entry = self.state.items.get(signal.item)
        if entry is None or entry.child.id not in ("", signal.delivery):
            return
        if entry.phase is not ItemPhase.LANDED:
            entry.phase = ItemPhase.BUILDING  # somebody went on with it by hand
        entry.child.id, entry.child.run_id, entry.landing.seq = signal.delivery, signal.run_id, signal.seq
        self.items.give_turn_back(signal.item)
        self.state.landing.queue = (*self.state.landing.queue, signal.item)
        self._mark_changed("")

    @workflow.signal(description="Sent by a delivery that has landed, or cannot land as it is")
    async def landing_over(self, signal: LandingEnded) -> None:
        """Record the end of a turn to land."""
        await self.origins.record_if_sent("landing_over", signal, self._record_landing_end)

    def _record_landing_end(self, signal: LandingEnded) -> None:
        """Record what a delivery landed, with the checks that passed, or why it did not land, and its cost; take its
        turn to land back. Ignored when the item does not exist or belongs to another delivery."""
        entry = self.state.items.get(signal.item)
        if entry is None or entry.child.id != signal.delivery:
            return
        if signal.commit and entry.phase is not ItemPhase.LANDED:
            entry.landing.commit, self.state.landing.head, entry.phase = signal.commit, signal.commit, ItemPhase.LANDED
            checked_ids = self.state.landing.checks if self.state.landing.item == signal.item else ()
            record_branch_move(self.state, {signal.item, *checked_ids} - {*signal.unchecked}, workflow.now())
        entry.message = signal.reason
        entry.child.usd = entry.child.usd if signal.usd is None else signal.usd  # `item_ended` may come too late
        if signal.seq == entry.landing.seq:
            self.items.give_turn_back(signal.item)
        self._mark_changed("")

    @workflow.signal(description="Sent by a delivery that waits for a person, or goes on")
    async def item_waits(self, signal: ItemWaits) -> None:
        """Record a wait, or its end."""
        await self.origins.record_if_sent("item_waits", signal, self._record_waiting)

    def _record_waiting(self, signal: ItemWaits) -> None:
        """Record what a delivery waits for and which gate decides it; an empty reason means that it goes on. A delivery
        that waits during its turn to land loses the turn. Ignored when it is older than the newest such signal, or the
        item belongs to another delivery."""
        entry = self.state.items.get(signal.item)
        if entry is None or entry.child.id != signal.delivery or signal.number <= entry.waiting.number:
            return
        entry.waiting.number, entry.waiting.reason, entry.waiting.gate, entry.waiting.target, entry.waiting.since = (
            signal.number,
            signal.waiting_for,
            signal.gate,
            signal.target,
            signal.since,
        )
        entry.waiting.about, entry.waiting.pending_decision = (
            signal.about,
            signal.pending_decision.model_dump(mode="json") if signal.pending_decision is not None else None,
        )
        if (
            signal.waiting_for and self.state.landing.item == signal.item
        ):  # it asks a person in its turn: others land meanwhile
            self.items.give_turn_back(signal.item)
        self._mark_changed("")

    @workflow.signal(description="Sent by a delivery that has a plan")
    async def item_planned(self, signal: ItemPlanned) -> None:
        """Record the files of a plan."""
        await self.origins.record_if_sent("item_planned", signal, self._record_planned_files)

    def _record_planned_files(self, signal: ItemPlanned) -> None:
        """Record, as patterns of paths, the files that a delivery's plan names. Ignored when the item does not exist or
        belongs to another delivery."""
        entry = self.state.items.get(signal.item)
        if entry is not None and entry.child.id == signal.delivery:
            entry.foreseen.touches = patterns_of_paths(
                signal.touches
            )  # nothing can begin because of it, so nobody looks again

    @workflow.signal(description="Sent by a delivery whose commit would conflict with others, or would no longer")
    async def item_foreseen(self, signal: ItemForeseen) -> None:
        """Record the conflicts that are foreseen."""
        await self.origins.record_if_sent("item_foreseen", signal, self._record_foreseen_conflicts)

    def _record_foreseen_conflicts(self, signal: ItemForeseen) -> None:
        """Record with which other deliveries this one would conflict. Ignored when the item does not exist or belongs
        to another delivery."""
        if (entry := self.state.items.get(signal.item)) is not None and entry.child.id == signal.delivery:
            record_conflicts(self.state, signal.item, signal.conflicts)

    @workflow.signal(description="Sent by a delivery that has ended")
    async def item_ended(self, signal: ItemEnded) -> None:
        """Record the end of a delivery."""
        await self.origins.record_if_sent("item_ended", signal, self.items.record_end)

    def _validate_item(self, name: str, change: Any) -> None:
        """Raise ApplicationError NotCounted for an item that cannot be added or replaced: it does not fit the state, or
        its labels do not fit beside the backlog's, as its delivery has both. An item that an earlier release took is
        not looked at again."""
        _, item = self._parse_change(name, change, closed_reason=ended_reason(self.state))
        if reason := labels_refusal((*self.request.labels, *item.labels)):
            raise ApplicationError(f"item.{reason}", type="NotCounted", non_retryable=True)

    def _parse_change(self, name: str, change: Any, closed_reason: str = "") -> tuple[str, Any]:
        """Parse a change of an item; return the item's id and, for `add` and `edit`, the new item, else None. Raises
        ApplicationError NotCounted when it is malformed or does not fit the state.

        closed_reason  why the backlog takes no change any more; empty: it does. Only validators pass it, so that a
        change they let through is made
        """
        try:
            if name in ("add", "edit"):
                item = parse_input(AddItem, change).item
                id = item.id
            else:
                shape = PrioritisedItem if name == "prioritise" else NamedItem
                item, id = None, parse_input(shape, change).item
        except InvalidRequest as error:
            raise ApplicationError(error.what, type="NotCounted", non_retryable=True) from None
        reason = closed_reason or change_refusal(self.state, name, id, item, self.request.repository)
        if not reason and item is not None and self.request.is_stack:
            reason = no_place_reason(item, {other_id: entry.item for other_id, entry in self.state.items.items()})
        if reason:
            raise ApplicationError(reason, type="NotCounted", non_retryable=True)
        return id, item

    def _parse_leniently(self, shape: type[T], raw: Any, extract: Callable[[T], str]) -> str:
        """Return what `extract` reads from a signal's parsed payload; empty when the payload is malformed, so that a
        hold holds however it is put."""
        try:
            return extract(parse_input(shape, raw))  # type: ignore[type-var]
        except InvalidRequest:
            return ""

    def note_message(self, note: str) -> None:
        """Note in the state, for people, that a message did not count; beyond NOTES_KEPT notes it is dropped."""
        if len(self.state.notes) < NOTES_KEPT:
            self.state.notes += (shorten(note, 300),)
            self._mark_changed("")

    def _mark_changed(self, answer: str) -> str:
        """Wake the backlog's loop, and return `answer` as it is."""
        self.items.changed = True  # the loop runs in the same workflow task, and shows the change as well
        return answer
