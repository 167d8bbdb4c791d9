"""The pull requests of a stack: when one is merged, those that stand on it are moved to the branch it went into.
`PullRequestStack` does it while the backlog runs, workflow `Following` after the backlog has ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from perdure.models.backlog.following import PullRequestState, StackedPullRequest, StackInput, StackState, StackToFollow
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogState, ItemPhase, ItemState
from perdure.models.delivery.decisions import parse_input
from perdure.models.errors import InvalidRequest
from perdure.models.ids import delivery_key
from perdure.models.limits import HEARTBEAT_TIMEOUT
from perdure.models.rules.dependencies import retargets, stacked_items
from perdure.text import shell_word, shorten
from workflows.endings import invalid_request, raise_if_cancelled, require_no_more
from workflows.items import FORGE_RETRIES
from workflows.publishing import FORGE_ATTEMPT
from workflows.unknown_messages import UnknownMessages

STACK_LOOK = timedelta(minutes=5)
"""Pause between looks at the open pull requests while items are built: whoever merges one deletes its branch soon
after, and a look is one request for each that is open."""


class PullRequestStack:
    """Looks after the pull requests of a backlog that makes a stack of them; does nothing for a backlog that lands on
    one branch."""

    def __init__(
        self, request: BacklogRequest, state: BacklogState, request_fields: dict[str, object], backlog: str
    ) -> None:
        self._request, self._state, self._request_fields, self._backlog = request, state, request_fields, backlog

    async def update_if_due(self, *, is_last: bool = False) -> None:
        """Look at the open pull requests when STACK_LOOK has passed since the last time, or at once with `is_last`;
        move each whose base was merged to the branch it belongs into, and record what was seen in the state. Does
        nothing for a backlog without a stack, or not opened yet. A failure of the activity becomes a note."""
        state = self._state
        if not self._request.is_stack or state.opened is None:
            return
        since = state.base.checked_at or state.began_at
        if not is_last and since is not None and workflow.now() < since + STACK_LOOK:
            return
        state.base.checked_at = workflow.now()
        try:
            await self._look_at_pull_requests({})
            if new_bases := retargets(state):
                await self._look_at_pull_requests(new_bases)
        except ActivityError as error:  # nothing depends on it yet: the next look may get through
            self._add_note(f"the pull requests could not be looked at: {error.cause}")

    async def _look_at_pull_requests(self, new_bases: dict[str, str]) -> None:
        """Look at the pull requests that are not merged, by activity `look_at_stack`, and record what was seen in the
        state. When there are none, do nothing. Raises ActivityError.

        new_bases  by item, the branch its pull request is moved into: only these are looked at then; empty: all are
        looked at, none is moved

        A pull request that was closed because its base was deleted is opened again once that base is back.
        """
        state = self._state
        assert state.opened is not None
        landed = {
            id: entry for id, entry in state.items.items() if entry.phase is ItemPhase.LANDED and entry.stacked.branch
        }
        pulls = tuple(
            StackedPullRequest(
                item=id,
                delivery=delivery_key(entry.child.id),
                branch=entry.stacked.branch,
                to=new_bases.get(id, ""),
                reopen=entry.stacked.orphaned,
            )
            for id, entry in landed.items()
            if not entry.stacked.merged and (not new_bases or id in new_bases)
        )
        if not pulls:
            return
        work = StackInput(
            backlog=self._backlog,
            repository=self._request.repository,
            pulls=pulls,
            backlog_request=self._request_fields,
        )
        seen_by_item: StackState = await workflow.execute_activity(
            "look_at_stack",
            work,
            result_type=StackState,
            task_queue=state.opened.queue,
            schedule_to_close_timeout=FORGE_ATTEMPT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=FORGE_RETRIES,
            summary=f"{len(pulls)} pull requests",
        )
        for id, pull_state in seen_by_item.pull_requests.items():
            self._record_pull_state(id, state.items[id], pull_state)

    def _record_pull_state(self, id: str, entry: ItemState, pull_state: PullRequestState) -> None:
        """Record the state of an item's pull request: the branch it is into, merged, closed, or closed only because its
        base was deleted. Add a note when it was closed with its base, is open again, or was moved to another branch."""
        was_orphaned, entry.stacked.orphaned = (
            entry.stacked.orphaned,
            pull_state.state == "closed" and (pull_state.base_gone or entry.stacked.orphaned),
        )
        if was_orphaned and pull_state.state == "open":
            self._add_note(f"{id}: {entry.stacked.address} is open again: {pull_state.into} is back")
        elif pull_state.state == "closed" and pull_state.base_gone:
            lower_item = next(
                (
                    item_state
                    for item_state in self._state.items.values()
                    if item_state.stacked.branch == pull_state.into
                ),
                None,
            )
            restore_command = (
                f"git push origin {lower_item.landing.commit[:12]}:refs/heads/{shell_word(pull_state.into)}"
                if lower_item is not None
                else pull_state.into
            )
            summary = (
                f"{id}: {entry.stacked.address} was closed when somebody deleted {pull_state.into}, which it is into"
            )
            self._add_note(
                f"{summary}; bring that branch back ({restore_command}), and it is opened again and retargeted"
            )
        elif entry.stacked.into != pull_state.into:
            self._add_note(
                f"{id}: {entry.stacked.address} is into {pull_state.into} now, no more into {entry.stacked.into}"
            )
        entry.stacked.into, entry.stacked.merged = pull_state.into, pull_state.state == "merged"
        entry.stacked.closed = pull_state.state == "closed" and not entry.stacked.orphaned

    def _add_note(self, text: str) -> None:
        """Add a note to the state, cut to 300 characters; not when the same one is there already."""
        note = shorten(text, 300)
        if note not in self._state.notes:
            self._state.notes = (*self._state.notes, note)


FOLLOW_PAUSE = timedelta(minutes=15)
"""Pause between looks: whoever deletes a branch sooner does it by the forge's button, which moves the others itself."""

FOLLOW_TIME = timedelta(days=30)
"""The time a stack is followed: whoever still wants to merge after that has rebased it by hand. A look is a request for
each pull request that is open."""


@workflow.defn
class Following(UnknownMessages):
    """Workflow that follows the stack which a backlog leaves when it ends; returns in one line what became of it."""

    @workflow.init
    def __init__(self, raw: Any = None, *extra_args: Any) -> None:
        self.state, self._argument_error = BacklogState(), ""
        stack_left = StackToFollow.model_construct(backlog="", backlog_request={}, state={})
        try:
            require_no_more(extra_args)
            stack_left = parse_input(StackToFollow, raw)
            self.state = parse_input(BacklogState, stack_left.state)
        except InvalidRequest as error:
            self._argument_error = error.what
        self.stack_left = stack_left
        request = BacklogRequest.model_construct(
            repository=str(stack_left.backlog_request.get("repository", "")), land="stack"
        )
        self.stack = PullRequestStack(request, self.state, stack_left.backlog_request, stack_left.backlog)

    @workflow.run
    async def run(self, raw: Any = None, *extra_args: Any) -> str:
        """Look at the pull requests every FOLLOW_PAUSE, and move those whose base was merged, until none stands on
        another one or FOLLOW_TIME is over; return a line that says which. A long history continues in a new run.

        Raises ApplicationError InvalidRequest when another workflow than the backlog has started it, or the argument is
        no StackToFollow; CancelledError when it is cancelled.
        """
        parent, stack_left = workflow.info().parent, self.stack_left
        if self._argument_error:
            raise invalid_request(self._argument_error)
        if parent is None or parent.workflow_id != stack_left.backlog:
            raise invalid_request("a stack is followed for the backlog that has made it")
        until = stack_left.until or workflow.now() + FOLLOW_TIME
        while standing_ids := stacked_items(self.state):
            if workflow.now() >= until:
                return f"not followed any longer: {', '.join(standing_ids)}"
            self._show(standing_ids)
            await workflow.sleep(FOLLOW_PAUSE, summary="until the next look at its pull requests")
            await self.stack.update_if_due(is_last=True)
            raise_if_cancelled()
            if workflow.info().is_continue_as_new_suggested():
                state = self.state.dump_for_next_run()
                workflow.continue_as_new(stack_left.model_copy(update={"state": state, "until": until}))
        return "no pull request stands on another one any more"

    def _show(self, standing_ids: list[str]) -> None:
        """Show in the Web UI which pull requests still stand on another one, and the notes."""
        pull_requests = (
            f"- {id}: {self.state.items[id].stacked.address} into {self.state.items[id].stacked.into}"
            for id in standing_ids
        )
        notes = (f"- {note}" for note in self.state.notes)
        workflow.set_current_details(
            "\n".join(("Retargeted when what they stand on is merged:", *pull_requests, *notes))
        )


def stack_to_follow(backlog: str, request_fields: dict[str, object], state: BacklogState) -> StackToFollow | None:
    """Return the stack that a backlog leaves to be followed when it ends, with the state of its items that have a
    branch and no notes; None when no pull request stands on another one."""
    if not stacked_items(state):
        return None
    stack = {id: entry for id, entry in state.items.items() if entry.stacked.branch}
    return StackToFollow(
        backlog=backlog,
        backlog_request=request_fields,
        state=state.model_copy(update={"items": stack, "notes": ()}).dump_for_next_run(),
    )
