"""The pull requests of a stack after its backlog has ended: when one is merged, those that stand on it are moved to the
branch it went into."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.rules.stack import stacked_items
from perdure.models.stack import StackToFollow
from workflows.endings import invalid_request, raise_if_cancelled
from workflows.pull_request_stack import PullRequestStack

FOLLOW_PAUSE = timedelta(minutes=15)
"""Pause between looks: whoever deletes a branch sooner does it by the forge's button, which moves the others itself."""

FOLLOW_TIME = timedelta(days=30)
"""The time a stack is followed: whoever still wants to merge after that has rebased it by hand. A look is a request for
each pull request that is open."""


@workflow.defn
class Following:
    """Workflow that follows the stack which a backlog leaves when it ends; returns in one line what became of it."""

    @workflow.init
    def __init__(self, stack_left: StackToFollow) -> None:
        self.stack_left, self.state = stack_left, BacklogState.model_validate(stack_left.state)
        request = BacklogRequest.model_construct(
            repository=str(stack_left.backlog_request.get("repository", "")), land="stack"
        )
        self.stack = PullRequestStack(request, self.state, stack_left.backlog_request, stack_left.backlog)

    @workflow.run
    async def run(self, stack_left: StackToFollow) -> str:
        """Look at the pull requests now and then, and move them, until none stands on another one, or for a month;
        return which of it.

        Raises ApplicationError InvalidRequest where another workflow than the backlog has started it.
        """
        parent = workflow.info().parent
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
        """Show which pull requests still stand on another one, and the notes."""
        pull_requests = (
            f"- {id}: {self.state.items[id].pull_request} into {self.state.items[id].into}" for id in standing_ids
        )
        notes = (f"- {note}" for note in self.state.notes)
        workflow.set_current_details(
            "\n".join(("Retargeted when what they stand on is merged:", *pull_requests, *notes))
        )


def stack_to_follow(backlog: str, request_fields: dict[str, object], state: BacklogState) -> StackToFollow | None:
    """Return the stack that a backlog leaves to be followed when it ends; None where no pull request stands on another
    one."""
    if not stacked_items(state):
        return None
    stack = {id: entry for id, entry in state.items.items() if entry.branch}
    return StackToFollow(
        backlog=backlog,
        backlog_request=request_fields,
        state=state.model_copy(update={"items": stack, "notes": ()}).dump_for_next_run(),
    )
