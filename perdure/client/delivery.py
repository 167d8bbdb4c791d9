"""One delivery by its id: awaited, read, retried."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure.client.calls import ask
from perdure.client.decisions import Decisions
from perdure.client.events import events
from perdure.client.history import Past, read_past
from perdure.client.listing import not_read
from perdure.client.notifications import not_notified
from perdure.client.once import request_of
from perdure.client.standalone import ask_host
from perdure.client.submit import start
from perdure.client.view import Described, describe, look_up, polled
from perdure.models.errors import BadInput, InvalidRequest, NoWorker, PerdureError
from perdure.models.events import Event
from perdure.models.ids import delivery_key
from perdure.models.request import parse_request
from perdure.models.result import DeliveryResult, Status
from perdure.models.state import DeliveryState, Progress, retried
from perdure.models.summary import progress_of, result_of
from perdure.models.turn import Page, ReadInput

ARTIFACT_READ_BYTES = 8_000_000
"""Of one artifact read that way, some 180 pages and a few seconds; a screenshot of a long page is below 2 MB."""

READ_TIMEOUT = timedelta(seconds=30)
"""Reading a page takes milliseconds on a host that lives."""


class Delivery(Decisions):
    """One delivery, by its id. What a person does to it is in perdure.client.decisions."""

    async def describe(self) -> Described:
        """Return what the server knows without any worker. BadInput when there is no such delivery."""
        if (seen := await look_up(self._client, self.id)) is None:
            raise BadInput(f"no delivery {self.id}", fix="see perdure list")
        return await describe(seen)

    def events(self, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """Its events, in order, as perdure.client.events says; BadInput when there is no such delivery."""
        return events(self._client, self.id, follow=follow, since=since)

    async def request(self) -> dict[str, Any]:
        """The request as it was sent, from the first event of history."""
        return await request_of(self._client, self.id)

    async def not_notified(self) -> list[str]:
        """Name who was not told what it waits for or how it ended, and why, one line each. Raises RPCError."""
        return await not_notified(self._client, self.id)

    async def not_read(self) -> list[str]:
        """Return what was sent to it that no worker has read yet: `approve`, `say`… Raises RPCError."""
        return await not_read(self._handle, self._client.data_converter)

    async def progress(self, *, once: bool = False) -> Progress:
        """Return where it stands: asks the workflow; without a worker, what its memo says if it has ended.

        Raises NoWorker when it runs and none answers: `describe` still works then. That takes as long as another worker
        needs in the place of one that has died; `once`: only five seconds.
        """
        try:
            return await ask(self._handle, "progress", Progress, once=once)
        except RPCError:
            described = await self.describe()
            if described.resume is None:
                then = "the work goes on then" if described.running else "then the same again"
                raise NoWorker("no worker answers", where=self.id, then=then) from None
            request = parse_request(await self.request())
            ended = DeliveryState.model_validate(described.resume.state).as_ended()
            return progress_of(ended, request, self.id, described.run_id)

    async def result(self) -> DeliveryResult:
        """Wait for the end. A delivery that did not deliver is a result too; only a bad request raises."""
        try:
            return await self._handle.result()
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
                return DeliveryResult.model_validate(cause.details[0])
            if isinstance(cause, ApplicationError) and cause.type == "InvalidRequest":
                raise InvalidRequest(cause.message.removeprefix("InvalidRequest: "), where=self.id) from None
            if isinstance(cause, CancelledError):
                return await self._from_memo()
            if isinstance(cause, TerminatedError):
                # A reset terminates the run that was waited for; the delivery goes on in another one.
                if (await self.describe()).status != WorkflowExecutionStatus.TERMINATED:
                    return await self.result()
                raise PerdureError(
                    "the workflow was terminated", where=self.id, fix=f"perdure retry {self.id} starts it again"
                ) from None
            raise PerdureError(f"the workflow failed: {cause}", where=self.id) from error

    async def _from_memo(self) -> DeliveryResult:
        described = await self.describe()
        request = parse_request(await self.request())
        state = DeliveryState.model_validate(described.resume.state if described.resume else {}).as_ended()
        state.status = state.status or Status.CANCELLED
        return result_of(state, request, self.id, described.run_id)

    async def past(self) -> Past:
        """Read what history tells of all its runs: for this no worker is needed either."""
        return await read_past(self._client, self.id)

    async def read(
        self,
        what: str,
        offset: int = 0,
        queue: str | None = None,
        checkpoint: str = "",
        patience: timedelta = READ_TIMEOUT,
    ) -> Page:
        """One page (at most 64 KiB) of `turns`, `turns_json`, `logs` or `diff`, as of a checkpoint where one is named.

        Read on the delivery's host through Temporal alone: nothing of it goes into the delivery's history. HostSilent
        when it has not answered within `patience`, HostRefused when it says no.
        """
        where = queue or (await self.progress()).queue
        if where is None:
            return Page(text="")
        work = ReadInput(delivery=delivery_key(self.id), what=what, offset=offset, checkpoint=checkpoint)
        return await ask_host(self._client, "read", work, Page, queue=where, about=self.id, within=patience)

    async def polled(self, queue: str) -> bool:
        """True where the server has seen a worker ask for activities of this queue in the last few minutes."""
        return await polled(self._client, queue)

    async def artifact(self, sha256: str, queue: str | None = None, patience: timedelta = READ_TIMEOUT) -> bytes:
        """Read what a hash in a result stands for (`artifact:sha256:…` or bare), like a page.

        Raises PerdureError above ARTIFACT_READ_BYTES and when the bytes are not what the hash says, HostSilent and
        HostRefused when the host does not answer or does not have it.
        """
        sha256, data, offset = sha256.removeprefix("artifact:sha256:"), bytearray(), 0
        while True:
            page = await self.read("artifact64", offset, queue, sha256, patience)
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
        """Go on from the last checkpoint of a delivery that ended without delivering, with another budget if given."""
        described = await self.describe()
        if described.running:
            raise BadInput(f"{self.id} is running", fix=f"perdure watch {self.id}")
        if described.status == WorkflowExecutionStatus.COMPLETED:
            raise BadInput(f"{self.id} is delivered: there is nothing to retry", fix=f"perdure show {self.id}")
        request = retried(await self.request(), described.resume)
        if budget_usd is not None:
            request["budget_usd"] = parse_request({**request, "budget_usd": budget_usd}).budget_usd
        try:
            await start(self._client, self.id, request, WorkflowIDReusePolicy.ALLOW_DUPLICATE)
        except WorkflowAlreadyStartedError:
            raise BadInput(f"{self.id} is running", fix=f"perdure watch {self.id}") from None
        return self
