"""The pull requests of a stack while its backlog runs: what stands on one that was merged goes where that one went."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState, ItemPhase, ItemState
from perdure.models.ids import delivery_key
from perdure.models.limits import HEARTBEAT_TIMEOUT
from perdure.models.rules.stack import moves
from perdure.models.stacked import Seen, StackInput, StackPull, StackSeen
from workflows.items import AGAIN
from workflows.publishing import FORGE_ATTEMPT

STACK_LOOK = timedelta(minutes=5)
"""Between looks at the open pull requests while items are built: whoever merges one deletes its branch soon after, and
a look is one request for each that is open."""


class Stack:
    """Does nothing for a backlog that lands on one branch."""

    def __init__(self, request: BacklogRequest, state: BacklogState, said: dict[str, object], backlog: str) -> None:
        self._request, self._state, self._said, self._backlog = request, state, said, backlog

    async def look(self, *, last: bool = False) -> None:
        """Look at what is open where it is time, and bring each into the branch it belongs to."""
        state = self._state
        if self._request.land != "stack" or state.opened is None:
            return
        since = state.looked or state.began
        if not last and since is not None and workflow.now() < since + STACK_LOOK:
            return
        state.looked = workflow.now()
        try:
            await self._look({})
            if to := moves(state):
                await self._look(to)
        except ActivityError as error:  # nothing depends on it yet: the next look may get through
            self._note(f"the pull requests could not be looked at: {error.cause}")

    async def _look(self, to: dict[str, str]) -> None:
        state = self._state
        assert state.opened is not None
        landed = {id: at for id, at in state.items.items() if at.phase is ItemPhase.LANDED and at.branch}
        pulls = tuple(
            StackPull(
                item=id,
                delivery=delivery_key(at.delivery),
                branch=at.branch,
                to=to.get(id, ""),
                reopen=at.orphaned,
            )
            for id, at in landed.items()
            if not at.merged and (not to or id in to)
        )
        if not pulls:
            return
        work = StackInput(backlog=self._backlog, repository=self._request.repository, pulls=pulls, said=self._said)
        found: StackSeen = await workflow.execute_activity(
            "look_at_stack",
            work,
            result_type=StackSeen,
            task_queue=state.opened.queue,
            schedule_to_close_timeout=FORGE_ATTEMPT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=AGAIN,
            summary=f"{len(pulls)} pull requests",
        )
        for id, seen in found.seen.items():
            self._take(id, state.items[id], seen)

    def _take(self, id: str, at: ItemState, seen: Seen) -> None:
        orphaned, at.orphaned = at.orphaned, seen.state == "closed" and (seen.base_gone or at.orphaned)
        if orphaned and seen.state == "open":
            self._note(f"{id}: {at.pull_request} is open again: {seen.into} is back")
        elif seen.state == "closed" and seen.base_gone:
            below = next((one for one in self._state.items.values() if one.branch == seen.into), None)
            again = f"git push origin {below.commit[:12]}:refs/heads/{seen.into}" if below is not None else seen.into
            words = f"{id}: {at.pull_request} was closed when somebody deleted {seen.into}, which it is into"
            self._note(f"{words}; bring that branch back ({again}), and it is opened again and retargeted")
        elif at.into != seen.into:
            self._note(f"{id}: {at.pull_request} is into {seen.into} now, no more into {at.into}")
        at.into, at.merged = seen.into, seen.state == "merged"
        at.closed = seen.state == "closed" and not at.orphaned

    def _note(self, words: str) -> None:
        if words[:300] not in self._state.notes:
            self._state.notes = (*self._state.notes, words[:300])
