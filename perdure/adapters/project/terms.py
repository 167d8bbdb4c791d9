"""Names in a delivery's terms that are made from what the repository says and what was asked for."""

from __future__ import annotations

from perdure.models.errors import InvalidRequest
from perdure.models.ids import slug
from perdure.models.issue import Issue
from perdure.models.request import DeliveryRequest


def branch_of(template: str, delivery: str, request: DeliveryRequest, issue: Issue | None, where: str) -> str:
    """`[git] branch`: {id} is the delivery, {slug} the first words of the request or of the issue's title, {issue} its
    number, empty without one. InvalidRequest for any other place."""
    words = request.request if request.request.strip() or issue is None else issue.title
    number = str(issue.number) if issue is not None else ""
    try:
        return template.format(id=delivery, slug=slug(words), issue=number)
    except (KeyError, IndexError, ValueError, AttributeError):
        raise InvalidRequest(
            f"git.branch: {template!r} has a place that is not known here",
            where=where,
            fix="use {id}, {slug} and {issue}",
        ) from None
