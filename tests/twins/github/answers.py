"""What a GitHub answers: replies, and its refusals in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DOCUMENTATION = "https://docs.github.com/rest"


@dataclass(frozen=True)
class Reply:
    """`body` is JSON; None: there is none."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Problem(Exception):
    """A refusal. `errors` are those of a 422; `more` goes into the body beside them."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        errors: list[dict[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message = status, message
        self.errors, self.headers, self.more = errors, dict(headers or {}), dict(more or {})

    @property
    def reply(self) -> Reply:
        body: dict[str, Any] = {"message": self.message}
        if self.errors is not None:
            body["errors"] = self.errors
        body |= {"documentation_url": DOCUMENTATION, **self.more}
        if self.status not in (301, 307, 405, 409):
            body["status"] = str(self.status)
        if self.status == 422:
            body.pop("status", None)
        return Reply(self.status, body, self.headers)


def not_found() -> Problem:
    """Also what one may not see."""
    return Problem(404, "Not Found")


def archived() -> Problem:
    return Problem(403, "Repository was archived so is read-only.")


def must_be_admin() -> Problem:
    return Problem(403, "Must have admin rights to Repository.")


def invalid(resource: str, field: str = "", code: str = "invalid", message: str = "", value: Any = None) -> Problem:
    """422 with one complaint."""
    error: dict[str, Any] = {"resource": resource, "code": code}
    if field:
        error["field"] = field
    if message:
        error["message"] = message
    if value is not None:
        error["value"] = value
    return Problem(422, "Validation Failed", errors=[error])


def plain_invalid(message: str) -> Problem:
    """422 without fields."""
    return Problem(422, message)
