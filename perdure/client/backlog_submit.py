"""Submitting a backlog: start it, or attach to the backlog that has its id already."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from perdure.client.backlog import BACKLOG_WORKFLOW, Backlog
from perdure.client.backlog_history import BacklogHistory
from perdure.client.submit import start_and_confirm, start_workflow
from perdure.models.backlog import BacklogRequest
from perdure.models.backlog_state import BacklogState
from perdure.models.errors import BadInput, InvalidRequest, PerdureError
from perdure.models.proof import request_proof
from perdure.models.rules.backlog import (
    OTHER_ITEMS,
    backlog_attach_refusal,
    conflicting_backlog,
    continued_request,
    is_bare_issue,
    parse_backlog,
    parse_item,
)
from perdure.models.rules.inbox import NotCounted


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
    from_selector: bool = False,
) -> BacklogSubmission:
    """Start a backlog, or attach to the one of that id, running or ended, as long as it is the same.

    The same: repository, base, branch and items; all other settings stay those of the first. With `from_selector` the
    items are the issues that one selector finds just now, and the id says which selector: a backlog that was started
    when it found other issues is then the same, too. `key` signs the request, and `patience` waits for a worker, as in
    perdure.client.Perdure.submit. Raises BadInput for another backlog of that id, and InvalidRequest.
    """
    sent = request if isinstance(request, BacklogRequest) else parse_backlog(request)
    raw = sent.model_dump(mode="json", exclude_defaults=True)
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
    """Return the numbers of issues that were sent and that the existing backlog was never given.

    None where the id belongs to a backlog of something else or to none at all: `_require_same_backlog` says so then.
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
    """Return the numbers of all issues a backlog was ever given; empty where there is no such backlog.

    No worker is needed.
    """
    try:
        await backlog.describe()
        return _issue_numbers(await backlog.past())
    except (BadInput, InvalidRequest):
        return frozenset()


def _issue_numbers(past: BacklogHistory) -> frozenset[int]:
    return frozenset(filter(None, (parse_item(item).issue_number for item in past.items.values())))


async def _require_same_backlog(backlog: Backlog, raw: dict[str, Any]) -> None:
    """Raise BadInput, with a way out, when the existing backlog is not the one that was sent.

    A running backlog is asked by update `attach`; where no worker answers or it has ended, the request that its first
    run was started with decides, as long as the server has that.
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
    """Return the command that builds one more issue, where items differ and issues are among them; else empty.

    One more backlog would build the issues twice that both have. Empty: the only way out is another id.
    """
    if OTHER_ITEMS not in reason or not any("issue" in item for item in raw.get("items", ())):
        return ""
    typed = f"perdure backlog add {id} --issue N" if running else "perdure deliver --issue N"
    return f"{typed} builds one more; perdure backlog status {id} shows those it has"
