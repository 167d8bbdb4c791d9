"""The pull requests of a stack once its backlog has ended: what stands on a merged one goes where that one went."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.rules.stack import standing
from perdure.models.stacked import StackLeft
from workflows.endings import heed_cancellation, invalid
from workflows.items_stack import Stack

FOLLOW_PAUSE = timedelta(minutes=15)
"""Between looks: whoever deletes a branch sooner does it by the forge's button, which moves the others itself."""

FOLLOW_TIME = timedelta(days=30)
"""After which whoever still wants to merge has rebased it by hand: a look is a request for each that is open."""


@workflow.defn
class Following:
    """Takes StackLeft from a backlog that ended, returns in one line what became of it."""

    @workflow.init
    def __init__(self, given: StackLeft) -> None:
        self.given, self.state = given, BacklogState.model_validate(given.state)
        request = BacklogRequest.model_construct(repository=str(given.said.get("repository", "")), land="stack")
        self.stack = Stack(request, self.state, given.said, given.backlog)

    @workflow.run
    async def run(self, given: StackLeft) -> str:
        """Look now and then until nothing stands on anything any more, or for a month."""
        parent = workflow.info().parent
        if parent is None or parent.workflow_id != given.backlog:
            raise invalid("a stack is followed for the backlog that has made it")
        until = given.until or workflow.now() + FOLLOW_TIME
        while left := standing(self.state):
            if workflow.now() >= until:
                return f"not followed any longer: {', '.join(left)}"
            self._show(left)
            await workflow.sleep(FOLLOW_PAUSE, summary="until the next look at its pull requests")
            await self.stack.look(last=True)
            heed_cancellation()
            if workflow.info().is_continue_as_new_suggested():
                state = self.state.carried()
                workflow.continue_as_new(given.model_copy(update={"state": state, "until": until}))
        return "no pull request stands on another one any more"

    def _show(self, left: list[str]) -> None:
        stands = (f"- {id}: {self.state.items[id].pull_request} into {self.state.items[id].into}" for id in left)
        notes = (f"- {note}" for note in self.state.notes)
        workflow.set_current_details("\n".join(("Retargeted when what they stand on is merged:", *stands, *notes)))


def left_to_follow(backlog: str, said: dict[str, object], state: BacklogState) -> StackLeft | None:
    """The stack that a backlog leaves when it ends; None: nothing stands on anything."""
    if not standing(state):
        return None
    stack = {id: at for id, at in state.items.items() if at.branch}
    return StackLeft(backlog=backlog, said=said, state=state.model_copy(update={"items": stack, "notes": ()}).carried())
