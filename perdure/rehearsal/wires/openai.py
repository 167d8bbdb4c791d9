"""Shared parts of both APIs of OpenAI: errors, key, and fields of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from perdure.rehearsal.wire import ApiRefusal, StrictModel
from perdure.rehearsal.wires.base import Json, bearer_token, first_problem

_KINDS = {401: "invalid_request_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error"}
_CODES = {401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded", 529: "server_is_overloaded"}


class OpenAiRequest(StrictModel):
    """Fields that a request to either API may have."""

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


def check_bearer_token(headers: Mapping[str, str]) -> None:
    """Raise ApiRefusal where no key was sent; any will do."""
    if not bearer_token(headers):
        raise ApiRefusal(
            401, "invalid_request_error", "Missing bearer or basic authentication in header", details={"code": None}
        )


def validation_refusal(error: ValidationError) -> ApiRefusal:
    """Return the refusal of a body that is not in the API's shape, by its first problem."""
    where, message, kind = first_problem(error)
    if kind == "extra_forbidden":
        return bad_request(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
    if kind == "missing":
        return bad_request(f"Missing required parameter: '{where}'.", where, "missing_required_parameter")
    return bad_request(f"Invalid value for '{where}': {message}", where, "invalid_value")


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiRefusal:
    """Return the refusal of an invalid request: status 400, with the parameter and a code."""
    return ApiRefusal(400, "invalid_request_error", message, details={"param": param, "code": code})


def openai_error(refused: ApiRefusal) -> Json:
    """Return a refusal as OpenAI's error: `{"error": {"message", "type", "param", "code"}}`."""
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
