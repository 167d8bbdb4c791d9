"""Client of one backlog: submit it or attach to it, read its state, wait for its end, change it while it runs. Commands
and the page come here through `perdure.client`."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.fold import BacklogHistory
from perdure.client.history.runs import read_backlog_history, read_request
from perdure.client.server.calls import query_workflow, send_update, unknown_named_by
from perdure.client.server.view import RunDescription, describe_run, ended_run_id, find_accepted_run
from perdure.client.submit import ATTACH, add_host, start_and_confirm, start_workflow
from perdure.models.backlog.request import BacklogItem, BacklogRequest
from perdure.models.backlog.state import BacklogProgress, BacklogState, ReopenedFrom
from perdure.models.base import read_as
from perdure.models.delivery.request import request_proof
from perdure.models.errors import BadInput, InvalidRequest, NotBegun, NoWorker, PerdureError
from perdure.models.ids import BACKLOG_WORKFLOW, stack_workflow_id
from perdure.models.rules.admission import backlog_refusal, id_refusal
from perdure.models.rules.backlog import (
    OTHER_ITEMS,
    backlog_attach_refusal,
    conflicting_backlog,
    continued_request,
    is_bare_issue,
    parse_backlog,
    parse_item,
)
from perdure.models.rules.changes import reopen_backlog
from perdure.models.rules.inbox import NotCounted
from perdure.text import shell_word

STATE_TIMEOUT = timedelta(seconds=30)
"""Limit of the query for the state of an ended backlog, whose whole history a busy worker has to replay first."""

_CUT_OFF = {WorkflowExecutionStatus.CANCELED: "cancelled", WorkflowExecutionStatus.TERMINATED: "terminated"}


class Backlog:
    """A backlog, by its workflow id.

    Its deliveries have ids `<id>/<item>`; perdure.client.Delivery reads and decides those. Methods that change it
    return the backlog's reply, one line. They raise NotCounted (a BadInput, with the backlog's reason) when the change
    does not count, BadInput when the backlog has ended or does not exist, and NoWorker when no worker answers.
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._handle: WorkflowHandle[Any, BacklogProgress] = client.get_workflow_handle(id, result_type=BacklogProgress)

    @property
    def client(self) -> Client:
        return self._client

    async def describe(self) -> RunDescription:
        """Return what the Temporal server knows of the backlog; no worker is needed.

        Raises BadInput when there is no workflow of this id, or one of another type; RPCError when the server fails
        otherwise.
        """
        if (execution := await find_accepted_run(self._client, self.id)) is None:
            raise BadInput(f"no backlog {self.id}", fix="see perdure list")
        if execution.workflow_type != BACKLOG_WORKFLOW:
            problem = f"{self.id} is no backlog, but a {execution.workflow_type.lower()}"
            raise BadInput(problem, fix=f"perdure show {shell_word(self.id)}")
        return await describe_run(execution)

    async def request(self, run_id: str | None = None) -> dict[str, Any]:
        """Return the request as it was sent, read from the first event of a run, by default the newest. Raises BadInput
        when there is no such backlog."""
        async with unknown_named_by(self.describe):
            run_id = run_id or await ended_run_id(self._client, self.id)
            return await read_request(self._client, self.id, run_id)

    async def past(self) -> BacklogHistory:
        """Read the histories of all its runs: items, landed commits, started deliveries.

        No worker is needed. Raises BadInput when there is no such backlog.
        """
        async with unknown_named_by(self.describe):
            return await read_backlog_history(self._client, self.id, await ended_run_id(self._client, self.id))

    async def progress(self, *, once: bool = False) -> BacklogProgress:
        """Query the backlog's workflow for its progress and return it; this needs a worker.

        Tries for as long as another worker needs to take the place of one that has died; with `once`, a single try of
        five seconds. When the workflow was cancelled or terminated or failed before it could say so itself, the status
        in the progress is `cancelled`, `terminated` or `failed`. When the query fails, returns for an ended backlog
        what `result` returns (and raises as it does), and raises NoWorker for a running one, NotBegun for one that
        waits for the time of its beginning. Raises BadInput when there is no such backlog.
        """
        try:
            progress = await self._query_progress(once)
            if progress.status != "running" or (described := await self.describe()).running:
                return progress
            if described.status is WorkflowExecutionStatus.COMPLETED:  # in between
                return await self._query_progress(once)
            return progress.as_cut_off(_CUT_OFF.get(described.status, "failed"))
        except RPCError:
            described = await self.describe()
            if described.begins is not None:
                raise NotBegun(self.id, described.begins) from None
            if not described.running:
                return await self.result()
            raise NoWorker("no worker answers", where=self.id, consequence="the work goes on then") from None

    async def _query_progress(self, once: bool = False) -> BacklogProgress:
        with suppress(WorkflowQueryFailedError):  # a stranger's worker need not know the query
            progress = await query_workflow(self._handle, "progress", BacklogProgress, once=once)
            if progress.status == "running":
                return progress
        return await query_workflow(await self._reading_handle(), "progress", BacklogProgress, once=once)

    async def _reading_handle(self) -> WorkflowHandle[Any, BacklogProgress]:
        """Return the handle by which the backlog is read: of its newest run that was not refused."""
        run_id = await ended_run_id(self._client, self.id)
        return self._client.get_workflow_handle(self.id, run_id=run_id, result_type=BacklogProgress)

    async def result(self) -> BacklogProgress:
        """Wait until the backlog ends and return its final progress, also where not everything landed.

        That of a cancelled or terminated backlog is queried from a worker, and gets `cancelled` or `terminated` as its
        status; raises RPCError when no worker answers. Raises BadInput when there is no such backlog, InvalidRequest
        when the workflow refused the request, and PerdureError when it failed without a result.
        """
        try:
            async with unknown_named_by(self.describe):
                return await (await self._reading_handle()).result()
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest":
                raise InvalidRequest(cause.message.removeprefix("InvalidRequest: "), where=self.id) from None
            details = cause.details if isinstance(cause, ApplicationError) else ()
            if (progress := read_as(BacklogProgress, next(iter(details), None))) is not None:
                return progress
            if (status := (await self.describe()).status) in _CUT_OFF:
                return (await self._query_progress()).as_cut_off(_CUT_OFF[status])
            failure = cause.cause if isinstance(cause, ActivityError) and cause.cause is not None else cause
            raise PerdureError(f"the backlog failed: {failure}", where=self.id) from error

    async def attach(self, raw: dict[str, Any]) -> None:
        """Raise NotCounted unless `raw` is the request that this backlog was started with; sends update `attach`."""
        await self._send_update(ATTACH, raw)

    async def add(self, item: BacklogItem | dict[str, Any]) -> str:
        """Add an item and return the backlog's reply."""
        return await self._send_update("add", {"item": _item_json(item)})

    async def edit(self, item: BacklogItem | dict[str, Any]) -> str:
        """Replace the item of the same id, as long as it has not begun; return the backlog's reply."""
        return await self._send_update("edit", {"item": _item_json(item)})

    async def skip(self, item: str, note: str = "", *, by: str = "") -> str:
        """Mark an item as skipped, so that what depends on it may begin; return the backlog's reply.

        `by` names who decides, for the record. A backlog that has ended runs again for it, without that name.
        """
        return await self._send_update("skip", {"item": item, "note": note, "by": by}, restart=True)

    async def retry(self, item: str = "", *, by: str = "") -> str:
        """Start an item that ended without landing again, from where its delivery stopped.

        Without `item`: all such items. Returns the backlog's replies, joined by "; ". A backlog that has ended runs
        again for it. `by` names who decides, for the record of a running backlog. Raises NotCounted when nothing has
        failed or was cancelled or the backlog refuses, NoWorker when no worker answers, BadInput when there is no such
        backlog.
        """
        if item:
            return await self._send_update("retry", {"item": item, "by": by}, restart=True)
        if not (await self.describe()).running:
            with suppress(WorkflowAlreadyStartedError):
                return await self._restart_with_change("retry", "", "")
        failed = [view.id for view in (await self.progress()).items if view.phase in ("failed", "cancelled")]
        if not failed:
            raise NotCounted("nothing has failed or was cancelled", where=self.id)
        return "; ".join([await self._send_update("retry", {"item": id, "by": by}) for id in failed])

    async def cancel_item(self, item: str, *, by: str = "") -> str:
        """Stop one item and nothing else; what depends on it is blocked. Return the backlog's reply."""
        return await self._send_update("cancel_item", {"item": item, "by": by})

    async def prioritise(self, item: str, priority: int, *, by: str = "") -> str:
        """Set an item's priority, -100 to 100, and return the reply.

        Of the items that are ready the highest begins first.
        """
        return await self._send_update("prioritise", {"item": item, "priority": priority, "by": by})

    async def follow(self, *, leave: bool = False, note: str = "", by: str = "") -> str:
        """Check the base branch again now, whatever stopped that before; with `leave`, leave the branch as it is.

        Returns the backlog's reply. `note` and `by` go into the record.
        """
        return await self._send_update("follow", {"leave": leave, "note": note, "by": by})

    async def decide(self, item: str, update: str, message: dict[str, Any]) -> str:
        """Send a decision on what an item waits for; the backlog hands it to the item's delivery. Return the reply.

        `update` is `approve`, `reject`, `answer`, `add_budget` or `edit_plan`, and `message` its JSON object
        (docs/control.md). Without `of` in it, it decides whatever the item waits for as it arrives.
        """
        return await self._send_update(update, {**message, "item": item})

    async def hold(self, note: str = "") -> None:
        """Send signal `hold`: no further item begins, and no further turn of its deliveries, until `resume`."""
        await self._send_signal("hold", {"note": note})

    async def resume(self) -> None:
        """Send signal `resume`: the backlog goes on after a hold."""
        await self._send_signal("resume", {})

    async def cancel(self) -> str:
        """Ask the whole backlog to stop, without waiting for it: its deliveries end, what has landed stays.

        Of a backlog that has ended, the workflow that follows the pull requests of its stack is cancelled instead.
        Returns a line that says which of the two was done. Raises BadInput when there is no such backlog, or it has
        ended and follows no pull requests.
        """
        described = await self.describe()
        stack = self._client.get_workflow_handle(stack_workflow_id(self.id, described.run_id))
        if described.running:
            await self._handle.cancel()
            return f"{self.id} asked to stop: its deliveries end, what has landed stays"
        try:
            if (await stack.describe()).status is not WorkflowExecutionStatus.RUNNING:
                raise self._ended_error(described)
        except RPCError as error:
            raise (self._ended_error(described) if error.status == RPCStatusCode.NOT_FOUND else error) from None
        await stack.cancel()
        return f"the pull requests of {self.id} are followed no longer"

    async def _require_running(self) -> None:
        """Raise BadInput when the backlog has ended or does not exist."""
        described = await self.describe()
        if not described.running:
            raise self._ended_error(described)

    def _ended_error(self, described: RunDescription) -> BadInput:
        """Return the BadInput which says that this backlog has ended, how, and what can still be done."""
        word = described.outcome.replace("_", " ")
        ended = "has ended" if word in ("", "ended") else f"has ended ({word})"
        fix = f"perdure backlog report {shell_word(self.id)} says how; retry ITEM goes on with one that failed"
        return BadInput(f"{self.id} {ended}: nothing of it can be changed", fix=fix)

    async def _restart_with_change(self, change: Literal["retry", "skip"], item: str, note: str) -> str:
        """Start another run of an ended backlog, from the last run's state with an item retried or skipped.

        Queries a worker for that state. Returns one line that says what was done. With an empty `item`, all that failed
        or was cancelled are meant. Raises NotCounted when the change is refused, NoWorker when the query fails,
        BadInput when the backlog was refused as it was started, and WorkflowAlreadyStartedError when it runs again
        meanwhile.
        """
        last_run_id = (await self.describe()).run_id
        last_run = self._client.get_workflow_handle(self.id, run_id=last_run_id)
        try:
            state: BacklogState = await last_run.query("state", result_type=BacklogState, rpc_timeout=STATE_TIMEOUT)
        except RPCError:
            if (await self.describe()).running:
                raise WorkflowAlreadyStartedError(self.id, BACKLOG_WORKFLOW) from None
            what = "no worker answers, and the backlog has ended"
            raise NoWorker(what, where=self.id, consequence="nothing was changed") from None
        if not state.items:
            raise BadInput(f"{self.id} was refused when it was started: there is nothing to go on with")
        now = datetime.now(UTC)
        next_state = reopen_backlog(state, change, item, note, now)
        next_state.reopened_from = ReopenedFrom(run_id=last_run_id, change=change, item=item, note=note, changed_at=now)
        raw = {name: value for name, value in (await self.request(last_run_id)).items() if name != "items"}
        await start_workflow(
            self._client, self.id, raw, WorkflowIDReusePolicy.ALLOW_DUPLICATE, BACKLOG_WORKFLOW, next_state
        )
        prefix = f"{'skipped' if change == 'skip' else 'goes on'}: {item}; " if item else ""
        return f"{prefix}{self.id} runs again"

    async def _send_update(self, name: str, message: dict[str, Any], *, restart: bool = False) -> str:
        """Send an update to the backlog, without the fields of `message` that are "", and return its reply.

        With `restart`, an ended backlog is not sent the update: another run with that retry or skip is started, and the
        line that says so returned; when somebody else has started it in the same moment, that run is sent the update.
        Raises NotCounted when the backlog refuses, NoWorker when no worker answers, and BadInput when the backlog has
        ended or does not exist.
        """
        if restart and not (await self.describe()).running:
            with suppress(WorkflowAlreadyStartedError):  # somebody else has done so just now: it is told of this, too
                return await self._restart_with_change(
                    "skip" if name == "skip" else "retry", message["item"], message.get("note", "")
                )
        await self._require_running()
        payload = {field: value for field, value in message.items() if value != ""}
        try:
            reply = await send_update(self._handle, name, payload, uuid.uuid4().hex)
        except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError):
            then = f"perdure backlog status {shell_word(self.id)} shows if it counted"
            raise NoWorker("no worker has answered", where=self.id, consequence=then) from None
        except WorkflowUpdateFailedError as error:
            what = error.cause.message if isinstance(error.cause, ApplicationError) else str(error.cause or error)
            raise NotCounted(what.removeprefix("NotCounted: "), where=self.id) from None
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            raise self._ended_error(await self.describe()) from None
        return str(reply or "")

    async def _send_signal(self, name: str, payload: dict[str, Any]) -> None:
        """Send a signal to the backlog; raise BadInput when it has ended or does not exist."""
        await self._require_running()
        await self._handle.signal(name, payload)


def _item_json(item: BacklogItem | dict[str, Any]) -> dict[str, Any]:
    """Return an item as JSON without its defaults; a dict as it is."""
    return item.model_dump(mode="json", exclude_defaults=True) if isinstance(item, BacklogItem) else item


@dataclass(frozen=True)
class BacklogSubmission:
    """The outcome of submitting a backlog.

    attached          it existed already, running or ended; nothing new was started
    accepted          whether a worker has looked at it; None where nobody waited for that
    existing_request  what the existing one was started with, without its items; None for a new one
    missing_issues    numbers of issues that were sent and that the existing one does not have
    """

    backlog: Backlog
    attached: bool
    accepted: bool | None = None
    existing_request: BacklogRequest | None = None
    missing_issues: tuple[int, ...] = ()


async def submit_backlog(
    client: Client,
    key: bytes | None,
    request: BacklogRequest | dict[str, Any],
    id: str,
    patience: timedelta | None = None,
    *,
    queue: str = "",
    from_selector: bool = False,
) -> BacklogSubmission:
    """Start a backlog, or attach to the one of that id, running or ended, as long as it is the same.

    The same: repository, base, branch and items; all other settings stay those of the first. With `from_selector` the
    items are the issues that one selector finds just now, and the id says which selector: a backlog that was started
    when it found other issues is then the same, too, and the issues it lacks are returned in `missing_issues`, not
    added. `key` signs the request; None leaves it unsigned; `queue`: of its host, where it names a path. With
    `patience`, waits at most that long until a worker has accepted the request; `accepted` says if one has. Raises
    BadInput when a different backlog or another workflow has that id, and InvalidRequest when the request is not
    valid.
    """
    sent = request if isinstance(request, BacklogRequest) else parse_backlog(request)
    if reason := backlog_refusal(sent) or id_refusal(id, backlog=True):
        raise InvalidRequest(reason)
    raw = await add_host(client, sent.model_dump(mode="json", exclude_defaults=True), queue)
    if key is not None:
        raw["proof"] = request_proof(key, id, {name: value for name, value in raw.items() if name != "items"})
    backlog = Backlog(client, id)
    try:
        if patience is not None:
            accepted = await start_and_confirm(client, id, raw, patience, BACKLOG_WORKFLOW)
            return BacklogSubmission(backlog, attached=False, accepted=accepted)
        await start_workflow(client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE, BACKLOG_WORKFLOW)
        return BacklogSubmission(backlog, attached=False)
    except WorkflowAlreadyStartedError:
        missing = await _find_missing_issues(backlog, sent) if from_selector else None
        if missing is None:
            await _require_same_backlog(backlog, raw)
        existing = continued_request(await backlog.request())
        return BacklogSubmission(backlog, attached=True, existing_request=existing, missing_issues=missing or ())


async def _find_missing_issues(backlog: Backlog, sent: BacklogRequest) -> tuple[int, ...] | None:
    """Return the numbers of issues that were sent and that the existing backlog was never given; read without a worker.

    None when the two cannot be compared by issues: there is no backlog of that id, its request is not valid, its
    repository, base or branch is another, or its request has an item that is more than an issue.
    """
    try:
        await backlog.describe()
        past = await backlog.past()
        existing = parse_backlog(past.request) if "items" in past.request else continued_request(past.request)
    except (BadInput, InvalidRequest):
        return None
    if conflicting_backlog(existing.model_copy(update={"items": sent.items}), sent) or not all(
        map(is_bare_issue, existing.items)
    ):
        return None
    known_issues = _issue_numbers(past)
    return tuple(
        item.issue_number for item in sent.items if item.issue_number and item.issue_number not in known_issues
    )


async def list_known_issues(backlog: Backlog) -> frozenset[int]:
    """Return the numbers of all issues that a backlog was ever given, read from its histories; no worker is needed.

    Empty when there is no backlog of that id. Raises RPCError when the server fails.
    """
    try:
        await backlog.describe()
        return _issue_numbers(await backlog.past())
    except (BadInput, InvalidRequest):
        return frozenset()


def _issue_numbers(past: BacklogHistory) -> frozenset[int]:
    return frozenset(filter(None, (parse_item(item).issue_number for item in past.items.values())))


async def _require_same_backlog(backlog: Backlog, raw: dict[str, Any]) -> None:
    """Raise BadInput, with a way out, when the existing backlog of the id is not the one that was sent as `raw`.

    A running backlog decides itself, by update `attach`. When it has ended, or the update gets no answer, the request
    that its first run was started with is compared; nothing is raised when the server no longer has that run. Raises
    BadInput, too, when the id belongs to another kind of workflow or to a backlog that was refused.
    """
    fix = f"--id NAME gives another one: --id {backlog.id}-2"
    try:
        described = await backlog.describe()
    except BadInput as error:
        raise BadInput(f"the id {backlog.id} is taken: {error.what}", where=backlog.id, fix=fix) from None
    if described.running:
        try:
            await backlog.attach(raw)
            return
        except NotCounted as error:
            what = error.what.removeprefix("InvalidRequest: ")
            raise BadInput(
                what, where=backlog.id, fix=_suggest_adding(backlog.id, what, raw, running=True) or fix
            ) from None
        except PerdureError:
            pass  # no worker: history knows
    past = await backlog.past()
    try:
        existing = parse_backlog(past.request) if "items" in past.request else continued_request(past.request)
        difference = (
            backlog_attach_refusal(existing, BacklogState(items_digest=past.items_digest), raw) if past.complete else ""
        )
    except InvalidRequest:
        difference = "the id is taken by a backlog that was refused"
    if difference:
        fix = _suggest_adding(backlog.id, difference, raw, running=described.running) or fix
        raise BadInput(difference.replace("the id", f"the id {backlog.id}", 1), where=backlog.id, fix=fix)


def _suggest_adding(id: str, reason: str, raw: dict[str, Any], *, running: bool) -> str:
    """Return the command that builds one more issue, when `reason` says that the items differ and issues were sent;
    else "".

    One more backlog would build the issues twice that both have. Empty: the only way out is another id.
    """
    if OTHER_ITEMS not in reason or not any("issue" in item for item in raw.get("items", ())):
        return ""
    typed = f"perdure backlog add {shell_word(id)} --issue N" if running else "perdure deliver --issue N"
    return f"{typed} builds one more; perdure backlog status {shell_word(id)} shows those it has"
