"""A backlog's deliveries: started as child workflows, sent signals, and looked up when they may have ended without
saying so; the branch and the pull request they land in; and the turn to land.

What people do while a delivery is being started counts: a cancellation or a hold reaches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError, WorkflowAlreadyStartedError

from perdure.models.backlog.landing import (
    CloseBacklogInput,
    CloseBacklogResult,
    DeliveryLookup,
    DeliveryLookupInput,
    DeliveryStatus,
    ItemEnded,
    LandingGranted,
    OpenBacklogInput,
    ResumeInput,
    ResumeResult,
    SignRequestInput,
    SignRequestResult,
)
from perdure.models.backlog.request import BacklogItem, BacklogRequest, LandingPlace
from perdure.models.backlog.state import (
    SATISFIED,
    BacklogState,
    ItemPhase,
    ItemState,
    ItemWaiting,
    OpenBacklogResult,
    PreviousRunInput,
    PreviousRunResult,
    state_digest,
)
from perdure.models.concurrency_limit import fairness_key, temporal_priority
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, HEARTBEAT_TIMEOUT, NOTES_KEPT, TASK_QUEUE
from perdure.models.phases import Phase
from perdure.models.rules.changes import apply_item_end, end_idle_item
from perdure.models.rules.dependencies import start_branch, unlanded_outcomes
from perdure.models.rules.landed_checks import checks_for_landing, unchecked_items
from perdure.models.rules.parallel_builds import parent_of_task
from perdure.models.rules.scheduling import ItemStart, count_items_to_land, next_to_land
from perdure.models.webui.captions import request_title
from perdure.text import shell_word, shorten
from workflows.children import Child, Children, Signal, hold_signal, message_signal, send_to_all
from workflows.endings import failure_reason
from workflows.publishing import FORGE_ATTEMPT, FORGE_PATIENCE, wait_for_pull_request_room
from workflows.signals import send_signal, title_attribute

T = TypeVar("T")

TURN_LIMIT = timedelta(hours=2)
"""Longest time for one landing: its tests run in that time or not at all. Then others land: the branch moves by
compare-and-swap, so whoever comes late only finds that it moved."""

ENDS_PATIENCE = timedelta(minutes=2)
"""Time for cancelled deliveries to end: the cancellation reaches a turn with a heartbeat, then they tidy up."""

FORGE_RETRIES = RetryPolicy(initial_interval=FORGE_PAUSE, backoff_coefficient=2.0, maximum_interval=FORGE_PAUSE_MAX)
"""Retries while a remote is away; what it refuses is not tried again."""


def _own_or_default(own: T | None, default: T | None) -> T | None:
    return own if own is not None else default


class Items:
    """The items of one backlog, as its workflow acts on them.

    changed   something has happened that may let another item move
    unsure    ids of items whose delivery is to be looked up, because it may have ended
    starting  by id of an item whose delivery is being started: the note of a cancellation meanwhile, None without one
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
        self.children = Children[str]()

    @property
    def running_ids(self) -> list[str]:
        """Return the ids of items whose delivery runs."""
        return [id for id, entry in self.state.items.items() if entry.phase is ItemPhase.BUILDING]

    async def open_branch(self) -> None:
        """Find the base and make the integration branch, before anything is paid for, and add open issues as items,
        when requested. Does nothing when it is done already, in this run or an earlier one.

        A stack gets no such branch. Otherwise it first waits until fewer pull requests are open than the limit allows.
        Raises ActivityError.
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
        self.state.waiting = "creating its branch"
        opened = await self.run_activity(
            "open_backlog", work, OpenBacklogResult, "the base", queue=self.request.open_queue
        )
        if self.request.is_stack:  # each item has a branch of its own
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
        """Add an item for each open issue that was found, unless there is one; add a note for each issue that is left
        out because a pull request is open for it."""
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
        """Return why the state that this run was given does not count, as activity `former_run` finds out; empty when a
        run of this backlog or its parent delivery has left it. Raises ActivityError."""
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

    async def start(self, start: ItemStart) -> None:
        """Start an item's delivery, again when it has run before; a delivery that runs already is not started twice,
        but looked up. Does nothing when the item may no longer start. When its request cannot be made, the item has
        failed.

        A cancellation or hold that came while it started is passed on to it.
        """
        entry = self.state.items[start.id]
        if not self._may_still_start(entry):
            return
        entry.phase, entry.child.runs, entry.child.began_at, entry.child.granted_usd = (
            ItemPhase.BUILDING,
            entry.child.runs + 1,
            workflow.now(),
            start.usd,
        )
        entry.child.id = f"{workflow.info().workflow_id}/{start.id}"
        entry.waiting = ItemWaiting(number=entry.waiting.number)
        entry.message = entry.child.status = entry.child.reason = ""
        self.starting[start.id] = None
        try:
            await self._start_delivery(start, entry)
        finally:
            cancelled = self.starting.pop(start.id)
        if entry.phase is ItemPhase.BUILDING and cancelled is not None:
            await self.cancel_delivery(start.id)
        if entry.phase is ItemPhase.BUILDING and self.state.hold_reason:
            await self.send([start.id], hold_signal(self.state.hold_reason))

    async def _make_request(self, entry: ItemState) -> dict[str, Any]:
        """Make the request of an item's delivery, as JSON; for a later run, with the point at which it goes on, if
        there is one. It is signed when the backlog came with a proof.

        In a stack it records in the item the branch that the delivery begins from. Raises ActivityError.
        """
        backlog, item, opened = self.request, entry.item, self.state.opened
        assert opened is not None
        resumed_request: dict[str, Any] | None = None
        if entry.child.runs > 1:
            work = ResumeInput(workflow_id=entry.child.id)
            resumed_request = (
                await self.run_activity("resume_point", work, ResumeResult, f"where {item.id} goes on")
            ).request
        budget = entry.child.granted_usd if entry.child.granted_usd is not None else item.budget_usd
        is_stacked = backlog.is_stack
        if is_stacked and not resumed_request:
            entry.stacked.into = start_branch(self.state, item.id)
        raw = DeliveryRequest.model_construct(
            repository=backlog.repository,
            request=item.request,
            base=entry.stacked.into or opened.branch,
            gates=tuple(backlog.gates),
            budget_usd=budget,
            questions=backlog.questions,
            labels=(*backlog.labels, *item.labels),
            issue=item.issue,
            phases=(Phase.PLAN,) if item.decompose else None,
            attempts=_own_or_default(item.attempts, backlog.attempts) if not item.decompose else None,
            after_red=_own_or_default(item.after_red, backlog.after_red) if not item.decompose else None,
            model=backlog.model,
            agent=backlog.agent,
            config=backlog.config,
            source=backlog.source,
            host=backlog.host,
            landing=LandingPlace(
                backlog=workflow.info().workflow_id,
                item=item.id,
                branch=opened.base if is_stacked else opened.branch,
                role=item.role,
                decompose=item.decompose,
                within=parent_of_task(opened.within, item),
                ships=is_stacked,
            ),
        ).model_dump(mode="json", exclude_defaults=True)
        signed = await self.sign_request(raw, entry.child.id, f"sign the request of {item.id}")
        return signed | (
            {"resume": resumed_request["resume"]} if resumed_request and resumed_request.get("resume") else {}
        )

    async def sign_request(self, raw: dict[str, Any], workflow_id: str, summary: str) -> dict[str, Any]:
        """Return the request of a delivery of this backlog with a proof, by which the home that signed the backlog's
        own request accepts it; unchanged when the backlog came without one. Raises ActivityError."""
        if not self.request.proof:
            return raw
        work = SignRequestInput(
            backlog=workflow.info().workflow_id,
            backlog_request=self.request_fields,
            workflow_id=workflow_id,
            request=raw,
        )
        activity_name = "sign_item_request" if workflow.patched("sign_item_request") else "vouch"
        signed = await self.run_activity(activity_name, work, SignRequestResult, summary, queue=self.request.open_queue)
        return raw | ({"proof": signed.proof} if signed.proof else {})

    async def _start_delivery(self, start: ItemStart, entry: ItemState) -> None:
        """Start the child workflow of an item's delivery, watch for its end, and send it the messages that people have
        sent so far.

        It is not started when the item was cancelled or everything held while its request was made. When the delivery
        runs already, the item is added to `unsure`; when an activity fails, the item becomes failed.
        """
        try:
            raw = await self._make_request(entry)
            if (note := self.starting[start.id]) is not None:
                entry.child.runs -= 1  # no run was started
                return end_idle_item(entry, ItemPhase.CANCELLED, note, workflow.now())
            if self.state.hold_reason:
                entry.phase, entry.child.runs, entry.child.granted_usd = ItemPhase.WAITING, entry.child.runs - 1, None
                return None
            child = await self.children.start_detached(
                start.id,
                "Delivery",
                [raw],
                id=entry.child.id,
                summary=shorten(f"{start.id}: {entry.item.request}", 100),
                title=title_attribute(
                    request_title(raw), self.state.opened.extra_attributes if self.state.opened else ()
                ),
                priority=Priority(temporal_priority(entry.item.priority), fairness_key(entry.child.id, raw)),
            )
        except WorkflowAlreadyStartedError:
            self.unsure.add(start.id)
        except ActivityError as error:
            entry.phase, entry.message, entry.child.ended_at = (
                ItemPhase.FAILED,
                shorten(failure_reason(error), 300),
                workflow.now(),
            )
            self.changed = True
        else:
            entry.child.run_id = child.first_execution_run_id or ""
            self.children.watch(start.id, self._record_child_end)
            for message in self.state.tasks.messages:
                await self.send([start.id], message_signal(message))

    def _may_still_start(self, entry: ItemState) -> bool:
        """Return True when an item still waits to be started, nothing is held, and all that it depends on is satisfied.

        Messages may have changed that since it was decided, while another one was started.
        """
        dependencies = [self.state.items[id] for id in entry.item.depends_on if id in self.state.items]
        return (
            entry.phase is ItemPhase.WAITING
            and not self.state.hold_reason
            and all(dependency.phase in SATISFIED for dependency in dependencies)
        )

    async def grant_landing_turn(self) -> None:
        """Give the turn to land to the next delivery in the queue, by signal; do nothing while another one has had it
        for less than TURN_LIMIT, or nobody waits. A delivery that has ended is added to `unsure`, and the next one gets
        the turn."""
        state = self.state
        if (
            state.landing.item
            and state.landing.granted_at is not None
            and workflow.now() < state.landing.granted_at + TURN_LIMIT
        ):
            return
        state.landing.item = next_to_land(state)
        while id := state.landing.item:
            entry, state.landing.granted_at = state.items[id], workflow.now()
            state.landing.queue = tuple(other for other in state.landing.queue if other != id)
            checks_to_run = checks_for_landing(state, id)
            state.landing.checks = tuple(checks_to_run)
            grant = LandingGranted(seq=entry.landing.seq, head=state.landing.head, check=checks_to_run)
            if await send_signal(workflow.get_external_workflow_handle(entry.child.id), "landing_granted", grant):
                return
            self.unsure.add(id)
            state.landing.item = next_to_land(state)

    async def look_up_silent(self) -> None:
        """Look up, by activity `look_for`, what became of the deliveries of the items in `unsure`, empty that set, and
        record it. Raises ActivityError."""
        ids_by_delivery = {self.state.items[id].child.id: id for id in sorted(self.unsure) if id in self.state.items}
        self.unsure.clear()
        work = DeliveryLookupInput(deliveries=tuple(ids_by_delivery), ships=self.request.is_stack)
        lookup = await self.run_activity("look_for", work, DeliveryLookup, f"{len(ids_by_delivery)} of its deliveries")
        for delivery, fate in lookup.statuses.items():
            self._record_fate(ids_by_delivery[delivery], fate)

    async def open_pull_request(self) -> None:
        """Open one pull request with all that landed, and set the backlog's message and pull request.

        Nothing is opened when nothing landed, for a stack, and for a plan's tasks, which their delivery takes over; the
        message says so. A failure becomes the message; it is not raised.
        """
        state, opened = self.state, self.state.opened
        landed = [id for id, entry in state.items.items() if entry.phase is ItemPhase.LANDED]
        if opened is None or not landed or state.parent_delivery is not None:  # the delivery takes over its tasks
            state.message = f"{len(landed)} tasks built" if landed else "nothing landed"
            return
        if self.request.is_stack:
            state.message = f"{len(landed)} of {count_items_to_land(state)} items have a pull request"
            return
        id = workflow.info().workflow_id
        work = CloseBacklogInput(
            backlog=id,
            repository=self.request.repository,
            base=opened.base,
            branch=opened.branch,
            head=state.landing.head,
            unlanded=unlanded_outcomes(state),
            unchecked=unchecked_items(state),
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
            reason = shorten(f"{len(landed)} landed on {opened.branch}; no pull request: {failure_reason(error)}", 400)
            state.message = f"{reason}; once that is out of the way: perdure backlog retry {shell_word(id)}"

    async def cancel_running(self) -> None:
        """Request the cancellation of every delivery that runs, without waiting for the ends; each keeps its work."""
        for id in self.running_ids:
            await self._cancel(id)

    def mark_running_cancelled(self) -> None:
        """Mark items that still run as cancelled, because this backlog ends and will not see their end. A retry goes on
        with them."""
        for id in self.running_ids:
            end_idle_item(self.state.items[id], ItemPhase.CANCELLED, "its backlog was cancelled", workflow.now())

    async def send(self, ids: Iterable[str], signal: Signal) -> None:
        """Send a signal to the deliveries of items; those that have ended are skipped."""
        await send_to_all([self.state.items[id].child.id for id in ids], signal)

    async def wait_for_ends(self) -> None:
        """Wait until the cancelled deliveries have ended, ENDS_PATIENCE at most, so that the delivery whose plan this
        backlog builds knows what its tasks cost."""
        await self.children.wait_for_ends(ENDS_PATIENCE, "its deliveries end")

    async def cancel_delivery(self, id: str, note: str = "") -> None:
        """Request the cancellation of an item's delivery. While it is just being started, keep the note instead: then
        it is not started, or is cancelled right after."""
        if id in self.starting:
            self.starting[id] = note
        else:
            await self._cancel(id)

    def record_end(self, end: ItemEnded) -> None:
        """Record the end that a delivery reports itself, take its turn back, and wake the backlog's loop. A report of
        another delivery than the item's, or of an earlier run of it, is ignored."""
        entry = self.state.items.get(end.item)
        if entry is None or entry.child.id != end.delivery or (entry.child.run_id and end.run_id != entry.child.run_id):
            return
        self._end_item(end.item, entry, end)

    def _record_fate(self, id: str, fate: DeliveryStatus) -> None:
        """Record what was looked up about the delivery of the item `id`: its run id where it still runs; else end the
        item, give back its turn to land and set `changed`. Do nothing for an item that is no longer building."""
        entry = self.state.items[id]
        if entry.phase is not ItemPhase.BUILDING:
            return
        if fate.status == "running":
            entry.child.run_id = fate.run_id or entry.child.run_id
            return
        self._end_item(id, entry, fate)

    def _end_item(self, id: str, entry: ItemState, end: ItemEnded | DeliveryStatus) -> None:
        """End an item as its delivery ended, take its turn to land back, and wake the backlog's loop."""
        apply_item_end(self.state, id, end, workflow.now(), stacked=self.request.is_stack)
        self.give_turn_back(id)
        self.changed = True

    def give_turn_back(self, id: str) -> None:
        """Remove an item from the queue to land, and take the turn from it when it has it."""
        self.state.landing.queue = tuple(other for other in self.state.landing.queue if other != id)
        if self.state.landing.item == id:
            self.state.landing.item, self.state.landing.granted_at, self.state.landing.checks = "", None, ()

    def _record_child_end(self, id: str, child: Child, failure: ChildWorkflowError | None) -> None:
        """Handle the end of a child delivery. When it has reported its end itself, do nothing. When its request was
        refused, which it does not report, end the item as not delivered; else add the item to `unsure`, to be looked
        up."""
        entry = self.state.items.get(id)
        if entry is None or entry.phase is not ItemPhase.BUILDING or entry.child.run_id != child.first_execution_run_id:
            return
        cause = failure.cause if failure is not None else None
        if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest":
            message = cause.message.removeprefix("InvalidRequest: ")
            self._end_item(id, entry, DeliveryStatus(status="not_delivered", message=message))
        else:
            self.unsure.add(id)

    async def _cancel(self, id: str) -> None:
        """Request the cancellation of an item's delivery; do nothing when it has ended meanwhile."""
        with suppress(ApplicationError):
            await workflow.get_external_workflow_handle(self.state.items[id].child.id).cancel()

    async def run_activity(self, name: str, work: Any, result: type[T], summary: str, *, queue: str = TASK_QUEUE) -> T:
        """Run an activity of the backlog and return its result. It is tried again while a remote is away, for
        FORGE_PATIENCE at most. Raises ActivityError when that time is over or it fails for good."""
        output: T = await workflow.execute_activity(
            name,
            work,
            result_type=result,
            task_queue=queue,
            schedule_to_close_timeout=FORGE_PATIENCE,
            start_to_close_timeout=FORGE_ATTEMPT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=FORGE_RETRIES,
            summary=shorten(summary, 100),
        )
        return output
