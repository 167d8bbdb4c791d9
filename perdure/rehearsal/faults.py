"""Faults that a screenplay can ask for, and what each looks like to a client."""

from __future__ import annotations

from enum import StrEnum

from perdure.rehearsal.wire import ApiRefusal


class Fault(StrEnum):
    """An HTTP error by its status, or by its name what goes wrong with the connection, the stream or the message.

    spend_limit   429 that will not go away: `error_code` names a spend limit
    hang          the request is accepted and never answered
    cut           the connection is reset in the middle of the stream
    close         the stream ends there without an error: no chunked framing, an ordinary end of the body
    stream_error  `event: error`, overloaded, inside a stream that began with 200
    not_json      200, and what should be JSON is not
    page          200, and the body is a proxy's HTML page
    max_tokens    the reply is cut off in its last block, with that stop reason
    refusal       the model refuses: no content, with stop details
    """

    INVALID = "400"
    UNAUTHENTICATED = "401"
    UNPAID = "402"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    TIMEOUT = "408"
    CONFLICT = "409"
    TOO_LARGE = "413"
    RATE_LIMIT = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    OVERLOADED = "529"
    SPEND_LIMIT = "spend_limit"
    HANG = "hang"
    CUT = "cut"
    CLOSE = "close"
    STREAM_ERROR = "stream_error"
    NOT_JSON = "not_json"
    PAGE = "page"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"


PARTIAL = (Fault.CUT, Fault.CLOSE, Fault.STREAM_ERROR)
"""Faults that let only the first half of the reply be sent."""

_ERRORS = {
    Fault.INVALID: ("invalid_request_error", "the screenplay refuses this request"),
    Fault.UNAUTHENTICATED: ("authentication_error", "invalid x-api-key"),
    Fault.UNPAID: ("billing_error", "Your credit balance is too low to access the API."),
    Fault.FORBIDDEN: ("permission_error", "Your API key does not have permission to use the specified resource."),
    Fault.NOT_FOUND: ("not_found_error", "model: {model}"),
    Fault.TIMEOUT: ("timeout_error", "Request timeout"),
    Fault.CONFLICT: ("conflict_error", "Conflict"),
    Fault.TOO_LARGE: ("request_too_large", "Request exceeds the maximum size"),
    Fault.RATE_LIMIT: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    Fault.INTERNAL: ("api_error", "Internal server error"),
    Fault.UNAVAILABLE: ("api_error", "Service unavailable"),
    Fault.GATEWAY_TIMEOUT: ("timeout_error", "Gateway timeout"),
    Fault.OVERLOADED: ("overloaded_error", "Overloaded"),
}

OVERLOADED = ApiRefusal(529, "overloaded_error", "Overloaded")

PAGE = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def http_error(fault: Fault, model: str, retry_after: float | None) -> ApiRefusal | None:
    """Return the error to answer with, None for a fault that is not an HTTP error.

    `model` stands in the message of a 404; `retry_after` is in seconds and ignored for a spend limit.
    """
    if fault is Fault.SPEND_LIMIT:
        details = {"error_code": "enforced_spend_limit_reached"}
        return ApiRefusal(429, "rate_limit_error", "You have reached your spend limit.", details=details)
    if fault not in _ERRORS:
        return None
    kind, message = _ERRORS[fault]
    return ApiRefusal(int(fault), kind, message.format(model=model), retry_after=retry_after)
