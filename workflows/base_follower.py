"""Keeps a backlog's branch on its base: looks now and then whether the base has moved, and rebases and tests the branch
on it; a person is asked when that fails. At the end it runs the checks of landed items on the branch that no landing
had time for.

Nobody lands meanwhile. The branch moves by compare-and-swap: when somebody else pushes in between, nothing is lost, and
the work is done again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models.backlog.following import (
    Follow,
    FollowInput,
    FollowResult,
    LandedChecksResult,
    MoveBranchInput,
    MoveBranchResult,
)
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, OpenBacklogResult
from perdure.models.delivery.decisions import parse_input
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.work import CloseInput, CloseResult
from perdure.models.errors import InvalidRequest
from perdure.models.ids import delivery_key
from perdure.models.limits import CLOSE_TIMEOUT, HEARTBEAT_TIMEOUT
from perdure.models.phases import Phase
from perdure.models.rules.changes import ended_reason
from perdure.models.rules.landed_checks import (
    ask_about_checks,
    checks_for_landing,
    clear_resolved_question,
    due_checks,
    record_branch_move,
    record_passed_checks,
)
from perdure.text import shorten
from workflows.endings import failure_reason, interpret_failure
from workflows.items import FORGE_RETRIES, TURN_LIMIT, Items
from workflows.publishing import FORGE_PATIENCE

T = TypeVar("T")

FOLLOW_LOOK = timedelta(minutes=30)
"""Pause between looks at the base while items are built: each that finds it moved costs a test run in which nobody
lands."""


LAST_CHECKS = timedelta(hours=1)
"""Longest time for checks that no landing had time for, before the pull request: a thousand of three seconds each take
less. What does not run by then is named."""


class BaseFollower:
    """Keeps a backlog's branch on its base, and checks that what has landed still works. Each time it looks at the
    base, it fetches it and, when it has moved, rebases the branch onto it and tests it. A branch that the request named
    may be used by others, and is never rewritten: there only the checks run."""

    def __init__(self, request: BacklogRequest, state: BacklogState, items: Items) -> None:
        self._request, self._state, self._items = request, state, items
        self._look_task: asyncio.Task[None] | None = None
        self._is_current = False

    @property
    def is_busy(self) -> bool:
        """Return True while the base is fetched or the branch is rebased, tested or moved, cleaning up included; at the
        end of that `items.changed` is set."""
        return self._look_task is not None and not self._look_task.done()

    @property
    def is_settled(self) -> bool:
        """Return True when nothing has to be done before the end: there is nothing to follow or check, a person left
        the branch as it is, nothing landed, or the branch was found current at the end."""
        state, opened = self._state, self._state.opened
        if opened is None or state.base.stays or not (opened.follows_base or self._has_owed_checks()):
            return True
        return self._is_current or not self._has_landed_items()

    def look_if_due(self, *, is_last: bool) -> bool:
        """Fetch the base when that is due and, when it has moved, rebase and test the branch, all in a task of its own,
        which this method starts and does not wait for. Return True when nothing has to be done before the end, else
        False. Removes a question whose reason is gone from the state.

        It is due every FOLLOW_LOOK while items are built, and at the end; not while the last such task runs, a delivery
        lands, or a person is asked. `is_last`: nothing more will land, unless somebody changes that.
        """
        state, opened = self._state, self._state.opened
        self._is_current = self._is_current and is_last
        clear_resolved_question(state)
        if opened is None or state.base.stays or not (opened.follows_base or is_last):
            return True
        if is_last and self.is_settled:
            state.base.question, state.base.failing_items = "", ()  # there is nothing to decide any more
            return True
        since = state.base.checked_at or state.began_at
        is_due = is_last or since is None or workflow.now() >= since + FOLLOW_LOOK
        if is_due and not (self.is_busy or state.base.question or state.landing.item):
            self._look_task = asyncio.create_task(self._follow_and_check(opened, is_last=is_last))
        return False

    def stop(self) -> None:
        """Cancel the task that fetches the base or brings the branch onto it, if one runs."""
        if self._look_task is not None:
            self._look_task.cancel()

    def apply_decision(self, follow: Follow) -> str:
        """Apply a person's decision: the branch stays where it is, which becomes a note, or the base is fetched and
        followed again. Remove the open question, wake the backlog's loop, and return the answer for the sender."""
        state = self._state
        assert state.opened is not None
        question, state.base.question, state.base.failing_items = state.base.question, "", ()
        state.base.stays, state.base.checked_at, self._is_current = follow.leave, None, False
        if state.began_at is not None and not follow.leave:
            state.base.checked_at = state.began_at - FOLLOW_LOOK
        self._items.changed = True
        if follow.leave:
            note = f": {follow.note}" if follow.note else ""
            about = f" ({question})" if question else ""
            text = shorten(f"{state.opened.branch} stays where it is{note}{about}", 600)
            state.notes = (*state.notes, text)
            return f"{state.opened.branch} stays where it is; its pull request says so"
        return f"{state.opened.base} is looked at again"

    def refusal_reason(self) -> str:
        """Return why nothing can be decided about the base: the backlog has ended, its branch is not open, or it does
        not follow a base. Empty when something can, and always while a question is open."""
        opened = self._state.opened
        if reason := ended_reason(self._state):
            return reason
        if self._state.base.question:
            return ""
        if opened is None:
            return "its branch is not there yet"
        if self._request.is_stack:
            return "a stack follows its base by hand: rebase what is at the bottom"
        return (
            ""
            if opened.follows_base
            else f"{opened.branch} was named, so others may use it, too: it is never rewritten"
        )

    async def _follow_and_check(self, opened: OpenBacklogResult, *, is_last: bool) -> None:
        """Bring the branch onto its base, where it follows one; at the end, once it stands there, run the checks that
        are owed. In any case close the workspaces then, clear `state.waiting` and set `items.changed`.

        When an activity fails by an error of its own, or with `is_last` for any reason, such as a timeout, the reason
        becomes a question to a person, in `state.base.question`; after any other failure the next look tries again.
        Raises CancelledError when the task was cancelled.
        """
        state, hosts = self._state, set[str]()
        try:
            stands_on_base = not opened.follows_base or await self._follow_base(
                opened, FORGE_PATIENCE if is_last else TURN_LIMIT, hosts
            )
            if stands_on_base and is_last:
                self._is_current = await self._run_owed_checks(opened, hosts)
        except ActivityError as error:
            state.base.checked_at = workflow.now()
            if isinstance(meaning := interpret_failure(error), asyncio.CancelledError):
                raise meaning from error
            if is_last or isinstance(error.cause, ApplicationError):
                state.base.question = shorten(failure_reason(error), 600)
        finally:
            for host in sorted(hosts):
                await self._close_workspace(host)
            state.waiting, self._items.changed = "", True

    async def _follow_base(self, opened: OpenBacklogResult, patience: timedelta, hosts: set[str]) -> bool:
        """Rebase the branch onto the base as it is now, test it there, move it when the tests pass, and return True.

        Return False when there is a problem (a conflict, red tests), which becomes a question to a person in the state,
        or when somebody else pushed to the branch meanwhile, so that another look is due at once. Adds the host of a
        workspace that was made to `hosts`. Raises ActivityError.
        """
        state = self._state
        followed = await self._rebase_and_test(opened, patience)
        hosts |= {followed.host} - {""}
        state.base.checked_at = workflow.now()
        if followed.problem:
            state.base.question = followed.problem
            return False
        if await self._move_branch(opened, followed):
            return True
        state.base.checked_at = (
            workflow.now() - FOLLOW_LOOK
        )  # somebody pushed in between: once more, on what they pushed
        return False

    async def _run_owed_checks(self, opened: OpenBacklogResult, hosts: set[str]) -> bool:
        """Run the checks of landed items that no landing had time for, until none is owed, none passes, or LAST_CHECKS
        is over, and return True; when one fails, put a question to a person in the state and return False. Adds the
        hosts of workspaces to `hosts`. Raises ActivityError."""
        state, started = self._state, workflow.now()
        while self._has_owed_checks() and workflow.now() < started + LAST_CHECKS:
            output = await self._check_landed(state.opened or opened)
            hosts |= {output.host} - {""}
            record_passed_checks(state, output.passed_items, workflow.now())
            if output.problem:
                ask_about_checks(state, output.failed_items, output.problem)
                return False
            if not output.passed_items:
                break
        return True

    def _has_owed_checks(self) -> bool:
        """Return True when something landed whose checks did not run on the branch as it is now; always False for a
        stack."""
        return not self._request.is_stack and bool(due_checks(self._state))

    async def _check_landed(self, opened: OpenBacklogResult) -> LandedChecksResult:
        """Run owed checks of landed items on the branch, as many as run at once, by activity `check_landed`; return
        which passed and failed. Raises ActivityError."""
        check = due_checks(self._state)
        waiting_text = f"for the checks of {len(check)} items that no landing had time for"
        summary = f"{len(check)} landed items' checks"
        return await self._run_on_branch(
            "check_landed", LandedChecksResult, opened, check, FORGE_PATIENCE, waiting_text, summary
        )

    async def _rebase_and_test(self, opened: OpenBacklogResult, patience: timedelta) -> FollowResult:
        """Rebase the branch onto the base as it is now, and test it there, by activity `follow`; nothing is pushed.
        Return the result. Raises ActivityError."""
        waiting_text = f"for a look at {opened.base}, and for {opened.branch} to follow it"
        summary = f"{opened.branch} onto {opened.base}"
        return await self._run_on_branch(
            "follow", FollowResult, opened, checks_for_landing(self._state, ""), patience, waiting_text, summary
        )

    async def _run_on_branch(
        self,
        name: str,
        result: type[T],
        opened: OpenBacklogResult,
        check: dict[str, tuple[str, ...]],
        patience: timedelta,
        waiting_text: str,
        summary: str,
    ) -> T:
        """Run an activity in a workspace of the backlog's branch itself, and return its result.

        name, result  of the activity; opened: the opened backlog
        check         commands of landed items, by item
        patience      longest time, retries included; then ActivityError is raised
        waiting_text  what the backlog shows that it waits for
        summary       the activity's, in the Web UI
        """
        state, info = self._state, workflow.info()
        id = f"{info.workflow_id}/~base"
        work = FollowInput(
            delivery=delivery_key(id),
            backlog=info.workflow_id,
            request=DeliveryRequest.model_validate(await self._branch_request(id, opened)),
            base_sha=opened.base_sha,
            landed=state.landing.head,
            check=check,
        )
        state.waiting = waiting_text
        output: T = await workflow.execute_activity(
            name,
            work,
            result_type=result,
            task_queue=self._request.open_queue,
            schedule_to_close_timeout=patience,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=FORGE_RETRIES,
            summary=shorten(summary, 100),
        )
        return output

    async def _move_branch(self, opened: OpenBacklogResult, followed: FollowResult) -> bool:
        """Move the branch to the commit that was rebased and tested, by activity `move_branch`, and record its new
        base, the new commits of landed items and a note; return True. When branch and base are there already, do
        nothing and return True; return False when somebody else moved the branch meanwhile. Raises ActivityError."""
        state = self._state
        if (followed.head, followed.base_sha) == (followed.onto, opened.base_sha):
            return True
        work = MoveBranchInput(
            backlog=workflow.info().workflow_id,
            repository=self._request.repository,
            branch=opened.branch,
            base_sha=followed.base_sha,
            onto=followed.onto,
            head=followed.head,
            backlog_request=self._items.request_fields,
        )
        output = await self._items.run_activity(
            "move_branch", work, MoveBranchResult, opened.branch, queue=followed.queue
        )
        if not output.head:
            return False
        for id, commit in output.commits.items():
            entry = state.items.get(id)
            if entry is not None and entry.phase is ItemPhase.LANDED:
                state.landing.head = commit if entry.landing.commit == state.landing.head else state.landing.head
                entry.landing.commit = commit
        if followed.head != followed.onto:
            record_branch_move(state, followed.checked_items, workflow.now())
        state.opened = opened.model_copy(update={"base_sha": followed.base_sha})
        if followed.summary:
            state.notes = (*state.notes, shorten(f"{opened.branch} {followed.summary}", 300))
        return True

    async def _branch_request(self, id: str, opened: OpenBacklogResult) -> dict[str, Any]:
        """Return, as JSON, the request of a delivery that only tests the branch, which the activities here need for
        their workspace; signed when the backlog came with a proof."""
        backlog = self._request
        raw = DeliveryRequest.model_construct(
            repository=backlog.repository,
            base=opened.base,
            branch=opened.branch,
            phases=(Phase.TEST,),
            config=backlog.config,
            source=backlog.source,
        ).model_dump(mode="json", exclude_defaults=True)
        return await self._items.sign_request(raw, id, f"sign the request that updates {opened.branch}")

    async def _close_workspace(self, host: str) -> None:
        """Close the branch's workspace on a host, given by its task queue. A failure is ignored."""
        with suppress(ActivityError):  # it is in the worker's log, and `perdure gc` removes what is left
            await workflow.execute_activity(
                "close",
                CloseInput(delivery=delivery_key(f"{workflow.info().workflow_id}/~base")),
                result_type=CloseResult,
                task_queue=host,
                schedule_to_close_timeout=CLOSE_TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=FORGE_RETRIES,
                summary="tidy up",
            )

    def _has_landed_items(self) -> bool:
        return any(entry.phase is ItemPhase.LANDED for entry in self._state.items.values())


class FollowUpdate:
    """Handles update `follow`, by which a person decides about the base of a backlog's branch."""

    base_follower: BaseFollower

    @workflow.update(description='Look at the base again: {}, or leave the branch where it stands: {"leave": true}')
    def follow(self, raw: Any = None) -> str:
        return self.base_follower.apply_decision(self._parse_follow(raw))

    @follow.validator
    def _validate_follow(self, raw: Any = None) -> None:
        self._parse_follow(raw)

    def _parse_follow(self, raw: Any) -> Follow:
        """Parse a person's decision about the base; nothing at all means that the base is followed again. Raises
        ApplicationError NotCounted when it is malformed, or nothing can be decided now."""
        try:
            follow = parse_input(Follow, raw if raw is not None else {})
        except InvalidRequest as error:
            raise ApplicationError(error.what, type="NotCounted", non_retryable=True) from None
        if reason := self.base_follower.refusal_reason():
            raise ApplicationError(reason, type="NotCounted", non_retryable=True)
        return follow
