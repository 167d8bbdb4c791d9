"""Both APIs of OpenAI: their errors, their key, and what a request to either may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from perdure.rehearsal.wire import Refused, Wire
from perdure.rehearsal.wires.base import Json, bearer, first_problem

_KINDS = {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded", 529: "server_is_overloaded"}


class OpenAiRequest(Wire):
    model: str = Field(min_length=1)
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    stream: bool = False
    store: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    temperature: float | None = None
    top_p: float | None = None


def authenticate(headers: Mapping[str, str]) -> None:
    """Raise Refused where no key was sent; any will do."""
    if not bearer(headers):
        raise Refused(
            401, "invalid_request_error", "Missing bearer or basic authentication in header", details={"code": None}
        )


def unreadable(error: ValidationError) -> Refused:
    """The refusal of a body that is not in the API's shape."""
    where, message, kind = first_problem(error)
    if kind == "extra_forbidden":
        return bad(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
    if kind == "missing":
        return bad(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return bad(f"Invalid value for '{where}': {message}", where, "invalid_value")


def bad(message: str, param: str | None = None, code: str | None = None) -> Refused:
    return Refused(400, "invalid_request_error", message, details={"param": param, "code": code})


def error_body(refused: Refused) -> Json:
    """`{"error": {"message", "type", "param", "code"}}`."""
    details = refused.details or {}
    code = details.get("code", details.get("error_code", _CODES.get(refused.status)))
    if refused.details and refused.details.get("error_code"):
        code = "insufficient_quota"
    return {
        "error": {
            "message": refused.message,
            "type": _KINDS.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error"),
            "param": details.get("param"),
            "code": code,
        }
    }
