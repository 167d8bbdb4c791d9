"""All deliveries, backlogs and schedules of one Temporal namespace: submitted, found, listed."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.backlog import Backlog
from perdure.client.backlog_submit import SubmittedBacklog, submit_backlog
from perdure.client.delivery import Delivery
from perdure.client.events import events
from perdure.client.listing import newest
from perdure.client.once import SameWords, check_same, running_of, stands
from perdure.client.schedules import Schedules
from perdure.client.submit import WORKFLOW, start, start_accepted
from perdure.client.view import Listed
from perdure.models.backlog import BacklogRequest
from perdure.models.errors import BadInput
from perdure.models.events import Event
from perdure.models.ids import issue_delivery_id
from perdure.models.proof import proof
from perdure.models.request import DeliveryRequest, parse_request


@dataclass(frozen=True)
class Submitted:
    """`attached`: the delivery was already there, nothing new was started; it may be running or delivered.

    `accepted`: whether a worker has looked at the request; None where nobody waited for that.
    """

    delivery: Delivery
    attached: bool
    accepted: bool | None = None


class Perdure:
    """Deliveries on one Temporal namespace. `client` needs `plugins=[perdure.plugin.perdure_plugin()]`.

    `key`: of the home whose worker carries requests out (the file `key` in its PERDURE_HOME). With it a request may
    name a repository or a checkout by its path on that host.
    """

    def __init__(self, client: Client, key: bytes | None = None) -> None:
        self.client, self._key = client, key

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
        at: str = "",
        patience: timedelta | None = None,
    ) -> Submitted:
        """Start a delivery, or attach to the one of that id, or to the one of the same words that has not ended.

        Running, or closed as delivered: attached, nothing new is started. Closed otherwise: BadInput that names
        `perdure retry`; BadInput too when the id is taken by other words. The default id is `<repo>-issue-<n>` for an
        issue, and otherwise `<repo>-<slug>-<4 hex>`: of a delivery that runs and was asked for the same (repository,
        words, base, branch, phases, plan), unless `new`; of a new one where there is none.

        name  what that id is made from; default: the words, or the issue
        at    what else has to be the same: the commit of a branch

        Returns as soon as the server has it, or with `patience` once a worker has accepted it (milliseconds), at the
        latest after that time: it is submitted all the same, and `accepted` is False. Raises InvalidRequest.
        """
        sent = request if isinstance(request, DeliveryRequest) else parse_request(request)
        if id is None and sent.issue_number is not None and not (new or name):
            id = issue_delivery_id(sent.repository, sent.issue_number)
        words = SameWords(sent, name or sent.caption, at)
        if id is None and not new:
            return await self._submit_once(words, patience)
        return await self._submit(sent, id or words.by_chance(), patience)

    async def _submit_once(self, words: SameWords, patience: timedelta | None) -> Submitted:
        """Attach to what runs and was asked for the same, however long ago; else start it, once."""
        if (there := await running_of(self.client, words)) is not None:
            return Submitted(self.delivery(there), attached=True)
        for id in words.ids(words.days()[-1]):
            try:
                return await self._start(words.sent, id, patience)
            except WorkflowAlreadyStartedError:
                if await stands(self.client, words, id):
                    return Submitted(self.delivery(id), attached=True)
        return await self._submit(words.sent, words.by_chance(), patience)

    async def _start(self, sent: DeliveryRequest, id: str, patience: timedelta | None) -> Submitted:
        """WorkflowAlreadyStartedError when there is one of that id, running or not."""
        raw = sent.model_dump(mode="json", exclude_defaults=True)
        if self._key is not None:
            raw["proof"] = proof(self._key, id, raw)
        delivery = self.delivery(id)
        if patience is not None:
            accepted = await start_accepted(self.client, id, raw, patience)
            return Submitted(delivery, attached=False, accepted=accepted)
        await start(self.client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        return Submitted(delivery, attached=False)

    async def _submit(self, sent: DeliveryRequest, id: str, patience: timedelta | None) -> Submitted:
        delivery = self.delivery(id)
        try:
            return await self._start(sent, id, patience)
        except WorkflowAlreadyStartedError:
            check_same(id, await delivery.request(), sent)
            described = await delivery.describe()
            if not described.running and described.status != WorkflowExecutionStatus.COMPLETED:
                raise BadInput(
                    f"{id} has ended without delivering ({await delivery.how_it_ended()})",
                    fix=f"perdure retry {id} goes on with it; --id NAME starts another delivery",
                ) from None
            return Submitted(delivery, attached=True)

    def backlog(self, id: str) -> Backlog:
        return Backlog(self.client, id)

    @property
    def schedules(self) -> Schedules:
        return Schedules(self.client, self._key)

    async def submit_backlog(
        self,
        request: BacklogRequest | dict[str, Any],
        id: str,
        *,
        patience: timedelta | None = None,
        listed: bool = False,
    ) -> SubmittedBacklog:
        """Start a backlog or attach to it, as perdure.client.backlog_submit says."""
        return await submit_backlog(self.client, self._key, request, id, patience, listed=listed)

    def events(self, id: str, *, follow: bool = False, since: int = 0) -> AsyncIterator[Event]:
        """The events of a delivery or a backlog, as perdure.client.events says."""
        return events(self.client, id, follow=follow, since=since)

    async def list(self, limit: int = 50, query: str = "", *, workflow: str = WORKFLOW) -> list[Listed]:
        """The newest by start, each once, from visibility; `query`: added with AND; `workflow`: type, for backlogs."""
        return await newest(self.client, limit, query, workflow)

    async def waiting(self, limit: int = 1000) -> builtins.list[Listed]:
        """Those that wait for somebody, the longest first: to decide something, to resume them, or for a host."""
        running = await self.list(limit=limit, query="ExecutionStatus = 'Running'")
        return sorted(
            (one for one in running if one.waiting), key=lambda one: one.asked.since if one.asked else one.started
        )
