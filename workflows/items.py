"""A backlog's deliveries: begun as children, heard by signals, looked for where they say nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from perdure.models.backlog import BacklogItem, BacklogRequest
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState, Opened
from perdure.models.former import Former, FormerInput, state_digest
from perdure.models.landing import (
    CloseBacklogInput,
    ClosedBacklog,
    Found,
    ItemEnded,
    LandingGranted,
    Look,
    LookInput,
    OpenBacklogInput,
)
from perdure.models.limits import FORGE_PAUSE, FORGE_PAUSE_MAX, HEARTBEAT_TIMEOUT, NOTES_KEPT, TASK_QUEUE
from perdure.models.rules.changes import leave_out
from perdure.models.rules.checking import checks, unchecked
from perdure.models.rules.ends import take_end
from perdure.models.rules.scheduling import next_to_land, wanted
from perdure.models.webui.backlog import table
from workflows.items_begun import MEANWHILE, why
from workflows.publishing import FORGE_ATTEMPT, FORGE_PATIENCE
from workflows.room import room_for_pull_request
from workflows.telling import tell

T = TypeVar("T")

TURN_MOST = timedelta(hours=2)
"""For one landing: its tests run in that time or not at all. Then others land: the branch moves by compare-and-swap, so
whoever comes late only finds that it moved."""

ENDED_SOON = timedelta(minutes=2)
"""For a turn to hear that it was cancelled, which comes with a heartbeat, and for its delivery to tidy up."""

AGAIN = RetryPolicy(initial_interval=FORGE_PAUSE, backoff_coefficient=2.0, maximum_interval=FORGE_PAUSE_MAX)
"""A remote that is away is waited for; what it refuses is not tried again."""


class Items:
    """The items of one backlog, as its workflow acts on them.

    changed  something was heard that may let another item move
    unsure   items of whose delivery it has to be found out what became of it
    beginning   those whose delivery is being begun; with a note where somebody has cancelled it meanwhile
    """

    def __init__(self, request: BacklogRequest, state: BacklogState, said: Any) -> None:
        self.request, self.state = request, state
        self.said = {name: value for name, value in said.items() if name != "items"} if isinstance(said, dict) else {}
        self._given = state_digest(state) if state.again else ""  # before a signal changes it
        self.changed = False
        self.unsure: set[str] = set()
        self.beginning: dict[str, str | None] = {}
        self._children: dict[str, asyncio.Task[None]] = {}

    @property
    def running(self) -> list[str]:
        return [id for id, at in self.state.items.items() if at.phase is ItemPhase.BUILDING]

    async def open(self) -> None:
        """Find the base and make the integration branch, before anything is paid for."""
        if self.state.opened is not None:
            return
        work = OpenBacklogInput(
            backlog=workflow.info().workflow_id,
            repository=self.request.repository,
            base=self.request.base or "",
            branch=self.request.branch or "",
            source=self.request.source or "",
            said=self.said,
        )
        self.state.waiting = "for its branch"
        opened = await self.activity("open_backlog", work, Opened, "the base")
        if self.request.land == "stack":  # each item has a branch of its own
            if self.request.issues and workflow.patched("issues-in-a-stack"):
                self._list(await self.activity("make_branch", work, Opened, self.request.issues, queue=opened.queue))
            self.state.opened, self.state.waiting = opened.model_copy(update={"branch": "", "follows": False}), ""
            return
        await room_for_pull_request(self.state, opened, work)
        self.state.opened = await self.activity("make_branch", work, Opened, opened.branch, queue=opened.queue)
        self.state.waiting = ""
        self._list(self.state.opened)

    def _list(self, opened: Opened) -> None:
        """Open issues become items; those that are built already are named."""
        built = sorted(opened.proposed.items())[:NOTES_KEPT]
        self.state.notes += tuple(f"#{number} is left out: #{pull} is open for it" for number, pull in built)
        known = {at.item.issue_number for at in self.state.items.values()}
        for number in opened.issues:
            item = BacklogItem(id=f"issue-{number}", issue=number)
            if number not in known and item.id not in self.state.items:
                self.state.items[item.id] = ItemState(item=item, order=len(self.state.items))

    async def former(self) -> str:
        """Say why the state that this run was given does not count; empty: a run or a delivery of ours has left it."""
        if not workflow.patched("former-run"):
            return ""
        info = workflow.info()
        work = FormerInput(
            backlog=info.workflow_id,
            continued=info.continued_run_id or "",
            parent=info.parent.workflow_id if info.parent else "",
            parent_run=info.parent.run_id if info.parent else "",
            again=self.state.again,
            said=self.said,
            state=self._given,
        )
        return (await self.activity("former_run", work, Former, "where it goes on from")).refused

    def heed(self, id: str, child: ChildWorkflowHandle[Any, Any]) -> None:
        """Hear of its delivery's end, where that tells nobody."""
        self._children[id] = asyncio.create_task(self._ended(id, child))

    async def grant_turn(self) -> None:
        """Grant the turn to land to whose it is, one at a time; nobody keeps it for ever."""
        state = self.state
        if state.turn and state.granted is not None and workflow.now() < state.granted + TURN_MOST:
            return
        state.turn = next_to_land(state)
        while id := state.turn:
            at, state.granted = state.items[id], workflow.now()
            state.queue = tuple(other for other in state.queue if other != id)
            check = checks(state, id)
            state.checking = tuple(check)
            said = LandingGranted(seq=at.asked, head=state.head, check=check)
            if await tell(workflow.get_external_workflow_handle(at.delivery), "landing_granted", said):
                return
            self.unsure.add(id)
            state.turn = next_to_land(state)

    async def look(self) -> None:
        """Find out what became of deliveries that said nothing."""
        asked = {self.state.items[id].delivery: id for id in sorted(self.unsure) if id in self.state.items}
        self.unsure.clear()
        work = LookInput(deliveries=tuple(asked), ships=self.request.land == "stack")
        look = await self.activity("look_for", work, Look, f"{len(asked)} of its deliveries")
        for delivery, found in look.found.items():
            self._take(asked[delivery], found)

    async def publish(self) -> None:
        """One pull request with all that landed."""
        state, opened = self.state, self.state.opened
        landed = [id for id, at in state.items.items() if at.phase is ItemPhase.LANDED]
        if opened is None or not landed or opened.within is not None:  # tasks: their delivery takes it from here
            state.message = f"{len(landed)} tasks built" if landed else "nothing landed"
            return
        if self.request.land == "stack":
            state.message = f"{len(landed)} of {wanted(state)} items have a pull request"
            return
        id, notes = workflow.info().workflow_id, (*state.notes, unchecked(state))
        work = CloseBacklogInput(
            backlog=id,
            repository=self.request.repository,
            base=opened.base,
            branch=opened.branch,
            head=state.head,
            title=f"{id}: {len(landed)} of {wanted(state)} items",
            body="\n\n".join([table(self.request, state), *(f"- {note}" for note in notes if note)]),
            issues=tuple(sorted(filter(None, (state.items[id].item.issue_number for id in landed)))),
            source=self.request.source or "",
            said=self.said,
        )
        try:
            done = await self.activity("close_backlog", work, ClosedBacklog, opened.branch, queue=opened.queue)
            state.pull_request = done.pull_request.url if done.pull_request else ""
            state.message = done.message
        except ActivityError as error:
            words = f"{len(landed)} landed on {opened.branch}; no pull request: {why(error)}"[:400]
            state.message = f"{words}; once that is out of the way: perdure backlog retry {id}"

    async def cancel(self) -> None:
        """Cancel every delivery that runs; each keeps its work."""
        for id in self.running:
            await self._signal_child(id, None)

    def leave_running(self) -> None:
        """Count as cancelled those that still run: this backlog hears of no end any more. Retry goes on with them."""
        for id in self.running:
            leave_out(self.state.items[id], ItemPhase.CANCELLED, "its backlog was cancelled", workflow.now())

    async def hold(self, note: str) -> None:
        """Hold every delivery that runs, too."""
        await asyncio.gather(*(self._signal_child(id, ("hold", {"note": note})) for id in self.running))

    async def resume(self) -> None:
        await asyncio.gather(*(self._signal_child(id, ("resume", {})) for id in self.running))

    async def over(self) -> None:
        """Wait for deliveries that were cancelled: what tasks cost is known to theirs once they have ended."""
        if not workflow.patched("tasks-end-first"):
            return
        with suppress(TimeoutError):
            await workflow.wait_condition(self._all_over, timeout=ENDED_SOON, timeout_summary="its deliveries end")

    def _all_over(self) -> bool:
        return all(child.done() for child in self._children.values())

    async def tell(self, id: str, signal: str, said: dict[str, Any]) -> None:
        await self._signal_child(id, (signal, said))

    async def cancel_item(self, id: str, note: str = "") -> None:
        if id in self.beginning and workflow.patched(MEANWHILE):
            self.beginning[id] = note
        else:
            await self._signal_child(id, None)

    def hear_end(self, said: ItemEnded) -> None:
        """A delivery's own word on how it ended; an earlier run's says nothing about the one that goes on."""
        at = self.state.items.get(said.item)
        if at is None or at.delivery != said.delivery or (at.run_id and said.run_id != at.run_id):
            return
        self._end(said.item, at, said)

    def _take(self, id: str, found: Found) -> None:
        """Take in what a look has found; who still runs is left alone."""
        at = self.state.items[id]
        if at.phase is not ItemPhase.BUILDING:
            return
        if found.status == "running":
            at.run_id = found.run_id or at.run_id
            return
        self._end(id, at, found)

    def _end(self, id: str, at: ItemState, said: ItemEnded | Found) -> None:
        take_end(self.state, id, said, workflow.now(), stacked=self.request.land == "stack")
        self.give_turn_back(id)
        self.changed = True

    def give_turn_back(self, id: str) -> None:
        self.state.queue = tuple(other for other in self.state.queue if other != id)
        if self.state.turn == id:
            self.state.turn, self.state.granted, self.state.checking = "", None, ()

    async def _ended(self, id: str, child: ChildWorkflowHandle[Any, Any]) -> None:
        """It has told of its end before; where it could not, that is to be found out."""
        refused = ""
        try:
            await child
        except ChildWorkflowError as error:
            cause = error.cause
            refused = cause.message if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest" else ""
        except asyncio.CancelledError:
            return
        at = self.state.items.get(id)
        if at is None or at.phase is not ItemPhase.BUILDING or at.run_id != child.first_execution_run_id:
            return
        if refused:  # before it began, so that nobody is told of its end
            self._end(id, at, Found(status="not_delivered", message=refused.removeprefix("InvalidRequest: ")))
        else:
            self.unsure.add(id)

    async def _signal_child(self, id: str, signal: tuple[str, dict[str, Any]] | None) -> None:
        """Send it on; None cancels. Who has ended meanwhile needs nothing."""
        handle = workflow.get_external_workflow_handle(self.state.items[id].delivery)
        with suppress(ApplicationError):
            await (handle.cancel() if signal is None else tell(handle, *signal))

    async def activity(self, name: str, work: Any, result: type[T], summary: str, *, queue: str = TASK_QUEUE) -> T:
        done: T = await workflow.execute_activity(
            name,
            work,
            result_type=result,
            task_queue=queue,
            schedule_to_close_timeout=FORGE_PATIENCE,
            start_to_close_timeout=FORGE_ATTEMPT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=AGAIN,
            summary=summary[:100],
        )
        return done
