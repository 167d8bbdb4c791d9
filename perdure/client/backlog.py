"""A backlog by its id: awaited, read, changed while it runs.

In another language: the same updates, signals and query, docs/backlog.md.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.backlog_past import BacklogPast, read_backlog_past
from perdure.client.calls import ask, send_update
from perdure.client.once import request_of
from perdure.client.submit import ATTACH, start
from perdure.client.view import Described, describe
from perdure.models.backlog import BacklogItem
from perdure.models.backlog_messages import BacklogProgress
from perdure.models.backlog_state import BacklogState, GoOn
from perdure.models.errors import BadInput, InvalidRequest, NoWorker, PerdureError
from perdure.models.ids import following
from perdure.models.rules.changes import reopened
from perdure.models.rules.inbox import NotCounted

WORKFLOW = "Backlog"

STATE_TIMEOUT = timedelta(seconds=30)
"""For a query of one that has ended, whose whole history a busy worker reads again: nothing else has to do here."""

_CUT_OFF = {WorkflowExecutionStatus.CANCELED: "cancelled", WorkflowExecutionStatus.TERMINATED: "terminated"}


class Backlog:
    """One backlog, by its id. Its deliveries are `<id>/<item>`: perdure.client.Delivery reads and decides those.

    What changes it raises NotCounted (a BadInput, in the backlog's own words) when it does not count, BadInput when the
    backlog has ended or there is none, and NoWorker when none answers.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._handle: WorkflowHandle[Any, BacklogProgress] = client.get_workflow_handle(id, result_type=BacklogProgress)

    @property
    def client(self) -> Client:
        return self._client

    async def describe(self) -> Described:
        """Return what the server knows without any worker. BadInput when there is no such backlog."""
        try:
            seen = await self._handle.describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise BadInput(f"no backlog {self.id}", fix="see perdure list") from None
            raise
        if seen.workflow_type != WORKFLOW:
            what = f"{self.id} is no backlog, but a {seen.workflow_type.lower()}"
            raise BadInput(what, fix=f"perdure show {self.id}")
        return await describe(seen)

    async def request(self) -> dict[str, Any]:
        """The request as it was sent, from the first event of history."""
        return await request_of(self._client, self.id)

    async def past(self) -> BacklogPast:
        """Read what history tells of all its runs: for this no worker is needed. Raises RPCError."""
        return await read_backlog_past(self._client, self.id)

    async def progress(self, *, once: bool = False) -> BacklogProgress:
        """Return where it stands: asks the workflow, which needs a worker. NoWorker when none answers.

        That takes as long as another worker needs in the place of one that has died; `once`: only five seconds.
        """
        try:
            found = await self._progress(once)
            if found.status != "running" or (described := await self.describe()).running:
                return found
            if described.status is WorkflowExecutionStatus.COMPLETED:  # in between
                return await self._progress(once)
            return found.cut_off(_CUT_OFF.get(described.status, "failed"))
        except RPCError:
            running = (await self.describe()).running
            if not running:
                return await self.result()
            raise NoWorker("no worker answers", where=self.id, then="the work goes on then") from None

    async def _progress(self, once: bool = False) -> BacklogProgress:
        return await ask(self._handle, "progress", BacklogProgress, once=once)

    async def result(self) -> BacklogProgress:
        """Wait for the end. A backlog of which not everything landed is a result too; only a bad request raises."""
        try:
            return await self._handle.result()
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest":
                raise InvalidRequest(cause.message.removeprefix("InvalidRequest: "), where=self.id) from None
            if isinstance(cause, ApplicationError) and cause.details:
                return BacklogProgress.model_validate(cause.details[0])
            if (status := (await self.describe()).status) in _CUT_OFF:
                return (await self._progress()).cut_off(_CUT_OFF[status])
            said = cause.cause if isinstance(cause, ActivityError) and cause.cause is not None else cause
            raise PerdureError(f"the backlog failed: {said}", where=self.id) from error

    async def attach(self, raw: dict[str, Any]) -> None:
        """NotCounted unless this is what it was started with."""
        await self._update(ATTACH, raw)

    async def add(self, item: BacklogItem | dict[str, Any]) -> str:
        """One more item; the backlog's own words, as with all of these."""
        return await self._update("add", {"item": _item(item)})

    async def edit(self, item: BacklogItem | dict[str, Any]) -> str:
        """Another item in the place of the one of that id, as long as that has not landed."""
        return await self._update("edit", {"item": _item(item)})

    async def skip(self, item: str, note: str = "", *, by: str = "") -> str:
        """Go on without it: what depends on it may begin. `by`: who says so, for the record.

        This and `retry` begin a backlog again that has ended.
        """
        return await self._update("skip", {"item": item, "note": note, "by": by}, again=True)

    async def retry(self, item: str = "", *, by: str = "") -> str:
        """Try an item again that ended without landing, from where its delivery stopped; without one, all of these."""
        if item:
            return await self._update("retry", {"item": item, "by": by}, again=True)
        if not (await self.describe()).running:
            with suppress(WorkflowAlreadyStartedError):
                return await self._reopen("retry", "", "")
        failed = [view.id for view in (await self.progress()).items if view.phase in ("failed", "cancelled")]
        if not failed:
            raise NotCounted("nothing has failed or was cancelled", where=self.id)
        return "; ".join([await self._update("retry", {"item": id, "by": by}) for id in failed])

    async def cancel_item(self, item: str, *, by: str = "") -> str:
        """Stop one item, and nothing else; what depends on it is blocked."""
        return await self._update("cancel_item", {"item": item, "by": by})

    async def prioritise(self, item: str, priority: int, *, by: str = "") -> str:
        """Higher goes first among those that are ready; -100 to 100."""
        return await self._update("prioritise", {"item": item, "priority": priority, "by": by})

    async def follow(self, *, leave: bool = False, note: str = "", by: str = "") -> str:
        """Look at the base again, now, whatever was in the way; or leave the branch where it stands."""
        return await self._update("follow", {"leave": leave, "note": note, "by": by})

    async def decide(self, item: str, update: str, said: dict[str, Any]) -> str:
        """Decide what an item waits for: `approve`, `reject`, `answer`, `add_budget` or `edit_plan` with its message
        (docs/control.md), handed to its delivery. `said` without `of`: whatever it waits for as this arrives."""
        return await self._update(update, {**said, "item": item})

    async def hold(self, note: str = "") -> None:
        """Begin no further item, and no further turn of its deliveries, until `resume`."""
        await self._signal("hold", {"note": note})

    async def resume(self) -> None:
        """Go on after a hold."""
        await self._signal("resume", {})

    async def cancel(self) -> str:
        """Ask all of it to stop: its deliveries end, what has landed stays. Of one that has ended, the pull requests
        of its stack are followed no longer. Returns which it was."""
        described = await self.describe()
        stack = self._client.get_workflow_handle(following(self.id, described.run_id))
        if described.running:
            await self._handle.cancel()
            return f"{self.id} asked to stop: its deliveries end, what has landed stays"
        try:
            if (await stack.describe()).status is not WorkflowExecutionStatus.RUNNING:
                raise self._ended(described)
        except RPCError as error:
            raise (self._ended(described) if error.status == RPCStatusCode.NOT_FOUND else error) from None
        await stack.cancel()
        return f"the pull requests of {self.id} are followed no longer"

    async def _running(self) -> None:
        described = await self.describe()
        if not described.running:
            raise self._ended(described)

    def _ended(self, described: Described) -> BadInput:
        word = described.outcome.replace("_", " ")
        ended = "has ended" if word in ("", "ended") else f"has ended ({word})"
        fix = f"perdure backlog report {self.id} says how; retry ITEM goes on with one that failed"
        return BadInput(f"{self.id} {ended}: nothing of it can be changed", fix=fix)

    async def _reopen(self, change: Literal["retry", "skip"], item: str, note: str) -> str:
        """Begin an ended backlog again, changed: another run of the same id, with all that the last one knew."""
        ended = (await self._handle.describe()).run_id
        one = self._client.get_workflow_handle(self.id, run_id=ended)
        try:
            state: BacklogState = await one.query("state", result_type=BacklogState, rpc_timeout=STATE_TIMEOUT)
        except RPCError:
            if (await self.describe()).running:
                raise WorkflowAlreadyStartedError(self.id, WORKFLOW) from None
            what = "no worker answers, and the backlog has ended"
            raise NoWorker(what, where=self.id, then="nothing was changed") from None
        if not state.items:
            raise BadInput(f"{self.id} was refused when it was started: there is nothing to go on with")
        at = datetime.now(UTC)
        again = reopened(state, change, item, note, at)
        again.again = GoOn(run_id=ended, change=change, item=item, note=note, at=at)
        raw = {name: value for name, value in (await self.request()).items() if name != "items"}
        await start(self._client, self.id, raw, WorkflowIDReusePolicy.ALLOW_DUPLICATE, WORKFLOW, again)
        done = f"{'skipped' if change == 'skip' else 'goes on'}: {item}; " if item else ""
        return f"{done}{self.id} runs again"

    async def _update(self, name: str, said: dict[str, Any], *, again: bool = False) -> str:
        """`again`: a backlog that has ended begins again for it."""
        if again and not (await self.describe()).running:
            with suppress(WorkflowAlreadyStartedError):  # somebody else has done so just now: it is told of this, too
                return await self._reopen("skip" if name == "skip" else "retry", said["item"], said.get("note", ""))
        await self._running()
        meant = {field: value for field, value in said.items() if value != ""}
        try:
            words = await send_update(self._handle, name, meant, uuid.uuid4().hex)
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
            then = f"perdure backlog status {self.id} shows if it counted"
            raise NoWorker("no worker has answered", where=self.id, then=then) from None
        except WorkflowUpdateFailedError as error:
            what = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause or error)
            raise NotCounted(what.removeprefix("NotCounted: "), where=self.id) from None
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise self._ended(await self.describe()) from None
        return str(words or "")

    async def _signal(self, name: str, said: dict[str, Any]) -> None:
        await self._running()
        await self._handle.signal(name, said)


def _item(item: BacklogItem | dict[str, Any]) -> dict[str, Any]:
    return item.model_dump(mode="json", exclude_defaults=True) if isinstance(item, BacklogItem) else item
