"""Many requests land on one branch, one after the other. `deliver_all` is the whole process; read it first.

Landing belongs to each delivery (workflows/landing.py). Decided here is whose turn it is: to begin, and to land.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.backlog import BacklogRequest, BacklogState, ItemState
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.errors import InvalidRequest
from perdure.models.rules.backlog import parse_backlog, sent_digest
from perdure.models.rules.scheduling import ended, startable, views, wakes
from perdure.models.webui.backlog import details
from perdure.models.webui.details import refused
from workflows.endings import heed_cancellation, invalid
from workflows.items import Items
from workflows.items_inbox import TakesItems

BACKLOG_LOOK = timedelta(minutes=5)
"""Between looks for deliveries that ended without a word (terminated, or a worker of before): 6 events each time."""


@workflow.defn
class Backlog(TakesItems):
    """Takes a BacklogRequest as JSON, returns a BacklogProgress; see docs/backlog.md. `state`: of the run before."""

    @workflow.init
    def __init__(self, raw: Any = None, state: BacklogState | None = None) -> None:
        self.request, self.state = BacklogRequest.model_construct(repository="", items=()), state or BacklogState()
        self.refused: ApplicationError | None = None
        try:
            self.request = self._accept(raw, again=state is not None)
        except InvalidRequest as error:
            self.refused = invalid(error.what)
        self.items = Items(self.request, self.state, raw)

    @workflow.run
    async def run(self, raw: Any = None, state: BacklogState | None = None) -> BacklogProgress:
        """Deliver all that can be, and end: with nothing left, or when somebody cancels it, which goes down."""
        if self.refused is not None:
            workflow.set_current_details(refused(self.refused.message))
            raise self.refused
        try:
            await self.deliver_all()
            await self.items.publish()
        except asyncio.CancelledError:
            self.state.status = "cancelled"
            await self.items.cancel()
            self.refresh()
            raise
        self.state.status = "ended"
        self.refresh()
        return self.progress()

    async def deliver_all(self) -> None:
        """Begin what may begin, grant the turn to land, hear what became of it; until nothing can move any more."""
        await self.items.open()
        while not ended(self.request, self.state, workflow.now()):
            for start in startable(self.request, self.state, workflow.now()):
                await self.items.begin(start)
            await self.items.grant_turn()
            self.refresh()
            await self.something_happens()
            self.go_on_in_a_new_run()

    async def something_happens(self) -> None:
        """A message, the end of a child, the window that opens; or it is time to look for who says nothing."""
        now = workflow.now()
        opens = wakes(self.request, self.state, now)
        pauses = [BACKLOG_LOOK] if self.items.running else []
        pauses += [max(opens - now, timedelta(seconds=1))] if opens is not None else []
        try:
            await workflow.wait_condition(
                lambda: self.items.changed or bool(self.items.unsure),
                timeout=min(pauses, default=None),
                timeout_summary="the window opens" if opens is not None else "a look at the deliveries",
            )
        except TimeoutError:
            self.items.unsure.update(self.items.running)
        self.items.changed = False
        heed_cancellation()
        if self.items.unsure:
            await self.items.look()

    def go_on_in_a_new_run(self) -> None:
        """The state is all that goes along; deliveries run on, and tell the same workflow id."""
        quiet = workflow.all_handlers_finished() and not self.items.changed
        if workflow.info().is_continue_as_new_suggested() and quiet:
            request = self.request.model_copy(update={"items": ()}).model_dump(mode="json", exclude_defaults=True)
            workflow.continue_as_new(args=[request, self.state])

    def refresh(self) -> None:
        workflow.set_current_details(details(self.request, self.state, workflow.now()))

    @workflow.query(description="Where the backlog stands: perdure.models.backlog_messages.BacklogProgress")
    def progress(self) -> BacklogProgress:
        state, info = self.state, workflow.info()
        known = [at.usd for at in state.items.values()]
        return BacklogProgress(
            backlog_id=info.workflow_id,
            run_id=info.run_id,
            repository=self.request.repository,
            status=state.status,
            base=state.opened.base if state.opened else self.request.base or "",
            branch=state.opened.branch if state.opened else self.request.branch or "",
            head=state.head,
            parallel=self.request.parallel,
            budget_usd=self.request.budget_usd,
            usd=round(sum(known), 6),
            held=state.held,
            waiting=state.waiting,
            message=state.message,
            pull_request=state.pull_request,
            turn=state.turn,
            began=state.began,
            items=views(self.request, state, workflow.now()),
        )

    def _accept(self, raw: Any, *, again: bool) -> BacklogRequest:
        """The request as it was sent; a bad one is refused at once, with the item and the field."""
        if again:
            listed = {name: tuple(raw.get(name, ())) for name in ("gates", "labels")}
            return BacklogRequest.model_construct(**(raw | listed | {"items": ()}))
        request = parse_backlog(raw)
        for order, item in enumerate(request.items):
            self.state.items[item.id] = ItemState(item=item, order=order)
        self.state.began, self.state.sent = workflow.now(), sent_digest(request)
        return request
