"""The API's errors: an HTTP status, a type, a message."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """The answer is an error.

    `details` carries a stable `error_code` where the API gives one; `retry_after` is in seconds.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.details, self.retry_after = details, retry_after

    def body(self, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"type": self.kind, "message": self.message}
        if self.details:
            error["details"] = self.details
        return {"type": "error", "error": error, "request_id": request_id}


def invalid(message: str) -> Refused:
    return Refused(400, "invalid_request_error", message)
