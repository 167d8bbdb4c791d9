"""A backlog handed in: started, or attached to where it is the one that is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.backlog import WORKFLOW, Backlog
from perdure.client.submit import start, start_accepted
from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.proof import proof
from perdure.models.rules.backlog import parse_backlog, refusal, unlisted
from perdure.models.rules.inbox import NotCounted


@dataclass(frozen=True)
class SubmittedBacklog:
    """`attached`: it was already there, nothing new was started; it may be running or have ended.

    `accepted`: whether a worker has looked at it; None where nobody waited for that. `there`: what the one that was
    there was started with, without its items.
    """

    backlog: Backlog
    attached: bool
    accepted: bool | None = None
    there: BacklogRequest | None = None


async def submit_backlog(
    client: Client,
    key: bytes | None,
    request: BacklogRequest | dict[str, Any],
    id: str,
    patience: timedelta | None = None,
) -> SubmittedBacklog:
    """Start it, or attach to the one of that id: running or ended, as long as it is the same.

    The same: repository, base, branch and items; the rest stays that of the first. BadInput for another one of that id.
    `key`, `patience` and InvalidRequest: as perdure.client.Perdure.submit.
    """
    sent = request if isinstance(request, BacklogRequest) else parse_backlog(request)
    raw = sent.model_dump(mode="json", exclude_defaults=True)
    if key is not None:
        raw["proof"] = proof(key, id, {name: value for name, value in raw.items() if name != "items"})
    backlog = Backlog(client, id)
    try:
        if patience is not None:
            accepted = await start_accepted(client, id, raw, patience, WORKFLOW)
            return SubmittedBacklog(backlog, attached=False, accepted=accepted)
        await start(client, id, raw, WorkflowIDReusePolicy.REJECT_DUPLICATE, WORKFLOW)
        return SubmittedBacklog(backlog, attached=False)
    except WorkflowAlreadyStartedError:
        await _check_same(backlog, raw)
        return SubmittedBacklog(backlog, attached=True, there=unlisted(await backlog.request()))


async def _check_same(backlog: Backlog, raw: dict[str, Any]) -> None:
    """BadInput when what is there already is something else: in the words of the workflow while that runs and answers,
    else by what its first run was started with, as long as the server has that."""
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
            raise BadInput(error.what.removeprefix("InvalidRequest: "), where=backlog.id, fix=fix) from None
        except PerdureError:
            pass  # no worker: history knows
    past = await backlog.past()
    try:
        there = parse_backlog(past.request) if "items" in past.request else unlisted(past.request)
        other = refusal(there, BacklogState(sent=past.sent), raw) if past.complete else ""
    except InvalidRequest:
        other = "the id is taken by a backlog that was refused"
    if other:
        raise BadInput(other.replace("the id", f"the id {backlog.id}", 1), where=backlog.id, fix=fix)
