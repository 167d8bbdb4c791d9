"""A backlog's deliveries: started as child workflows, heard by signals, and looked up where they are silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from perdure.models.backlog.landing import (
    CloseBacklogInput,
    CloseBacklogResult,
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    ItemEnded,
    LandingGranted,
    OpenBacklogInput,
)
from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.backlog.state import (
    BacklogState,
    ItemPhase,
    ItemState,
    OpenBacklogResult,
    PreviousRunInput,
    PreviousRunResult,
    state_digest,
)
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, HEARTBEAT_TIMEOUT, NOTES_KEPT, TASK_QUEUE
from perdure.models.rules.changes import apply_item_end, end_idle_item
from perdure.models.rules.landed_checks import checks_for_landing, unchecked_summary
from perdure.models.rules.scheduling import count_items_to_land, next_to_land
from perdure.models.webui.backlog import render_items_table
from workflows.publishing import FORGE_ATTEMPT, FORGE_PATIENCE, wait_for_pull_request_room
from workflows.signals import send_signal
from workflows.start_item import failure_reason

T = TypeVar("T")

TURN_LIMIT = timedelta(hours=2)
"""Longest time for one landing: its tests run in that time or not at all. Then others land: the branch moves by
compare-and-swap, so whoever comes late only finds that it moved."""

ENDS_PATIENCE = timedelta(minutes=2)
"""Time for cancelled deliveries to end: the cancellation reaches a turn with a heartbeat, then they tidy up."""

FORGE_RETRIES = RetryPolicy(initial_interval=FORGE_PAUSE, backoff_coefficient=2.0, maximum_interval=FORGE_PAUSE_MAX)
"""Retries while a remote is away; what it refuses is not tried again."""


class Items:
    """The items of one backlog, as its workflow acts on them.

    changed   something was heard that may let another item move
    unsure    ids of items of whose delivery it has to be looked up what became of it
    starting  ids of items whose delivery is being started; with a note where somebody has cancelled it meanwhile
    """

    def __init__(self, request: BacklogRequest, state: BacklogState, raw_request: Any) -> None:
        self.request, self.state = request, state
        self.request_fields = (
            {name: value for name, value in raw_request.items() if name != "items"}
            if isinstance(raw_request, dict)
            else {}
        )
        self._initial_digest = state_digest(state) if state.reopened_from else ""  # before a signal changes it
        self.changed = False
        self.unsure: set[str] = set()
        self.starting: dict[str, str | None] = {}
        self._children: dict[str, asyncio.Task[None]] = {}

    @property
    def running_ids(self) -> list[str]:
        """Return the ids of items whose delivery runs."""
        return [id for id, entry in self.state.items.items() if entry.phase is ItemPhase.BUILDING]

    async def open_branch(self) -> None:
        """Find the base and make the integration branch, before anything is paid for; open issues become items. Does
        nothing where a run before has done it.

        A stack has no such branch. Otherwise it waits until fewer pull requests are open than may be. Raises
        ActivityError.
        """
        if self.state.opened is not None:
            return
        work = OpenBacklogInput(
            backlog=workflow.info().workflow_id,
            repository=self.request.repository,
            base=self.request.base or "",
            branch=self.request.branch or "",
            source=self.request.source or "",
            backlog_request=self.request_fields,
        )
        self.state.waiting = "for its branch"
        opened = await self.run_activity("open_backlog", work, OpenBacklogResult, "the base")
        if self.request.land == "stack":  # each item has a branch of its own
            if self.request.issues:
                self._add_issue_items(
                    await self.run_activity(
                        "make_branch", work, OpenBacklogResult, self.request.issues, queue=opened.queue
                    )
                )
            self.state.opened, self.state.waiting = opened.model_copy(update={"branch": "", "follows_base": False}), ""
            return
        await wait_for_pull_request_room(self.state, opened, work)
        self.state.opened = await self.run_activity(
            "make_branch", work, OpenBacklogResult, opened.branch, queue=opened.queue
        )
        self.state.waiting = ""
        self._add_issue_items(self.state.opened)

    def _add_issue_items(self, opened: OpenBacklogResult) -> None:
        """Add an item for each open issue that was found; note those that are left out because a pull request is open
        for them."""
        proposed = sorted(opened.issue_pull_requests.items())[:NOTES_KEPT]
        self.state.notes += tuple(
            f"#{number} is left out: #{pull_request} is open for it" for number, pull_request in proposed
        )
        listed_numbers = {entry.item.issue_number for entry in self.state.items.values()}
        for number in opened.issues:
            item = BacklogItem(id=f"issue-{number}", issue=number)
            if number not in listed_numbers and item.id not in self.state.items:
                self.state.items[item.id] = ItemState(item=item, order=len(self.state.items))

    async def previous_run_problem(self) -> str:
        """Return why the state that this run was given does not count, as activity `former_run` finds out; empty: a run
        or a delivery of ours has left it."""
        info = workflow.info()
        work = PreviousRunInput(
            backlog=info.workflow_id,
            continued_run_id=info.continued_run_id or "",
            parent_id=info.parent.workflow_id if info.parent else "",
            parent_run_id=info.parent.run_id if info.parent else "",
            reopened_from=self.state.reopened_from,
            backlog_request=self.request_fields,
            digest=self._initial_digest,
        )
        return (await self.run_activity("former_run", work, PreviousRunResult, "where it goes on from")).reason

    def watch_child(self, id: str, child: ChildWorkflowHandle[Any, Any]) -> None:
        """Watch a child delivery in a task of its own, for an end that it tells nobody."""
        self._children[id] = asyncio.create_task(self._watch_end(id, child))

    async def grant_landing_turn(self) -> None:
        """Give the turn to land to the next delivery in the queue, by signal, unless another one has it; nobody keeps
        it longer than TURN_LIMIT. One that has ended is noted in `unsure` and passed over."""
        state = self.state
        if (
            state.landing_item
            and state.turn_granted_at is not None
            and workflow.now() < state.turn_granted_at + TURN_LIMIT
        ):
            return
        state.landing_item = next_to_land(state)
        while id := state.landing_item:
            entry, state.turn_granted_at = state.items[id], workflow.now()
            state.landing_queue = tuple(other for other in state.landing_queue if other != id)
            checks_to_run = checks_for_landing(state, id)
            state.landing_checks = tuple(checks_to_run)
            grant = LandingGranted(seq=entry.landing_seq, head=state.head, check=checks_to_run)
            if await send_signal(workflow.get_external_workflow_handle(entry.delivery), "landing_granted", grant):
                return
            self.unsure.add(id)
            state.landing_item = next_to_land(state)

    async def look_up_silent(self) -> None:
        """Look up what became of the deliveries of the items in `unsure`, and record it."""
        ids_by_delivery = {self.state.items[id].delivery: id for id in sorted(self.unsure) if id in self.state.items}
        self.unsure.clear()
        work = DeliveryLookupInput(deliveries=tuple(ids_by_delivery), ships=self.request.land == "stack")
        lookup = await self.run_activity("look_for", work, DeliveryLookup, f"{len(ids_by_delivery)} of its deliveries")
        for delivery, fate in lookup.statuses.items():
            self._record_fate(ids_by_delivery[delivery], fate)

    async def open_pull_request(self) -> None:
        """Open one pull request with all that landed, and set the backlog's message.

        Nothing is opened where nothing landed, for a stack, and for a plan's tasks, which their delivery takes over. A
        failure becomes the message.
        """
        state, opened = self.state, self.state.opened
        landed = [id for id, entry in state.items.items() if entry.phase is ItemPhase.LANDED]
        if opened is None or not landed or opened.within is not None:  # tasks: their delivery takes it from here
            state.message = f"{len(landed)} tasks built" if landed else "nothing landed"
            return
        if self.request.land == "stack":
            state.message = f"{len(landed)} of {count_items_to_land(state)} items have a pull request"
            return
        id, notes = workflow.info().workflow_id, (*state.notes, unchecked_summary(state))
        work = CloseBacklogInput(
            backlog=id,
            repository=self.request.repository,
            base=opened.base,
            branch=opened.branch,
            head=state.head,
            title=f"{id}: {len(landed)} of {count_items_to_land(state)} items",
            body="\n\n".join([render_items_table(self.request, state), *(f"- {note}" for note in notes if note)]),
            issues=tuple(sorted(filter(None, (state.items[id].item.issue_number for id in landed)))),
            source=self.request.source or "",
            backlog_request=self.request_fields,
        )
        try:
            closed = await self.run_activity(
                "close_backlog", work, CloseBacklogResult, opened.branch, queue=opened.queue
            )
            state.pull_request = closed.pull_request.url if closed.pull_request else ""
            state.message = closed.message
        except ActivityError as error:
            reason = f"{len(landed)} landed on {opened.branch}; no pull request: {failure_reason(error)}"[:400]
            state.message = f"{reason}; once that is out of the way: perdure backlog retry {id}"

    async def cancel_running(self) -> None:
        """Cancel every delivery that runs; each keeps its work."""
        for id in self.running_ids:
            await self._signal_or_cancel(id, None)

    def mark_running_cancelled(self) -> None:
        """Mark items that still run as cancelled: this backlog hears of no end any more. A retry goes on with them."""
        for id in self.running_ids:
            end_idle_item(self.state.items[id], ItemPhase.CANCELLED, "its backlog was cancelled", workflow.now())

    async def hold_running(self, note: str) -> None:
        """Hold every delivery that runs, by signal."""
        await asyncio.gather(*(self._signal_or_cancel(id, ("hold", {"note": note})) for id in self.running_ids))

    async def resume_running(self) -> None:
        """Let every delivery that runs go on after a hold, by signal."""
        await asyncio.gather(*(self._signal_or_cancel(id, ("resume", {})) for id in self.running_ids))

    async def wait_for_ends(self) -> None:
        """Wait until the cancelled deliveries have ended, ENDS_PATIENCE at most: only then does the delivery whose plan
        it is know what its tasks cost."""
        with suppress(TimeoutError):
            await workflow.wait_condition(self._all_ended, timeout=ENDS_PATIENCE, timeout_summary="its deliveries end")

    def _all_ended(self) -> bool:
        return all(child.done() for child in self._children.values())

    async def signal_delivery(self, id: str, signal: str, payload: dict[str, Any]) -> None:
        """Send a signal to an item's delivery; one that has ended is left alone."""
        await self._signal_or_cancel(id, (signal, payload))

    async def cancel_delivery(self, id: str, note: str = "") -> None:
        """Cancel an item's delivery; where it is just being started, note that, so that it is not started, or is
        cancelled then."""
        if id in self.starting:
            self.starting[id] = note
        else:
            await self._signal_or_cancel(id, None)

    def record_end(self, end: ItemEnded) -> None:
        """Record the end that a delivery reports itself. A report of another delivery, or of an earlier run than the
        one that goes on, is ignored."""
        entry = self.state.items.get(end.item)
        if entry is None or entry.delivery != end.delivery or (entry.run_id and end.run_id != entry.run_id):
            return
        self._end_item(end.item, entry, end)

    def _record_fate(self, id: str, fate: DeliveryStatus) -> None:
        """Record what was looked up about a delivery: its end, or its run id where it still runs."""
        entry = self.state.items[id]
        if entry.phase is not ItemPhase.BUILDING:
            return
        if fate.status == "running":
            entry.run_id = fate.run_id or entry.run_id
            return
        self._end_item(id, entry, fate)

    def _end_item(self, id: str, entry: ItemState, end: ItemEnded | DeliveryStatus) -> None:
        """End an item as its delivery ended, give its turn back, and wake the backlog's loop."""
        apply_item_end(self.state, id, end, workflow.now(), stacked=self.request.land == "stack")
        self.give_turn_back(id)
        self.changed = True

    def give_turn_back(self, id: str) -> None:
        """Remove an item from the queue to land, and take the turn from it where it has it."""
        self.state.landing_queue = tuple(other for other in self.state.landing_queue if other != id)
        if self.state.landing_item == id:
            self.state.landing_item, self.state.turn_granted_at, self.state.landing_checks = "", None, ()

    async def _watch_end(self, id: str, child: ChildWorkflowHandle[Any, Any]) -> None:
        """Wait for the end of a child delivery. Where that has not reported it by then, note the item in `unsure`, or
        end it where its request was refused."""
        refusal = ""
        try:
            await child
        except ChildWorkflowError as error:
            cause = error.cause
            refusal = cause.message if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest" else ""
        except asyncio.CancelledError:
            return
        entry = self.state.items.get(id)
        if entry is None or entry.phase is not ItemPhase.BUILDING or entry.run_id != child.first_execution_run_id:
            return
        if refusal:  # refused before it began: such a delivery reports no end
            self._end_item(
                id, entry, DeliveryStatus(status="not_delivered", message=refusal.removeprefix("InvalidRequest: "))
            )
        else:
            self.unsure.add(id)

    async def _signal_or_cancel(self, id: str, signal: tuple[str, dict[str, Any]] | None) -> None:
        """Send a signal to an item's delivery; None cancels it. One that has ended meanwhile is left alone."""
        handle = workflow.get_external_workflow_handle(self.state.items[id].delivery)
        with suppress(ApplicationError):
            await (handle.cancel() if signal is None else send_signal(handle, *signal))

    async def run_activity(self, name: str, work: Any, result: type[T], summary: str, *, queue: str = TASK_QUEUE) -> T:
        """Run an activity of the backlog and return its result. A remote that is away is waited for, FORGE_PATIENCE at
        most; raises ActivityError."""
        output: T = await workflow.execute_activity(
            name,
            work,
            result_type=result,
            task_queue=queue,
            schedule_to_close_timeout=FORGE_PATIENCE,
            start_to_close_timeout=FORGE_ATTEMPT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=FORGE_RETRIES,
            summary=summary[:100],
        )
        return output
