"""A backlog handed in: started, or attached to where it is the one that is there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.backlog import WORKFLOW, Backlog
from perdure.client.backlog_past import BacklogPast
from perdure.client.submit import start, start_accepted
from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.proof import proof
from perdure.models.rules.backlog import OTHER_ITEMS, is_issue, parse_backlog, parse_item, refusal, taken, unlisted
from perdure.models.rules.inbox import NotCounted


@dataclass(frozen=True)
class SubmittedBacklog:
    """`attached`: it was already there, nothing new was started; it may be running or have ended.

    `accepted`: whether a worker has looked at it; None where nobody waited for that. `there`: what the one that was
    there was started with, without its items. `come`: issues that were sent, and that it has not.
    """

    backlog: Backlog
    attached: bool
    accepted: bool | None = None
    there: BacklogRequest | None = None
    come: tuple[int, ...] = ()


async def submit_backlog(
    client: Client,
    key: bytes | None,
    request: BacklogRequest | dict[str, Any],
    id: str,
    patience: timedelta | None = None,
    *,
    listed: bool = False,
) -> SubmittedBacklog:
    """Start it, or attach to the one of that id: running or ended, as long as it is the same.

    The same: repository, base, branch and items; the rest stays that of the first. BadInput for another one of that id.
    `listed`: its items are the issues that one selector finds just now, and the id says which: the same is also the one
    that was begun when it found others.
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
        come = await _come(backlog, sent) if listed else None
        if come is None:
            await _check_same(backlog, raw)
        there = unlisted(await backlog.request())
        return SubmittedBacklog(backlog, attached=True, there=there, come=come or ())


async def _come(backlog: Backlog, sent: BacklogRequest) -> tuple[int, ...] | None:
    """Issues that were sent, and that the backlog there was never given. None where it is another one, or none at all:
    `_check_same` has the words for that."""
    try:
        await backlog.describe()
        past = await backlog.past()
        first = parse_backlog(past.request) if "items" in past.request else unlisted(past.request)
    except (BadInput, InvalidRequest):
        return None
    if taken(first.model_copy(update={"items": sent.items}), sent) or not all(map(is_issue, first.items)):
        return None
    given = _issues(past)
    return tuple(item.issue_number for item in sent.items if item.issue_number and item.issue_number not in given)


async def given_issues(backlog: Backlog) -> frozenset[int]:
    """Numbers of the issues that it was ever given; none where there is no such backlog. No worker is needed."""
    try:
        await backlog.describe()
        return _issues(await backlog.past())
    except (BadInput, InvalidRequest):
        return frozenset()


def _issues(past: BacklogPast) -> frozenset[int]:
    return frozenset(filter(None, (parse_item(item).issue_number for item in past.given.values())))


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
            what = error.what.removeprefix("InvalidRequest: ")
            raise BadInput(what, where=backlog.id, fix=_added(backlog.id, what, raw, running=True) or fix) from None
        except PerdureError:
            pass  # no worker: history knows
    past = await backlog.past()
    try:
        there = parse_backlog(past.request) if "items" in past.request else unlisted(past.request)
        other = refusal(there, BacklogState(sent=past.sent), raw) if past.complete else ""
    except InvalidRequest:
        other = "the id is taken by a backlog that was refused"
    if other:
        fix = _added(backlog.id, other, raw, running=described.running) or fix
        raise BadInput(other.replace("the id", f"the id {backlog.id}", 1), where=backlog.id, fix=fix)


def _added(id: str, refused: str, raw: dict[str, Any], *, running: bool) -> str:
    """The way on where items differ and issues are among them: one more backlog would build the others twice. Empty:
    there is none but another id."""
    if OTHER_ITEMS not in refused or not any("issue" in item for item in raw.get("items", ())):
        return ""
    typed = f"perdure backlog add {id} --issue N" if running else "perdure deliver --issue N"
    return f"{typed} builds one more; perdure backlog status {id} shows those it has"
