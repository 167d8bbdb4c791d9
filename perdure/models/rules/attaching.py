"""Submitting a request under an id that may exist: the same request is the same delivery, another one is refused."""

from __future__ import annotations

from typing import Any

from perdure.models.base import PublishedModel
from perdure.models.errors import InvalidRequest
from perdure.models.issue import is_same_repository, parse_repository_address
from perdure.models.request import DeliveryRequest, parse_request


class DeliveryAttached(PublishedModel):
    """The answer to update `attach`: the delivery of this id has been accepted, just now or before.

    request  what it is about, in one line of at most 200 characters
    issue    the number of the issue that says so
    """

    delivery_id: str
    run_id: str
    repository: str
    request: str
    issue: int | None = None


def delivery_attached(request: DeliveryRequest, delivery_id: str, run_id: str) -> DeliveryAttached:
    """Return the answer to update `attach`: the facts that whoever attaches can compare with what they meant."""
    return DeliveryAttached(
        delivery_id=delivery_id,
        run_id=run_id,
        repository=request.repository,
        request=request.caption[:200],
        issue=request.issue_number,
    )


def conflicting_delivery(existing: DeliveryRequest, sent: DeliveryRequest) -> str:
    """Return what the existing delivery is about, where that is not what was sent; empty: both are about the same.

    Compared are the repository and the issue, and without an issue the text: `me/calc` and `you/calc` share ids.
    """
    if not is_same_repository(existing.repository, sent.repository):
        return f"another repository, {existing.repository[:200]}"
    is_other_issue = existing.issue_number != sent.issue_number
    if is_other_issue or (sent.issue_number is None and existing.caption != sent.caption):
        return f"another request there: {existing.caption[:80]}"
    return ""


def request_key(request: DeliveryRequest) -> tuple[str, ...]:
    """Return what a request is for, as texts that are equal for equal requests.

    They are repository, text or issue, base, branch, phases, plan, fix and push; price, model and gates do not count.
    """
    repository = "/".join(
        parse_repository_address(request.repository) or (request.repository.rstrip("/").removesuffix(".git"),)
    )
    phases = ",".join(request.phases) if request.phases is not None else ""
    switches = f"{request.fix:d}{request.push:d}"
    return (repository, request.caption, request.base or "", request.branch or "", phases, request.plan or "", switches)


def is_same_request(existing: DeliveryRequest, sent: DeliveryRequest) -> bool:
    """Return whether two requests are for the same, so that whoever sends the second means the first.

    It compares `request_key` of both; a repository may be written in two ways.
    """
    return (
        is_same_repository(existing.repository, sent.repository) and request_key(existing)[1:] == request_key(sent)[1:]
    )


def delivery_attach_refusal(existing: DeliveryRequest, raw: Any) -> str:
    """Return the reason why somebody who sent this cannot attach to the existing delivery; empty: they can.

    raw  the request as it was sent; None or {} fits every delivery. The reason for an invalid one names its field
    """
    if raw is None or raw == {}:
        return ""
    try:
        conflict = conflicting_delivery(existing, parse_request(raw))
    except InvalidRequest as error:
        return error.what
    return f"the id is taken by {conflict}" if conflict else ""
