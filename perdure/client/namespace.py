"""All deliveries, backlogs and schedules of one Temporal namespace: submit them, find them, list them."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from perdure.client.backlog import Backlog, BacklogSubmission, submit_backlog
from perdure.client.delivery.handle import Delivery
from perdure.client.history.events import stream_events
from perdure.client.schedules import Schedules
from perdure.client.server.calls import run_on_host
from perdure.client.server.view import ListEntry, list_newest, list_waiting
from perdure.client.submit import (
    RequestFingerprint,
    add_host,
    find_running_duplicate,
    is_running_duplicate,
    require_same_request,
    start_and_confirm,
    start_workflow,
)
from perdure.models.backlog.request import BacklogRequest
from perdure.models.backlog.state import BacklogProgress
from perdure.models.delivery.decisions import PendingDecision
from perdure.models.delivery.request import DeliveryRequest, parse_request, request_proof
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.events import Event
from perdure.models.ids import DELIVERY_WORKFLOW, issue_delivery_id
from perdure.models.issue import ForgeIssue, ReadIssueInput
from perdure.models.limits import TASK_QUEUE
from perdure.models.rules.admission import delivery_refusal, id_refusal
from perdure.text import shell_word


@dataclass(frozen=True)
class Submission:
    """The outcome of submitting a delivery.

    attached  it existed already, running or delivered; nothing new was started
    accepted  whether a worker has looked at the request; None where nobody waited for that
    """

    delivery: Delivery
    attached: bool
    accepted: bool | None = None


class Perdure:
    """Deliveries, backlogs and schedules on one Temporal namespace.

    `client` needs `plugins=[perdure.plugin.perdure_plugin()]`. `key` is that of the home whose worker carries requests
    out (the file `key` in its PERDURE_HOME). With it a request may name a repository or a checkout by its path on that
    host; `queue` is that host's task queue: while a worker serves it, such a request goes there and to no other host.
    """

    def __init__(self, client: Client, key: bytes | None = None, queue: str = "") -> None:
        self.client, self._key, self._queue = client, key, queue

    @property
    def key(self) -> bytes | None:
        return self._key

    def delivery(self, id: str) -> Delivery:
        return Delivery(self.client, id)

    async def submit(
        self,
        request: DeliveryRequest | dict[str, Any],
        id: str | None = None,
        *,
        new: bool = False,
        name: str = "",
        branch_commit: str = "",
        patience: timedelta | None = None,
    ) -> Submission:
        """Start a delivery, or attach to the one of that id, or to the one of the same request that has not ended.

        Attaches to a delivery that runs or has delivered. Raises BadInput that names `perdure retry` when it ended
        otherwise, BadInput when the id belongs to another request, and InvalidRequest when the request is not valid or
        the worker refuses it. Without `id` it is `<repo>-issue-<n>` for an issue, unless `new` or `name` is given. Else
        it is `<repo>-<slug>-<4 hex>`: that of a delivery that runs and was asked for the same (repository, text or
        issue, base, branch, phases, plan, fix, push), unless `new`; a new id when there is none.

        name           what that id is made from; default: the text, or the issue
        branch_commit  what else has to be the same: the commit of a branch

        Returns as soon as the server has it, or with `patience` once a worker has accepted it (milliseconds), at the
        latest after that time: it is submitted all the same, and `accepted` is False.
        """
        sent = request if isinstance(request, DeliveryRequest) else parse_request(request)
        if reason := delivery_refusal(sent) or id_refusal(id or ""):
            raise InvalidRequest(reason)
        if id is None and sent.issue_number is not None and not (new or name):
            id = issue_delivery_id(sent.repository, sent.issue_number)
        fingerprint = RequestFingerprint(sent, name or sent.caption, branch_commit)
        if id is None and not new:
            return await self._submit_or_attach(fingerprint, patience)
        return await self._submit_as(sent, id or fingerprint.random_id(), patience)

    async def _submit_or_attach(self, fingerprint: RequestFingerprint, patience: timedelta | None) -> Submission:
        """Attach to the running delivery that was asked for the same, however long ago; else start one.

        A new one gets the first id of today that is free. Who sends the same at the same moment comes to the same id
        and attaches. When all of today are used up, a random id is taken. Raises InvalidRequest when the worker refuses
        it.
        """
        if (running_id := await find_running_duplicate(self.client, fingerprint)) is not None:
            return Submission(self.delivery(running_id), attached=True)
        for id in fingerprint.ids_of_day(fingerprint.candidate_days()[-1]):
            try:
                return await self._start_delivery(fingerprint.request, id, patience)
            except WorkflowAlreadyStartedError:
                if await is_running_duplicate(self.client, fingerprint, id):
                    return Submission(self.delivery(id), attached=True)
        return await self._submit_as(fingerprint.request, fingerprint.random_id(), patience)

    async def read_issue(self, repository: str, issue: str, patience: timedelta) -> ForgeIssue:
        """Return an open issue as a delivery of that repository would get it: read by a worker, which has the forge's
        token, outside of any workflow. `issue` is `12`, `#12` or its page's address.

        Raises HostSilent when no worker has answered within `patience`, HostRefused where it cannot be delivered or
        read.
        """
        work = ReadIssueInput(repository=repository, issue=issue)
        return await run_on_host(
            self.client, "read_issue", work, ForgeIssue, queue=TASK_QUEUE, about=issue, within=patience
        )

    async def _start_delivery(self, sent: DeliveryRequest, id: str, patience: timedelta | None) -> Submission:
        """Start a delivery of that id, signed with the key; with `patience`, wait until a worker has accepted it.

        Raises WorkflowAlreadyStartedError when there is one of that id, running or not, and InvalidRequest when the
        worker refuses it.
        """
        raw = await add_host(self.client, sent.model_dump(mode="json", exclude_defaults=True), self._queue)
        if self._key is not None:
            raw["proof"] = request_proof(self._key, id, raw)
        delivery = self.delivery(id)
        if patience is not None:
            accepted = await start_and_confirm(self.client, id, raw, patience)
            return Submission(delivery, attached=False, accepted=accepted)
        await start_workflow(self.client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        return Submission(delivery, attached=False)

    async def _submit_as(self, sent: DeliveryRequest, id: str, patience: timedelta | None) -> Submission:
        """Start a delivery of that id, or attach to it when it runs or has delivered.

        Raises BadInput when the id belongs to another request, and when the delivery ended without delivering;
        InvalidRequest when the worker refuses a new one.
        """
        delivery = self.delivery(id)
        try:
            return await self._start_delivery(sent, id, patience)
        except WorkflowAlreadyStartedError:
            require_same_request(id, await delivery.request(), sent)
            described = await delivery.describe()
            if not described.running and described.status != WorkflowExecutionStatus.COMPLETED:
                raise BadInput(
                    f"{id} has ended without delivering ({await delivery.ending_summary()})",
                    fix=f"perdure retry {shell_word(id)} goes on with it; --id NAME starts another delivery",
                ) from None
            return Submission(delivery, attached=True)

    def backlog(self, id: str) -> Backlog:
        return Backlog(self.client, id)

    @property
    def schedules(self) -> Schedules:
        return Schedules(self.client, self._key, self._queue)

    async def submit_backlog(
        self,
        request: BacklogRequest | dict[str, Any],
        id: str,
        *,
        patience: timedelta | None = None,
        from_selector: bool = False,
    ) -> BacklogSubmission:
        """Start a backlog or attach to it, as perdure.client.backlog.submit_backlog says."""
        key, queue = self._key, self._queue
        return await submit_backlog(self.client, key, request, id, patience, queue=queue, from_selector=from_selector)

    def events(self, id: str, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """Return an iterator over the events of a delivery or a backlog, as perdure.client.history.events says."""
        return stream_events(self.client, id, follow=follow, since=since)

    async def list(self, limit: int = 50, query: str = "", *, workflow: str = DELIVERY_WORKFLOW) -> list[ListEntry]:
        """List the newest deliveries by their start, each once, from visibility.

        `query`, a list filter, is added with AND; `workflow` is the type, for backlogs.
        """
        return await list_newest(self.client, limit, query, workflow)

    async def list_waiting(self, limit: int = 1000) -> builtins.list[ListEntry]:
        """List the running deliveries that wait for somebody, as perdure.client.server.view says."""
        return await list_waiting(self.client, limit)


async def read_pending_decisions(backlog: Backlog, progress: BacklogProgress) -> dict[str, PendingDecision]:
    """Ask each delivery that waits for a person which decision it waits for; return these by item.

    A delivery that cannot be found or described is left out.
    """
    decisions = dict[str, PendingDecision]()
    for view in [view for view in progress.items if view.phase == "waits" and view.delivery]:
        try:
            pending_decision = (await Delivery(backlog.client, view.delivery).describe()).pending_decision
        except (RPCError, BadInput):
            continue
        if pending_decision is not None:
            decisions[view.id] = pending_decision
    return decisions
