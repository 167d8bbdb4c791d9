"""Client of one delivery: read its state, history and artifacts, wait for its end, retry it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure.client.delivery.decisions import Decisions
from perdure.client.doctor import failed_notices
from perdure.client.history.events import stream_events
from perdure.client.history.fold import DeliveryHistory
from perdure.client.history.runs import read_history, read_request, unread_messages
from perdure.client.server.calls import query_workflow, run_on_host, unknown_named_by
from perdure.client.server.slots import explain_queue_waits
from perdure.client.server.view import RunDescription, describe_run, ended_run_id, find_accepted_run, has_pollers
from perdure.client.submit import start_workflow
from perdure.models.base import read_as
from perdure.models.delivery.request import parse_request
from perdure.models.delivery.result import DeliveryResult, ProgressStatus, Status
from perdure.models.delivery.state import DeliveryState, Progress, retry_request
from perdure.models.delivery.summary import progress_of, result_of
from perdure.models.delivery.turn import PAGE_CHARS, TextPage, VaultReadInput
from perdure.models.errors import BadInput, InvalidRequest, NotBegun, NoWorker, PerdureError
from perdure.models.events import Event
from perdure.models.ids import delivery_key
from perdure.models.rules.admission import amounts_refusal
from perdure.text import shell_word

ARTIFACT_READ_BYTES = 8_000_000
"""Most bytes of an artifact that are read page by page: some 180 pages and a few seconds; a screenshot of a long page
is below 2 MB."""

READ_TIMEOUT = timedelta(seconds=30)
"""Limit for reading one page, which takes milliseconds on a host that lives."""


class Delivery(Decisions):
    """A delivery, by its workflow id. What a person can do to it is in its base, perdure.client.delivery.decisions."""

    async def describe(self) -> RunDescription:
        """Return what the Temporal server knows of the delivery's newest run that was not refused, of its newest one
        when all were; no worker is needed. Anybody can start a run under an ended delivery's id.

        Raises BadInput when there is none.
        """
        if (execution := await find_accepted_run(self._client, self.id)) is None:
            raise BadInput(f"no delivery {self.id}", fix="see perdure list")
        (described,) = await explain_queue_waits(self._client, [await describe_run(execution)])
        return described

    def events(self, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """Return an iterator over its events, in order.

        See perdure.client.history.events; it raises BadInput when there is no such delivery.
        """
        return stream_events(self._client, self.id, follow=follow, since=since)

    async def request(self, run_id: str | None = None) -> dict[str, Any]:
        """Return the request as it was sent, read from the first event of a run, by default the newest. Raises BadInput
        when there is no such delivery."""
        async with unknown_named_by(self.describe):
            run_id = run_id or await ended_run_id(self._client, self.id)
            return await read_request(self._client, self.id, run_id)

    async def failed_notices(self) -> list[str]:
        """Return who was not told what the delivery waits for or how it ended, and why, one line each.

        Raises RPCError.
        """
        return await failed_notices(self._client, self.id)

    async def unread_messages(self) -> list[str]:
        """Return the names of what was sent to it that no worker has read yet: `approve`, `say`… Raises BadInput when
        there is no such delivery."""
        async with unknown_named_by(self.describe):
            return await unread_messages(self._client, self.id, await ended_run_id(self._client, self.id))

    async def progress(self, *, once: bool = False) -> Progress:
        """Query the delivery's workflow for its progress; when no worker answers, build it from the memo of an ended
        run.

        Tries for as long as another worker needs to take the place of one that has died; with `once`, a single try of
        five seconds. Raises NoWorker when none answers and there is no such memo (`describe` still works then),
        NotBegun when it waits for the time of its beginning, and BadInput when there is no such delivery.
        """
        try:
            return await self._query_progress(once)
        except RPCError:
            described = await self.describe()
            if described.begins is not None:
                raise NotBegun(self.id, described.begins) from None
            if described.resume is None:
                then = "the work goes on then" if described.running else "then the same again"
                raise NoWorker("no worker answers", where=self.id, consequence=then) from None
            request = parse_request(await self.request())
            state = (read_as(DeliveryState, described.resume.state) or DeliveryState()).as_ended()
            return progress_of(state, request, self.id, described.run_id)

    async def result(self) -> DeliveryResult:
        """Wait until the delivery ends and return its result, also when it did not deliver or was cancelled.

        A rewind that happens meanwhile is followed into its new run. Raises BadInput when there is no such delivery,
        InvalidRequest when the workflow refused the request, PerdureError when it was terminated or failed without a
        result.
        """
        try:
            async with unknown_named_by(self.describe):
                return await (await self._reading_handle()).result()
        except WorkflowFailureError as error:
            cause = error.cause
            details = cause.details if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" else ()
            if (result := read_as(DeliveryResult, next(iter(details), None))) is not None:
                return result
            if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest":
                raise InvalidRequest(cause.message.removeprefix("InvalidRequest: "), where=self.id) from None
            if isinstance(cause, CancelledError):
                return await self._result_from_memo()
            if isinstance(cause, TerminatedError):
                # A reset terminates the run that was waited for; the delivery goes on in another one.
                if (await self.describe()).status != WorkflowExecutionStatus.TERMINATED:
                    return await self.result()
                raise PerdureError(
                    "the workflow was terminated",
                    where=self.id,
                    fix=f"perdure retry {shell_word(self.id)} starts it again",
                ) from None
            raise PerdureError(f"the workflow failed: {cause}", where=self.id) from error

    async def _query_progress(self, once: bool) -> Progress:
        """Query the newest run for its progress and, unless that runs, the newest one that was not refused: while a run
        of it goes on, nobody else begins one under its id. Raises as `query_workflow` does."""
        with suppress(WorkflowQueryFailedError):  # a stranger's worker need not know the query
            progress = await query_workflow(self._handle, "progress", Progress, once=once)
            if progress.status in (ProgressStatus.RUNNING, ProgressStatus.WAITING):
                return progress
        return await query_workflow(await self._reading_handle(), "progress", Progress, once=once)

    async def _reading_handle(self) -> WorkflowHandle[Any, DeliveryResult]:
        """Return the handle by which the delivery is read: of its newest run that was not refused."""
        run_id = await ended_run_id(self._client, self.id)
        return self._client.get_workflow_handle(self.id, run_id=run_id, result_type=DeliveryResult)

    async def _result_from_memo(self) -> DeliveryResult:
        """Build the result of a cancelled delivery from its request and the state in its memo; without a memo from an
        empty state.

        Its status is `cancelled` unless the state has one.
        """
        described = await self.describe()
        request = parse_request(await self.request())
        stored_state = described.resume.state if described.resume else {}
        state = (read_as(DeliveryState, stored_state) or DeliveryState()).as_ended()
        state.status = state.status or Status.CANCELLED
        return result_of(state, request, self.id, described.run_id)

    async def past(self) -> DeliveryHistory:
        """Read the histories of all its runs: activities, deaths, waits. No worker is needed. Raises BadInput when
        there is no such delivery."""
        async with unknown_named_by(self.describe):
            return await read_history(self._client, self.id, await ended_run_id(self._client, self.id))

    async def read_page(
        self,
        what: str,
        offset: int = 0,
        queue: str | None = None,
        checkpoint: str = "",
        patience: timedelta = READ_TIMEOUT,
        chars: int = PAGE_CHARS,
    ) -> TextPage:
        """Read one page of `turns`, `turns_json`, `logs` or `diff`, as of `checkpoint` where given.

        It has at most 64 KiB, of `turns`, `logs` and `diff` at most `chars` characters (PAGE_CHARS_MOST).

        Read on the delivery's host by an activity outside of any workflow, so that nothing goes into the delivery's
        history. `queue` is that host's task queue; None: it is taken from `progress`, which may raise NoWorker. Returns
        an empty page when the delivery has no host yet. Raises HostSilent when the host has not answered within
        `patience`, HostRefused when it fails there.
        """
        where = queue or (await self.progress()).queue
        if where is None:
            return TextPage(text="")
        work = VaultReadInput(
            delivery=delivery_key(self.id), what=what, offset=offset, checkpoint=checkpoint, chars=chars
        )
        return await run_on_host(self._client, "read", work, TextPage, queue=where, about=self.id, within=patience)

    async def has_pollers(self, queue: str) -> bool:
        """Return True where the server has seen a worker ask for activities of this queue in the last few minutes."""
        return await has_pollers(self._client, queue)

    async def artifact(self, sha256: str, queue: str | None = None, patience: timedelta = READ_TIMEOUT) -> bytes:
        """Read the artifact that a hash in a result names (`artifact:sha256:…` or bare) and return its bytes.

        Read from the host page by page, as `read_page` does and with its errors, and checked against the hash. Raises
        PerdureError above ARTIFACT_READ_BYTES, and when the bytes do not have that hash, as for a delivery without a
        host; HostSilent when the host does not answer, HostRefused when it does not have it.
        """
        sha256, data, offset = sha256.removeprefix("artifact:sha256:"), bytearray(), 0
        while True:
            page = await self.read_page("artifact64", offset, queue, sha256, patience)
            data += base64.b64decode(page.text)
            if len(data) > ARTIFACT_READ_BYTES:
                raise PerdureError(f"artifact {sha256[:12]} is too large to be read from here", where=self.id)
            if page.next is None:
                break
            offset = page.next
        if hashlib.sha256(data).hexdigest() != sha256:
            raise PerdureError(f"artifact {sha256[:12]} arrived damaged", where=self.id)
        return bytes(data)

    async def retry(self, budget_usd: float | None = None) -> Delivery:
        """Start another run of a delivery that ended without delivering, from its last checkpoint; return the delivery.

        Does not wait for a worker. `budget_usd` replaces its budget. Raises BadInput when it runs, has delivered or
        does not exist, and InvalidRequest for a budget, or a state left by the ended run, that is not valid.

        A delivery that was terminated begins again where that run began.
        """
        described = await self.describe()
        if described.running:
            raise BadInput(f"{self.id} is running", fix=f"perdure watch {shell_word(self.id)}")
        if described.status == WorkflowExecutionStatus.COMPLETED:
            raise BadInput(
                f"{self.id} is delivered: there is nothing to retry", fix=f"perdure show {shell_word(self.id)}"
            )
        request = retry_request(await self.request(described.run_id), described.resume)
        if budget_usd is not None:
            retried = parse_request({**request, "budget_usd": budget_usd})
            if reason := amounts_refusal(retried):
                raise InvalidRequest(reason, where=self.id)
            request["budget_usd"] = retried.budget_usd
        try:
            await start_workflow(self._client, self.id, request, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        except WorkflowAlreadyStartedError:
            raise BadInput(f"{self.id} is running", fix=f"perdure watch {shell_word(self.id)}") from None
        return self
