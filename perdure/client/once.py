"""The same words twice: which running delivery was asked for the same, and the id that locks the words meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus

from perdure.client.submit import WORKFLOW
from perdure.client.view import look_up
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import delivery_id, repository_name, slug
from perdure.models.request import DeliveryRequest, parse_request
from perdure.models.rules.attaching import same_wish, taken, wish

SAME_WORDS_IDS = 50
"""Deliveries of the same words that may end in one day and still be told apart by an id that follows from the words:
each costs one call to the server. What is begun after that gets an id by chance."""

VISIBLE_WITHIN = timedelta(minutes=1)
"""After this long lists know of what was started: they are a second behind, on a busy cluster some more."""


@dataclass(frozen=True)
class SameWords:
    """The request, and the ids that it can have.

    name  what the id is made from
    at    what else tells it from another of the same words: the commit of a branch that goes on meanwhile
    """

    sent: DeliveryRequest
    name: str
    at: str = ""

    @property
    def beginning(self) -> str:
        """Of every id of these words."""
        return f"{repository_name(self.sent.repository)}-{slug(self.name)}-"

    def ids(self, day: str) -> Iterator[str]:
        """The ids of one day, in the order in which they are used up.

        They follow from the words: whoever says the same at the same moment comes to the same id, and Temporal lets
        one of them start it. Lists cannot do that, they know of a start a second later. The day is part of it
        because an id must not come again when the server has forgotten what it was: its branch is still there.
        """
        for number in range(SAME_WORDS_IDS):
            yield delivery_id(self.sent.repository, self.name, *wish(self.sent), self.at, day, str(number))

    def by_chance(self) -> str:
        return delivery_id(self.sent.repository, self.name, uuid.uuid4().hex)

    def days(self) -> tuple[str, ...]:
        """Today (UTC); before it yesterday, as long as lists need not know of what was started then."""
        now = datetime.now(UTC)
        return tuple(dict.fromkeys(f"{time:%Y-%m-%d}" for time in (now - VISIBLE_WITHIN, now)))


async def running_of(client: Client, words: SameWords) -> str | None:
    """The delivery that runs and was asked for the same; one that was started in this minute may be missed."""
    query = (
        f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND WorkflowId STARTS_WITH '{words.beginning}'"
    )
    if not words.at:  # which commit it was is not in the request, only in the id
        async for one in client.list_workflows(query):
            if await stands(client, words, one.id):
                return one.id
    for day in words.days()[:-1]:
        for id in words.ids(day):
            if (there := await stands(client, words, id)) is None:
                break
            if there:
                return id
    return None


async def stands(client: Client, words: SameWords, id: str) -> bool | None:
    """True when the delivery of that id runs and was asked for the same. None: there is none."""
    if (seen := await look_up(client, id)) is None:
        return None
    if seen.status != WorkflowExecutionStatus.RUNNING:
        return False
    try:
        return same_wish(parse_request(await request_of(client, id)), words.sent)
    except InvalidRequest:  # started by somebody else's program, and about to fail for it
        return False


async def request_of(client: Client, id: str) -> dict[str, Any]:
    """The request as it was sent, from the first event of history."""
    async for event in client.get_workflow_handle(id).fetch_history_events(page_size=1):
        arguments = event.workflow_execution_started_event_attributes.input
        values = await client.data_converter.decode_wrapper(arguments)
        return values[0] if values and isinstance(values[0], dict) else {}
    return {}


def check_same(id: str, found: dict[str, Any], sent: DeliveryRequest) -> None:
    """BadInput when the delivery that is there already is about something else."""
    try:
        there = parse_request(found)
    except InvalidRequest:  # started by somebody else's program: it has failed for that, and is said to have
        return
    if other := taken(there, sent):
        fix = f"--id NAME gives this delivery another one: --id {id}-2"
        raise BadInput(f"the id {id} is taken by {other}", where=id, fix=fix)
