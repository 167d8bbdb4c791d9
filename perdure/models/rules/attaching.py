"""Submitting what may be there already: the same id is the same delivery, and another request is another one."""

from __future__ import annotations

from typing import Any

from perdure.models.base import Published
from perdure.models.errors import InvalidRequest
from perdure.models.issue import address, same_repository
from perdure.models.request import DeliveryRequest, parse_request


class Attached(Published):
    """The answer to update `attach`: the delivery of this id has been accepted, just now or before.

    request  what it is about, in one line of at most 200 characters
    issue    the number of the issue that says so
    """

    delivery_id: str
    run_id: str
    repository: str
    request: str
    issue: int | None = None


def attached(request: DeliveryRequest, delivery_id: str, run_id: str) -> Attached:
    """Return what whoever attaches can compare with what they meant."""
    return Attached(
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        request=request.caption[:200],
        issue=request.issue_number,
    )


def taken(there: DeliveryRequest, sent: DeliveryRequest) -> str:
    """Name what the delivery there is about, where that is not what was sent: `me/calc` and `you/calc` share ids.

    Empty when it is the same repository and issue, or without an issue the same words.
    """
    if not same_repository(there.repository, sent.repository):
        return f"another repository, {there.repository[:200]}"
    other = there.issue_number != sent.issue_number
    if other or (sent.issue_number is None and there.caption != sent.caption):
        return f"another request there: {there.caption[:80]}"
    return ""


def wish(request: DeliveryRequest) -> tuple[str, ...]:
    """The wish of a request, as texts that are the same for the same: not its price, its model, or who is asked."""
    where = "/".join(address(request.repository) or (request.repository.rstrip("/").removesuffix(".git"),))
    phases = ",".join(request.phases) if request.phases is not None else ""
    how = f"{request.fix:d}{request.push:d}"
    return (where, request.caption, request.base or "", request.branch or "", phases, request.plan or "", how)


def same_wish(there: DeliveryRequest, sent: DeliveryRequest) -> bool:
    """True when two requests want the same: whoever sends the second means the first."""
    return same_repository(there.repository, sent.repository) and wish(there)[1:] == wish(sent)[1:]


def refusal(there: DeliveryRequest, raw: Any) -> str:
    """Say why somebody who sent this cannot attach; empty when they can. Nothing sent fits every delivery."""
    if raw is None or raw == {}:
        return ""
    try:
        other = taken(there, parse_request(raw))
    except InvalidRequest as error:
        return error.what
    return f"the id is taken by {other}" if other else ""
