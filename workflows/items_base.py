"""The base of a backlog's branch: looked at now and then, and followed where it has moved; or a person is asked. At the
end the checks run on the branch that no landing had time for.

Nobody lands meanwhile. The branch moves by compare-and-swap: whoever comes in between loses nothing, it is done again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState, ItemPhase, Opened
from perdure.models.decisions import understood
from perdure.models.errors import InvalidRequest
from perdure.models.following import ChecksHeld, Follow, Followed, FollowInput, Moved, MoveInput
from perdure.models.ids import delivery_key
from perdure.models.landing import Vouched, VouchInput
from perdure.models.limits import CLOSE_TIMEOUT, HEARTBEAT_TIMEOUT, TASK_QUEUE
from perdure.models.phases import Phase
from perdure.models.request import DeliveryRequest
from perdure.models.rules.changes import over
from perdure.models.rules.checking import answered, asked, checks, held, moved, owed
from perdure.models.work import Closed, CloseInput
from workflows.endings import interpret
from workflows.items import AGAIN, TURN_MOST, Items
from workflows.items_begun import why
from workflows.publishing import FORGE_PATIENCE

T = TypeVar("T")

FOLLOW_LOOK = timedelta(minutes=30)
"""Between looks at the base while items are built: each that finds it moved costs a test run in which nobody lands."""


LAST_CHECKS = timedelta(hours=1)
"""For checks that no landing had time for, before the pull request: a thousand of three seconds each are less. What is
left then is named."""


class Base:
    """Keeps the branch on its base, and what has landed as it landed. A branch that was named may be others', and is
    never rewritten: there only the checks run."""

    def __init__(self, request: BacklogRequest, state: BacklogState, items: Items) -> None:
        self._request, self._state, self._items = request, state, items
        self._task: asyncio.Task[None] | None = None
        self._done = False

    @property
    def busy(self) -> bool:
        """True from a look's beginning until all of it is done; then `items.changed` is set."""
        return self._task is not None and not self._task.done()

    @property
    def settled(self) -> bool:
        """At the end: there is nothing to look at, a person left it, or the last look has found that it stands."""
        state, opened = self._state, self._state.opened
        if opened is None or state.left or not (opened.follows or self._owes()):
            return True
        return self._done or not self._landed()

    def look(self, *, last: bool) -> bool:
        """Begin a look at the base where it is time for one; True where there is nothing left to do before the end.

        `last`: nothing more will land, unless somebody changes that.
        """
        state, opened = self._state, self._state.opened
        self._done = self._done and last
        answered(state)
        if opened is None or state.left or not (opened.follows or last):
            return True
        if last and self.settled:
            state.asks, state.failing = "", ()  # there is nothing to decide any more
            return True
        since = state.looked or state.began
        due = last or since is None or workflow.now() >= since + FOLLOW_LOOK
        if due and not (self.busy or state.asks or state.turn):
            self._task = asyncio.create_task(self._look(opened, last=last))
        return False

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def decided(self, said: Follow) -> str:
        """Take a person's word: the branch stays where it is, or the base is looked at again."""
        state = self._state
        assert state.opened is not None
        words, state.asks, state.failing = state.asks, "", ()
        state.left, state.looked, self._done = said.leave, None, False
        if state.began is not None and not said.leave:
            state.looked = state.began - FOLLOW_LOOK
        self._items.changed = True
        if said.leave:
            note = f": {said.note}" if said.note else ""
            though = f" ({words})" if words else ""
            state.notes = (*state.notes, f"{state.opened.branch} stays where it is{note}{though}"[:600])
            return f"{state.opened.branch} stays where it is; its pull request says so"
        return f"{state.opened.base} is looked at again"

    def problem(self) -> str:
        """Say why nothing can be decided about the base; empty: it can."""
        opened = self._state.opened
        if words := over(self._state):
            return words
        if self._state.asks:
            return ""
        if opened is None:
            return "its branch is not there yet"
        if self._request.land == "stack":
            return "a stack follows its base by hand: rebase what is at the bottom"
        return "" if opened.follows else f"{opened.branch} was named, so others may use it, too: it is never rewritten"

    async def _look(self, opened: Opened, *, last: bool) -> None:
        state, hosts = self._state, set[str]()
        try:
            stands = not opened.follows or await self._stands(opened, FORGE_PATIENCE if last else TURN_MOST, hosts)
            if stands and last:
                self._done = await self._holds(opened, hosts)
        except ActivityError as error:
            state.looked = workflow.now()
            if isinstance(meaning := interpret(error), asyncio.CancelledError):
                raise meaning from error
            if last or isinstance(error.cause, ApplicationError):
                state.asks = why(error)[:600]
        finally:
            for host in sorted(hosts):
                await self._tidied(host)
            state.waiting, self._items.changed = "", True

    async def _stands(self, opened: Opened, patience: timedelta, hosts: set[str]) -> bool:
        """On its base as that is now; where not, a person is asked, or it is looked at again."""
        state = self._state
        followed = await self._followed(opened, patience)
        hosts |= {followed.host} - {""}
        state.looked = workflow.now()
        if followed.problem:
            state.asks = followed.problem
            return False
        if await self._moved(opened, followed):
            return True
        state.looked = workflow.now() - FOLLOW_LOOK  # somebody pushed in between: once more, on what they pushed
        return False

    async def _holds(self, opened: Opened, hosts: set[str]) -> bool:
        """With the checks that no landing had time for; where one fails a person is asked."""
        state, began = self._state, workflow.now()
        while self._owes() and workflow.now() < began + LAST_CHECKS:
            done = await self._checked(state.opened or opened)
            hosts |= {done.host} - {""}
            held(state, done.held, workflow.now())
            if done.problem:
                asked(state, done.failed, done.problem)
                return False
            if not done.held:
                break
        return True

    def _owes(self) -> bool:
        """Something landed whose checks did not run on the branch as it is."""
        owes = self._request.land != "stack" and bool(owed(self._state))
        return owes and workflow.patched("last-checks")

    async def _checked(self, opened: Opened) -> ChecksHeld:
        check = owed(self._state)
        waits = f"for the checks of {len(check)} items that no landing had time for"
        about = f"{len(check)} landed items' checks"
        return await self._on_branch("check_landed", ChecksHeld, opened, check, FORGE_PATIENCE, waits, about)

    async def _followed(self, opened: Opened, patience: timedelta) -> Followed:
        waits = f"for a look at {opened.base}, and for {opened.branch} to follow it"
        about = f"{opened.branch} onto {opened.base}"
        return await self._on_branch("follow", Followed, opened, checks(self._state, ""), patience, waits, about)

    async def _on_branch(
        self,
        name: str,
        result: type[T],
        opened: Opened,
        check: dict[str, tuple[str, ...]],
        patience: timedelta,
        waits: str,
        about: str,
    ) -> T:
        """An activity in a workspace of the branch, which is no item's."""
        state, info = self._state, workflow.info()
        id = f"{info.workflow_id}/~base"
        work = FollowInput(
            delivery=delivery_key(id),
            backlog=info.workflow_id,
            request=DeliveryRequest.model_validate(await self._vouched(id, opened)),
            base_sha=opened.base_sha,
            landed=state.head,
            check=check,
        )
        state.waiting = waits
        done: T = await workflow.execute_activity(
            name,
            work,
            result_type=result,
            task_queue=TASK_QUEUE,
            schedule_to_close_timeout=patience,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=AGAIN,
            summary=about[:100],
        )
        return done

    async def _moved(self, opened: Opened, followed: Followed) -> bool:
        """Move the branch where that is to be done. False where somebody else did meanwhile."""
        state = self._state
        if (followed.head, followed.base_sha) == (followed.onto, opened.base_sha):
            return True
        work = MoveInput(
            backlog=workflow.info().workflow_id,
            repository=self._request.repository,
            branch=opened.branch,
            base_sha=followed.base_sha,
            onto=followed.onto,
            head=followed.head,
            said=self._items.said,
        )
        done = await self._items.activity("move_branch", work, Moved, opened.branch, queue=followed.queue)
        if not done.head:
            return False
        for id, commit in done.commits.items():
            at = state.items.get(id)
            if at is not None and at.phase is ItemPhase.LANDED:
                state.head = commit if at.commit == state.head else state.head
                at.commit = commit
        if followed.head != followed.onto:
            moved(state, followed.checked, workflow.now())
        state.opened = opened.model_copy(update={"base_sha": followed.base_sha})
        if followed.summary:
            state.notes = (*state.notes, f"{opened.branch} {followed.summary}"[:300])
        return True

    async def _vouched(self, id: str, opened: Opened) -> dict[str, Any]:
        """The branch as a delivery that only tests it would name it."""
        backlog, info = self._request, workflow.info()
        raw = DeliveryRequest.model_construct(
            repository=backlog.repository,
            base=opened.base,
            branch=opened.branch,
            phases=(Phase.TEST,),
            config=backlog.config,
            source=backlog.source,
        ).model_dump(mode="json", exclude_defaults=True)
        if not backlog.proof:
            return raw
        vouching = VouchInput(backlog=info.workflow_id, said=self._items.said, workflow_id=id, request=raw)
        vouched = await self._items.activity("vouch", vouching, Vouched, f"{opened.branch} is of this backlog")
        return raw | ({"proof": vouched.proof} if vouched.proof else {})

    async def _tidied(self, host: str) -> None:
        with suppress(ActivityError):  # a failure to tidy up is in the worker's log, and `perdure gc` comes by
            await workflow.execute_activity(
                "close",
                CloseInput(delivery=delivery_key(f"{workflow.info().workflow_id}/~base")),
                result_type=Closed,
                task_queue=host,
                schedule_to_close_timeout=CLOSE_TIMEOUT,
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=AGAIN,
                summary="tidy up",
            )

    def _landed(self) -> bool:
        return any(at.phase is ItemPhase.LANDED for at in self._state.items.values())


class FollowsBase:
    """Update `follow`."""

    base: Base

    @workflow.update(description='Look at the base again: {}, or leave the branch where it stands: {"leave": true}')
    def follow(self, said: Any = None) -> str:
        return self.base.decided(self._follow_checked(said))

    @follow.validator
    def _follow(self, said: Any = None) -> None:
        self._follow_checked(said)

    def _follow_checked(self, said: Any) -> Follow:
        try:
            follow = understood(Follow, said if said is not None else {})
        except InvalidRequest as error:
            raise ApplicationError(error.what, type="NotCounted", non_retryable=True) from None
        if words := self.base.problem():
            raise ApplicationError(words, type="NotCounted", non_retryable=True)
        return follow
