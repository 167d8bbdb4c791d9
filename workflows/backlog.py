"""Many requests land on one branch, one after the other. `deliver_all` is the whole process; read it first.

Landing belongs to each delivery (workflows/landing.py). Decided here is whose turn it is: to begin, and to land.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ParentClosePolicy

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.backlog_state import BacklogState, ItemState
from perdure.models.errors import InvalidRequest
from perdure.models.ids import following
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.notice import backlog_notice
from perdure.models.rules.backlog import parse_backlog, sent_digest, unlisted
from perdure.models.rules.checking import unchecked
from perdure.models.rules.scheduling import ended, startable, views, wakes
from perdure.models.webui.backlog import details
from perdure.models.webui.details import refused
from workflows.attributes import set_attributes
from workflows.endings import BAD_REQUESTS, cancels, heed_cancellation, invalid, not_by_itself
from workflows.following import left_to_follow
from workflows.items import Items
from workflows.items_base import Base, FollowsBase
from workflows.items_begun import begin, why
from workflows.items_decided import HandsOn
from workflows.items_inbox import TakesItems
from workflows.items_stack import Stack
from workflows.items_told import ToldTasks
from workflows.notification import hand_over

BACKLOG_LOOK = timedelta(minutes=5)
"""Between looks for deliveries that ended without a word (terminated, or a worker of before): 6 events each time."""

HISTORY_MOST = 1000
"""Events of one run, before a new one begins: with a thousand items a worker that takes over needs a second for them,
and has five (WORKFLOW_TASK). The server would suggest it at 4096."""


@workflow.defn
class Backlog(TakesItems, FollowsBase, ToldTasks):
    """Takes a BacklogRequest as JSON, returns a BacklogProgress; see docs/backlog.md. `state`: of the run before."""

    @workflow.init
    def __init__(self, raw: Any = None, state: BacklogState | None = None) -> None:
        self.request, self.state = BacklogRequest.model_construct(repository="", items=()), state or BacklogState()
        self.known = state is None
        self.refused: ApplicationError | None = None
        try:
            self.request = self._accept(raw, again=state is not None)
        except InvalidRequest as error:
            self.refused = invalid(error.what)
        if self.state.opened is not None and self.state.opened.within is not None:
            self.refused = self.refused or not_by_itself(workflow.info().workflow_id)
        self.items = Items(self.request, self.state, raw)
        self.base = Base(self.request, self.state, self.items)
        self.decisions = HandsOn(self.state, self.items)
        self.stack = Stack(self.request, self.state, self.items.said, workflow.info().workflow_id)

    @workflow.run
    async def run(self, raw: Any = None, state: BacklogState | None = None) -> BacklogProgress:
        """Deliver all that can be, and end: with nothing left, or when somebody cancels it, which goes down."""
        if self.refused is not None:
            workflow.set_current_details(refused(self.refused.message))
            raise self.refused
        try:
            if not self.known:
                await self.know()
            await self.deliver_all()
            await self.publish()
            while self.asked_for_more():
                await self.deliver_all()
                await self.publish()
            self.state.status = "ended"  # from now on nobody is told that anything will be done
            await self.leave_stack()
        except (asyncio.CancelledError, ActivityError) as error:
            if isinstance(error, ActivityError) and not cancels(error):
                raise self.failed(error) from error
            self.state.status = "cancelled"
            self.base.stop()
            await self.items.cancel()
            if self.state.opened is not None and self.state.opened.within is not None:
                await self.items.over()
            self.items.leave_running()
            self.list_it()
            await self.tell_end()
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)  # whoever sent something just now is answered
        self.list_it()
        await self.tell_end()
        return self.progress()

    async def know(self) -> None:
        """Refuse a state that no run of ours has left: whoever may start a workflow may send any."""
        if words := await self.items.former():
            self.refused = invalid(words)
            workflow.set_current_details(refused(words))
            raise self.refused
        self.known, self.state.again = True, None

    async def deliver_all(self) -> None:
        """Begin what may begin, grant the turn to land, hear what became of it; until nothing can move any more."""
        await self.items.open()
        self.list_it()
        while not self.over():
            await self.stack.look()
            for start in startable(self.request, self.state, workflow.now()):
                await begin(self.items, start)
            if not self.base.busy:
                await self.items.grant_turn()
            await self.something_happens()
            self.go_on_in_a_new_run()

    async def publish(self) -> None:
        """Propose what has landed."""
        self.items.changed = False
        await self.stack.look(last=True)
        await self.items.publish()

    def asked_for_more(self) -> bool:
        """Somebody has added an item, say, while all of it was being proposed: they were told that it is done."""
        settled = ended(self.request, self.state, workflow.now()) and self.base.settled
        return self.items.changed and not settled and workflow.patched("asked-as-it-ends")

    async def leave_stack(self) -> None:
        """Its pull requests are merged after it has ended, by people: what stands on one is moved then, too."""
        id, info = workflow.info().workflow_id, workflow.info()
        left = left_to_follow(id, self.items.said, self.state) if self.request.land == "stack" else None
        if left is not None and workflow.patched("stack-followed"):
            await workflow.start_child_workflow(
                "Following",
                left,
                id=following(id, info.run_id),
                task_queue=TASK_QUEUE,
                task_timeout=WORKFLOW_TASK,
                parent_close_policy=ParentClosePolicy.ABANDON,
                static_summary="moves what stands on a merged pull request",
            )

    def over(self) -> bool:
        """Nothing can move any more, and the branch stands on its base as that is now, or a person left it."""
        last = ended(self.request, self.state, workflow.now())
        return self.base.look(last=last) and last

    async def something_happens(self) -> None:
        """A message, the end of a child, a time at which items may begin; or one to look for who says nothing."""
        now = workflow.now()
        opens = wakes(self.request, self.state, now)
        pauses = [BACKLOG_LOOK] if self.items.running else []
        pauses += [max(opens - now, timedelta(seconds=1))] if opens is not None else []
        try:
            await workflow.wait_condition(
                lambda: self.items.changed or bool(self.items.unsure),
                timeout=min(pauses, default=None),
                timeout_summary="an item may begin" if opens is not None else "a look at the deliveries",
            )
        except TimeoutError:
            if workflow.now() >= now + BACKLOG_LOOK:
                self.items.unsure.update(self.items.running)
        self.items.changed = False
        heed_cancellation()
        if self.items.unsure:
            await self.items.look()

    def failed(self, error: ActivityError) -> ApplicationError:
        """For an end that nobody asked for, such as a base that is not there: it says why, wherever somebody looks."""
        state, words = self.state, why(error)
        state.status, state.message, state.waiting = "failed", words, ""
        if isinstance(error.cause, ApplicationError) and error.cause.type in BAD_REQUESTS:
            return invalid(words)
        return ApplicationError(
            words, self.progress().model_dump(mode="json"), type="BacklogFailed", non_retryable=True
        )

    def list_it(self) -> None:
        """In the server's lists and filters, at its beginning and its end: each time is an event."""
        state, opened = self.state, self.state.opened
        if opened is not None and opened.lists:
            values = {
                "PerdureRepository": self.request.repository,
                "PerdureStatus": state.status,
                "PerdureBranch": opened.branch,
                "PerdurePullRequest": state.pull_request,
            }
            set_attributes(values, sum(at.usd for at in state.items.values()))

    async def tell_end(self) -> None:
        """To those whose addresses the host has that opened it."""
        if self.state.opened is not None and self.state.opened.notifies:
            id = f"notice-{workflow.uuid4().hex[:16]}"
            await hand_over(backlog_notice(self.progress(), id=id, at=workflow.now()))

    def go_on_in_a_new_run(self) -> None:
        """The state is all that goes along; deliveries run on, and tell the same workflow id."""
        quiet = workflow.all_handlers_finished() and not self.items.changed and not self.base.busy
        info = workflow.info()
        long = info.is_continue_as_new_suggested() or info.get_current_history_length() > HISTORY_MOST
        if long and quiet:
            request = self.request.model_copy(update={"items": ()}).model_dump(mode="json", exclude_defaults=True)
            workflow.continue_as_new(args=[request, self.state.carried()])

    def shown(self) -> str:
        """For the Web UI, made when somebody looks (perdure/plugin.py): with a thousand items it takes 50 ms, and what
        is made with every decision is made again with each of them when a worker takes over."""
        return details(self.request, self.state, workflow.now(), workflow.info().workflow_id)

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
            land=self.request.land,
            head=state.head,
            parallel=self.request.parallel,
            budget_usd=budget + self.state.extra_usd if (budget := self.request.budget_usd) is not None else None,
            usd=round(sum(known), 6),
            held=state.held,
            asks=state.asks,
            waiting=state.waiting,
            message=state.message,
            notes=(*state.notes[-10:], *filter(None, (unchecked(state) if state.status != "running" else "",))),
            pull_request=state.pull_request,
            turn=state.turn,
            began=state.began,
            items=views(self.request, state, workflow.now()),
        )

    @workflow.query(name="state", description="All of it, with which another run goes on: perdure.models.backlog")
    def _whole(self) -> dict[str, Any]:
        return self.state.carried() if self.known else {}  # one that nobody has looked at is nobody's to go on with

    def _accept(self, raw: Any, *, again: bool) -> BacklogRequest:
        """The request as it was sent; a bad one is refused at once, with the item and the field."""
        if again:
            return unlisted(raw)
        request = parse_backlog(raw)
        for order, item in enumerate(request.items):
            self.state.items[item.id] = ItemState(item=item, order=order)
        self.state.began, self.state.sent = workflow.now(), sent_digest(request)
        return request
