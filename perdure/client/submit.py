"""Start a delivery or a backlog so that the server has it exactly once, whatever happens to the answer; and find the
running delivery that was asked for the same. Only the client's own modules call it: the namespace for new deliveries,
the handles of deliveries and backlogs, rewinding and schedules; commands and the page go through those."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import (
    Client,
    WithStartWorkflowOperation,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import (
    Priority,
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from perdure.client.history.runs import read_request
from perdure.client.server.view import find_workflow, has_pollers
from perdure.models.backlog.state import BacklogState
from perdure.models.concurrency_limit import fairness_key
from perdure.models.delivery.request import DeliveryRequest, names_host_path, parse_request
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.ids import DELIVERY_WORKFLOW, TITLE, delivery_id, repository_name, slug
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from perdure.models.rules.inbox import conflicting_delivery, is_same_request, request_key
from perdure.models.webui.captions import describe_items, issue_number, request_title
from perdure.models.webui.markdown import escape_line

ATTACH = "attach"

_CAPTION_CHARS, _CAPTION_BYTES, _DETAIL_CHARS = 100, 360, 4000
"""A server refuses to start what has a summary above 400 bytes or details above 20,000, counted as JSON with its
encoding's name (`limit.userMetadataSummarySize`); the embedded one takes any. Characters have up to four bytes."""


async def start_workflow(
    client: Client,
    id: str,
    raw: dict[str, Any],
    reuse_policy: WorkflowIDReusePolicy,
    workflow: str = DELIVERY_WORKFLOW,
    state: BacklogState | None = None,
) -> None:
    """Start a workflow of this id with a request, and do not wait for any worker.

    `state` is what a backlog goes on with: its items are there, no longer in the request. Raises
    WorkflowAlreadyStartedError when it runs, or has run and `reuse_policy` forbids another run.
    """
    items = {} if state is None else {"items": [{"id": item} for item in state.items]}
    args = [raw] if state is None else [raw, state.dump_for_next_run()]
    options = _start_options(client, id, raw, reuse_policy, workflow, raw | items)
    try:
        await client.start_workflow(workflow, args=args, **options)
    except RPCError as error:
        if not lists_no_titles(error):
            raise
        await client.start_workflow(workflow, args=args, **options | {"search_attributes": None})


def lists_no_titles(error: RPCError) -> bool:
    """Return True when a start was refused because the namespace has no search attribute PerdureTitle."""
    return error.status is RPCStatusCode.INVALID_ARGUMENT and TITLE in error.message


def title_attribute(client: Client, raw: dict[str, Any]) -> TypedSearchAttributes:
    """Return the search attribute with a request's title that it is started with; none where a codec encrypts."""
    if client.data_converter.payload_codec is not None:  # what it encrypts is not put beside it in clear
        return TypedSearchAttributes.empty
    return TypedSearchAttributes([SearchAttributePair(SearchAttributeKey.for_keyword(TITLE), request_title(raw))])


def _start_options(
    client: Client,
    id: str,
    raw: dict[str, Any],
    reuse_policy: WorkflowIDReusePolicy,
    workflow: str,
    shown: dict[str, Any],
) -> dict[str, Any]:
    """Return the keyword arguments that start a workflow: id, queue, policies, fairness key, title, texts for the Web
    UI.

    `shown` is what those texts are made of: the request, with a backlog's items where `raw` has none.
    """
    caption, details = caption_and_details(shown)
    return {
        "id": id,
        "task_queue": TASK_QUEUE,
        "task_timeout": WORKFLOW_TASK,
        "id_reuse_policy": reuse_policy,
        "id_conflict_policy": WorkflowIDConflictPolicy.FAIL,
        "static_summary": caption,
        "static_details": details,
        "search_attributes": title_attribute(client, shown),
        "priority": Priority(fairness_key=fairness_key(id, raw, backlog=workflow != DELIVERY_WORKFLOW)),
    }


async def start_and_confirm(
    client: Client,
    id: str,
    raw: dict[str, Any],
    within: timedelta,
    workflow: str = DELIVERY_WORKFLOW,
    *,
    lists_titles: bool = True,
) -> bool:
    """Start a workflow and wait until a worker has accepted the request: update-with-start, one call for both; two
    where the namespace lists no titles.

    Returns True when one has. Returns False when none has `within` that time, or when server or worker is too old for
    this call: it is started all the same, once, and the next worker begins with it. Raises WorkflowAlreadyStartedError
    when a workflow of that id runs or has run, and InvalidRequest when the worker refuses what we took for valid.
    """
    reuse_policy = WorkflowIDReusePolicy.REJECT_DUPLICATE
    options = _start_options(client, id, raw, reuse_policy, workflow, raw)
    options |= {} if lists_titles else {"search_attributes": None}
    start_operation: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(workflow, raw, **options)
    try:
        # The rpc_timeout limits one try, not all of them: the client tries again what a server has not answered.
        async with asyncio.timeout(within.total_seconds()) as patience:
            # The update's id is new: the server itself would answer one that the delivery has seen, whatever became of
            # it.
            await client.execute_update_with_start_workflow(
                ATTACH, {}, id=str(uuid.uuid4()), start_workflow_operation=start_operation, rpc_timeout=within
            )
        return True
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type == "InvalidRequest":
            raise InvalidRequest(error.cause.message.removeprefix("InvalidRequest: "), where=id) from None
        return False  # a worker of before this update: it runs
    except (WorkflowUpdateRPCTimeoutOrCancelledError, TimeoutError) as error:
        if isinstance(error.__cause__, asyncio.CancelledError) and not patience.expired():
            raise error.__cause__ from None
        # Without an answer it has nearly always started: an update waits only in a started workflow.
        if await find_workflow(client, id) is None:
            await start_workflow(client, id, raw, reuse_policy, workflow)
        return False
    except RPCError as error:
        if lists_no_titles(error) and lists_titles:
            return await start_and_confirm(client, id, raw, within, workflow, lists_titles=False)
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
        await start_workflow(client, id, raw, reuse_policy, workflow)
        return False
    finally:
        await _discard_start_error(start_operation)


async def _discard_start_error(start_operation: WithStartWorkflowOperation[Any, Any]) -> None:
    """Fetch and drop the copy of a failure or cancellation that the SDK keeps.

    The SDK keeps it a second time and complains when nobody asks for it.
    """
    with suppress(Exception, asyncio.CancelledError):
        async with asyncio.timeout(0):
            await start_operation.workflow_handle()


async def add_host(client: Client, raw: dict[str, Any], queue: str) -> dict[str, Any]:
    """Return a request with the queue of the sender's host in it, where it names a path of a host, and none, and a
    worker takes work from that queue; else as it is. An empty queue: the sender knows none."""
    if not queue or "host" in raw or not names_host_path(raw):
        return raw
    return raw | {"host": queue} if await has_pollers(client, queue) else raw


def caption_and_details(raw: dict[str, Any]) -> tuple[str, str]:
    """Return one line and some Markdown about a request as it was sent, for the Web UI; also of one that is not valid.

    All markup in it is escaped: the Web UI would render links and pictures of whoever wrote it. The line has at most
    100 characters and 360 bytes, as JSON.
    """
    text, number = str(raw.get("request") or describe_items(raw)), issue_number(raw)
    parts = [f"**Issue** {escape_line(number, 20)}"] if number else []
    lines = [escape_line(line, _DETAIL_CHARS) for line in text[:_DETAIL_CHARS].splitlines()]
    parts += ["\n".join(["**Request**", "", *(f"{line}  " for line in lines)])] if text.strip() else []
    caption, limit = " ".join([*([number] if number else []), *text.split()]), _CAPTION_CHARS
    while len(json.dumps(escape_line(caption, limit), ensure_ascii=False).encode()) > _CAPTION_BYTES:
        limit -= 5
    return escape_line(caption, limit), "\n\n".join(parts)


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
    """Return the id of the delivery that runs and was asked for the same; None when none is found.

    Searches the server's lists, which are some seconds behind, and right after midnight (UTC) the ids of yesterday.
    With a `branch_commit` the lists are left out, as only the id tells of it. A delivery of today that is missed so is
    found by starting the same id.
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
    """Return True when the delivery of that id runs and was asked for the same, None when there is none of that id.

    False when it has ended, was asked for something else, or its request is not valid.
    """
    if (execution := await find_workflow(client, id)) is None:
        return None
    if execution.status != WorkflowExecutionStatus.RUNNING:
        return False
    try:
        return is_same_request(parse_request(await read_request(client, id)), fingerprint.request)
    except InvalidRequest:  # started by somebody else's program, and about to fail for it
        return False


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
