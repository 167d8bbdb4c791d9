"""Workflow `Backlog`: many requests, each a delivery, land on one branch, one after the other. Method `deliver_all` is
the whole process; read it first.

Landing belongs to each delivery (workflows/landing.py). Decided here is whose turn it is: to start, and to land.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.workflow import ParentClosePolicy

from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogProgress, BacklogState, ItemState
from perdure.models.delivery.decisions import parse_input
from perdure.models.errors import InvalidRequest
from perdure.models.ids import TITLE, stack_workflow_id
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.notice import backlog_notice
from perdure.models.rules.admission import backlog_refusal, id_refusal
from perdure.models.rules.backlog import continued_request, digest_of_items, parse_backlog
from perdure.models.rules.landed_checks import unchecked_summary
from perdure.models.rules.scheduling import is_finished, item_views, next_start_time, startable_items
from perdure.models.webui.backlog import render_backlog_details
from perdure.models.webui.captions import backlog_title
from perdure.models.webui.details import render_refused
from workflows.backlog_inbox import BacklogInbox
from workflows.base_follower import BaseFollower, FollowUpdate
from workflows.endings import (
    ADMISSION,
    BAD_REQUESTS,
    failure_reason,
    foreign_start_error,
    invalid_request,
    is_cancellation,
    raise_if_cancelled,
    readable_text,
    refusal_reason,
    require_no_more,
)
from workflows.follow_up import PullRequestStack, stack_to_follow
from workflows.forwarding import DecisionForwarder, TaskMessages
from workflows.items import Items
from workflows.notification import has_subscribers, start_notification
from workflows.signal_origin import SignalOrigins
from workflows.signals import set_search_attributes

BACKLOG_LOOK = timedelta(minutes=5)
"""Pause between looks for deliveries that ended without saying so (terminated, or run by an older worker): 6 events
each time."""

HISTORY_MOST = 1000
"""Events of one run, before a new one begins. With a thousand items a worker that takes over needs a second for them,
and has five (WORKFLOW_TASK); the server would suggest a new run only at 4096."""


@workflow.defn
class Backlog(BacklogInbox, FollowUpdate, TaskMessages):
    """Workflow of a backlog: takes a BacklogRequest as JSON, returns a BacklogProgress; see docs/backlog.md.

    raw_state  the BacklogState of the run before this one; None: there was none
    """

    @workflow.init
    def __init__(self, raw: Any = None, raw_state: Any = None, *extra_args: Any) -> None:
        self.request, self.state = BacklogRequest.model_construct(repository="", items=()), BacklogState()
        self.state_verified = raw_state is None
        self.submission_error: ApplicationError | None = None
        try:
            require_no_more(extra_args, taken=2)
            if raw_state is not None:
                self.state = parse_input(BacklogState, raw_state)
            self.request = self._parse_request(raw, is_continued=raw_state is not None)
        except InvalidRequest as error:
            self.submission_error = invalid_request(error.what)
        if self.state.parent_delivery is not None:
            self.submission_error = self.submission_error or foreign_start_error(workflow.info().workflow_id)
        if self.submission_error is not None:
            self.request = BacklogRequest.model_construct(repository=readable_text(raw, "repository"), items=())
            self.state = BacklogState(status="failed", message=refusal_reason(self.submission_error))
        self.items = Items(self.request, self.state, raw)
        self.origins = SignalOrigins(self.items)
        self.base_follower = BaseFollower(self.request, self.state, self.items)
        self.decisions = DecisionForwarder(self.state, self.items)
        self.stack = PullRequestStack(self.request, self.state, self.items.request_fields, workflow.info().workflow_id)

    @workflow.run
    async def run(self, raw: Any = None, raw_state: Any = None, *extra_args: Any) -> BacklogProgress:
        """Run the backlog: deliver all that can be delivered, publish what landed, send a notice of the end, and return
        how it ended. A cancellation cancels the deliveries too, and is raised.

        Raises ApplicationError: InvalidRequest for a bad request, BacklogFailed when the backlog itself cannot go on.
        """
        if self.submission_error is not None:
            await self._end_refused(self.submission_error)
        try:
            if not self.state_verified:
                await self.verify_state()
            await self.deliver_all()
            await self.publish_landed()
            while self.has_new_work():
                await self.deliver_all()
                await self.publish_landed()
            self.state.status = "ended"  # from now on no sender is told that anything will be done
            await self.start_following()
        except (asyncio.CancelledError, ActivityError) as error:
            if isinstance(error, ActivityError) and not is_cancellation(error):
                failure = self.record_failure(error)
                await self.notify_end(refused=failure.type == InvalidRequest.__name__)
                raise failure from error
            self.state.status = "cancelled"
            self.base_follower.stop()
            await self.items.cancel_running()
            if self.state.parent_delivery is not None:
                await self.items.wait_for_ends()
            await self.origins.wait_until_recorded()
            self.items.mark_running_cancelled()
            self.update_listing()
            await self.notify_end()
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)  # updates that came just now are answered first
        self.update_listing()
        await self.notify_end()
        return self.progress()

    async def verify_state(self) -> None:
        """Check that the state this run was given comes from an earlier run of this backlog or its parent delivery, and
        mark it as verified: whoever may start a workflow may send any.

        Raises ApplicationError InvalidRequest when it does not; updates are answered with the same error from then on,
        and the Web UI shows the reason.
        """
        if reason := await self.items.previous_run_problem():
            self.submission_error = invalid_request(reason)
            self.state.status, self.state.message = "failed", reason
            await self._end_refused(self.submission_error)
        self.state_verified, self.state.reopened_from = True, None

    async def deliver_all(self) -> None:
        """Open the branch; then start items that may start, grant the turn to land, and wait for what becomes of them,
        until nothing can move any more. Pull requests of a stack are looked after, and a branch whose base has moved is
        brought onto it, in between. A long history continues in a new run, which ends this one. Raises CancelledError,
        or ActivityError when the branch cannot be opened or deliveries cannot be looked up."""
        await self.items.open_branch()
        self.update_listing()
        while not self.is_over():
            await self.stack.update_if_due()
            for start in startable_items(self.request, self.state, workflow.now()):
                await self.items.start(start)
            if not self.base_follower.is_busy:
                await self.items.grant_landing_turn()
            await self.wait_for_change()
            self.continue_in_new_run()

    async def publish_landed(self) -> None:
        """Look at the pull requests of a stack once more, and open the pull request for all that has landed."""
        self.items.changed = False
        await self.stack.update_if_due(is_last=True)
        await self.items.open_pull_request()
        await self.origins.wait_until_recorded()

    def has_new_work(self) -> bool:
        """Return True when something came while the backlog was being published that lets it go on, such as an added
        item, whose sender was told that it is added."""
        settled = is_finished(self.request, self.state, workflow.now()) and self.base_follower.is_settled
        return self.items.changed and not settled

    async def start_following(self) -> None:
        """Start workflow `Following` for a stack, and do not wait for its end: people merge its pull requests after the
        backlog has ended, and those that stand on a merged one have to move. Does nothing when none stands on another.
        """
        id, info = workflow.info().workflow_id, workflow.info()
        stack_left = stack_to_follow(id, self.items.request_fields, self.state) if self.request.is_stack else None
        if stack_left is not None:
            await workflow.start_child_workflow(
                "Following",
                stack_left,
                id=stack_workflow_id(id, info.run_id),
                task_queue=TASK_QUEUE,
                task_timeout=WORKFLOW_TASK,
                parent_close_policy=ParentClosePolicy.ABANDON,
                static_summary="moves what stands on a merged pull request",
            )

    def is_over(self) -> bool:
        """Return True when nothing can move any more, and the branch stands on its newest base or a person left it
        where it is. When it is due, this also starts the task that brings the branch onto a base that has moved."""
        nothing_moves = is_finished(self.request, self.state, workflow.now())
        return self.base_follower.look_if_due(is_last=nothing_moves) and nothing_moves

    async def wait_for_change(self) -> None:
        """Wait for a message, the end of a child, or a time at which items may start; then look up, on the server,
        deliveries that may have ended without saying so.

        While deliveries run it waits BACKLOG_LOOK at most, and looks all of them up after that. Raises CancelledError
        when the backlog was cancelled, ActivityError when they cannot be looked up.
        """
        now = workflow.now()
        wakes_at = next_start_time(self.request, self.state, now)
        pauses = [BACKLOG_LOOK] if self.items.running_ids else []
        pauses += [max(wakes_at - now, timedelta(seconds=1))] if wakes_at is not None else []
        try:
            await workflow.wait_condition(
                lambda: self.items.changed or bool(self.items.unsure),
                timeout=min(pauses, default=None),
                timeout_summary="until an item can start" if wakes_at is not None else "until the next status check",
            )
        except TimeoutError:
            if workflow.now() >= now + BACKLOG_LOOK:
                self.items.unsure.update(self.items.running_ids)
        self.items.changed = False
        raise_if_cancelled()
        if self.items.unsure:
            await self.items.look_up_silent()

    def record_failure(self, error: ActivityError) -> ApplicationError:
        """Record in the state that and why the backlog failed, such as a base that does not exist, and return the error
        to raise: ApplicationError InvalidRequest when the request was wrong, else BacklogFailed with the progress as
        details."""
        state, reason = self.state, failure_reason(error)
        state.status, state.message, state.waiting = "failed", reason, ""
        if isinstance(error.cause, ApplicationError) and error.cause.type in BAD_REQUESTS:
            return invalid_request(reason)
        return ApplicationError(
            reason, self.progress().model_dump(mode="json"), type="BacklogFailed", non_retryable=True
        )

    def update_listing(self) -> None:
        """Set the search attributes by which the server lists and filters backlogs, when the server has them and the
        branch is open. Called at the beginning and at the end only, because each time is an event."""
        state, opened = self.state, self.state.opened
        if opened is not None and opened.sets_search_attributes:
            values = {
                "PerdureRepository": self.request.repository,
                "PerdureStatus": state.status,
                "PerdureBranch": opened.branch,
                "PerdurePullRequest": state.pull_request,
            }
            usd = sum(entry.child.usd for entry in state.items.values())
            later = {TITLE: backlog_title(list(state.items))}
            set_search_attributes(values, usd, later, registered=opened.extra_attributes)

    async def _end_refused(self, error: ApplicationError) -> NoReturn:
        """Show that and why the request was refused, send the notice of the end, and raise the error."""
        workflow.set_current_details(render_refused(error.message))
        await self.notify_end(refused=True)
        raise error

    async def notify_end(self, *, refused: bool = False) -> None:
        """Send a notice of the end to the addresses of the host that opened the backlog or, where none has, of this
        worker's; do nothing when it has none. People being told is not waited for. `refused`: the request was."""
        opened = self.state.opened if self.state_verified else None
        if opened is not None:
            notifies = opened.notifies
        else:  # a plan's delivery tells of its own end
            notifies = self.state.parent_delivery is None and await has_subscribers()
        if notifies:
            id = f"notice-{workflow.uuid4().hex[:16]}"
            await start_notification(backlog_notice(self.progress(), id=id, at=workflow.now(), refused=refused))

    def continue_in_new_run(self) -> None:
        """Continue as a new run, which ends this one, when its history is long and no handler runs, no change is unseen
        and the branch is not being brought onto its base; else do nothing. Only the state goes along; deliveries run
        on, and signal the same workflow id."""
        is_idle = workflow.all_handlers_finished() and not self.items.changed and not self.base_follower.is_busy
        info = workflow.info()
        is_long = info.is_continue_as_new_suggested() or info.get_current_history_length() > HISTORY_MOST
        if is_long and is_idle:
            request = self.request.model_copy(update={"items": ()}).model_dump(mode="json", exclude_defaults=True)
            workflow.continue_as_new(args=[request, self.state.dump_for_next_run()])

    def shown(self) -> str:
        """Return the details for the Web UI, as Markdown. They are made when somebody looks (perdure/plugin.py calls
        this by name): with a thousand items it takes 50 ms, and details set with every decision would all be made again
        when a worker takes over."""
        return render_backlog_details(self.request, self.state, workflow.now(), workflow.info().workflow_id)

    @workflow.query(description="Where the backlog stands: perdure.models.backlog.state.BacklogProgress")
    def progress(self) -> BacklogProgress:
        """Answer query `progress`, also when the backlog ends: its status, branch, cost, limits, what it waits for, the
        newest notes, and every item."""
        state, info = self.state, workflow.info()
        return BacklogProgress(
            backlog_id=info.workflow_id,
            run_id=info.run_id,
            repository=self.request.repository,
            status=state.status,
            base=state.opened.base if state.opened else self.request.base or "",
            branch=state.opened.branch if state.opened else self.request.branch or "",
            land=self.request.land,
            head=state.landing.head,
            parallel=self.request.parallel,
            budget_usd=budget + self.state.tasks.extra_usd if (budget := self.request.budget_usd) is not None else None,
            usd=state.paid_usd,
            held=state.hold_reason,
            asks=state.base.question,
            waiting=state.waiting,
            message=state.message,
            notes=(*state.notes[-10:], *filter(None, (unchecked_summary(state) if state.status != "running" else "",))),
            pull_request=state.pull_request,
            turn=state.landing.item,
            began=state.began_at,
            items=item_views(self.request, state, workflow.now()),
        )

    @workflow.query(
        name="state", description="All of it, with which another run goes on: perdure.models.backlog.request"
    )
    def _carried_state(self) -> dict[str, Any]:
        """Return the state with which another run goes on; empty when this run's own was not verified."""
        return (
            self.state.dump_for_next_run() if self.state_verified else {}
        )  # a state that was not verified is given to nobody

    def _parse_request(self, raw: Any, *, is_continued: bool) -> BacklogRequest:
        """Parse the request and return it; record its items, their digest and the time in the state. Raises
        InvalidRequest that names item and field.

        `is_continued`: the state of an earlier run has the items already; only the request is parsed.
        """
        if is_continued:
            return continued_request(raw)
        request = parse_backlog(raw)
        reason, info = backlog_refusal(request), workflow.info()
        if not (reason or info.parent):  # what a workflow starts was counted with it
            reason = id_refusal(info.workflow_id, backlog=True)
        if reason and workflow.patched(ADMISSION):
            raise InvalidRequest(reason)
        for order, item in enumerate(request.items):
            self.state.items[item.id] = ItemState(item=item, order=order)
        self.state.began_at, self.state.items_digest = workflow.now(), digest_of_items(request)
        return request
