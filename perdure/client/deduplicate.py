"""The same request twice: the running delivery that was asked for the same, and ids that follow from a request."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus

from perdure.client.submit import DELIVERY_WORKFLOW
from perdure.client.view import find_workflow
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import delivery_id, repository_name, slug
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.rules.attaching import conflicting_delivery, is_same_request, request_key

SAME_WORDS_IDS = 50
"""Deliveries of the same request that may end in one day and still get an id that follows from the request: each costs
one call to the server. What is begun after that gets a random id."""

VISIBLE_WITHIN = timedelta(minutes=1)
"""After this long, lists know of what was started: they are a second behind, on a busy cluster some more."""


@dataclass(frozen=True)
class RequestFingerprint:
    """A request with what tells it from others, and the ids that it can have.

    name           what the id is made from
    branch_commit  what else tells it from another of the same words: the commit of a branch that goes on meanwhile
    """

    request: DeliveryRequest
    name: str
    branch_commit: str = ""

    @property
    def id_prefix(self) -> str:
        """Return the beginning of every id of this request."""
        return f"{repository_name(self.request.repository)}-{slug(self.name)}-"

    def ids_of_day(self, day: str) -> Iterator[str]:
        """Yield the ids of one day, in the order in which they are used up.

        They follow from the request: whoever asks for the same at the same moment comes to the same id, and Temporal
        lets one of them start it. Lists cannot do that: they know of a start a second later. The day is part of the id
        because an id must not come again when the server has forgotten what it was: its branch is still there.
        """
        for number in range(SAME_WORDS_IDS):
            yield delivery_id(
                self.request.repository, self.name, *request_key(self.request), self.branch_commit, day, str(number)
            )

    def random_id(self) -> str:
        return delivery_id(self.request.repository, self.name, uuid.uuid4().hex)

    def candidate_days(self) -> tuple[str, ...]:
        """Return today (UTC), and before it yesterday, as long as lists need not know of what was started then."""
        now = datetime.now(UTC)
        return tuple(dict.fromkeys(f"{time:%Y-%m-%d}" for time in (now - VISIBLE_WITHIN, now)))


async def find_running_duplicate(client: Client, fingerprint: RequestFingerprint) -> str | None:
    """Return the id of the delivery that runs and was asked for the same; None where there is none.

    Lists are a second and more behind. One of today that they do not show yet, and any of today with a `branch_commit`,
    which only the id tells, is not found here: starting the same id finds it.
    """
    query = (
        f"WorkflowType = '{DELIVERY_WORKFLOW}' AND ExecutionStatus = 'Running' AND WorkflowId "
        f"STARTS_WITH '{fingerprint.id_prefix}'"
    )
    if not fingerprint.branch_commit:  # which commit it was is not in the request, only in the id
        async for execution in client.list_workflows(query):
            if await is_running_duplicate(client, fingerprint, execution.id):
                return execution.id
    for day in fingerprint.candidate_days()[:-1]:
        for id in fingerprint.ids_of_day(day):
            if (is_same := await is_running_duplicate(client, fingerprint, id)) is None:
                break
            if is_same:
                return id
    return None


async def is_running_duplicate(client: Client, fingerprint: RequestFingerprint, id: str) -> bool | None:
    """Return True when the delivery of that id runs and was asked for the same, else False; None: there is none."""
    if (execution := await find_workflow(client, id)) is None:
        return None
    if execution.status != WorkflowExecutionStatus.RUNNING:
        return False
    try:
        return is_same_request(parse_request(await read_request(client, id)), fingerprint.request)
    except InvalidRequest:  # started by somebody else's program, and about to fail for it
        return False


async def read_request(client: Client, id: str) -> dict[str, Any]:
    """Read a workflow's request as it was sent, from its first event; {} where that is no JSON object."""
    async for event in client.get_workflow_handle(id).fetch_history_events(page_size=1):
        arguments = event.workflow_execution_started_event_attributes.input
        values = await client.data_converter.decode_wrapper(arguments)
        return values[0] if values and isinstance(values[0], dict) else {}
    return {}


def require_same_request(id: str, existing_raw: dict[str, Any], sent: DeliveryRequest) -> None:
    """Raise BadInput when the existing delivery of that id was asked for something else than `sent`.

    Nothing is raised where the existing request is not valid: its delivery has failed for that, and says so.
    """
    try:
        existing = parse_request(existing_raw)
    except InvalidRequest:  # started by somebody else's program: it has failed for that, and is said to have
        return
    if difference := conflicting_delivery(existing, sent):
        fix = f"--id NAME gives this delivery another one: --id {id}-2"
        raise BadInput(f"the id {id} is taken by {difference}", where=id, fix=fix)
