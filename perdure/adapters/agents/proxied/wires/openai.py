"""Parts that both wires of OpenAI share: errors, prices, what their servers would fetch."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.prices import price
from perdure.adapters.agents.proxied.base import Json, WireError
from perdure.adapters.agents.proxied.wires.shapes import count, refused, said_in
from perdure.models.ledger import Usage

IDS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Fields that name who asks and in which session: they differ for an agent that is started again."""

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_CODES = {"rate_limit_exceeded": 429, "insufficient_quota": 402, "invalid_prompt": 400, "context_length_exceeded": 400}
"""Statuses of errors that have none of their own, or one that says less: nobody comes again without credit."""


def error(wrong: WireError) -> Json:
    kind = _TYPES.get(wrong.status, "server_error" if wrong.status >= 500 else "invalid_request_error")
    return {"error": {"message": wrong.said, "type": kind, "param": None, "code": wrong.kind or None}}


def refusal(status: int, body: bytes) -> WireError:
    told, said = said_in(body)
    code = told.get("code") if isinstance(told, dict) else None
    code = code if isinstance(code, str) else ""
    return WireError(402 if code == "insufficient_quota" else status, code, said)


def failed(told: Any) -> WireError:
    """The error of a reply that has failed after its beginning."""
    told = told if isinstance(told, dict) else {}
    code = str(told.get("code") or told.get("type") or "server_error")
    return WireError(_CODES.get(code, 500), code, str(told.get("message") or code))


def refuse_addresses(value: Any) -> None:
    """Raises WireError for what the API's servers would fetch: a picture by its address, a file of the account."""
    if isinstance(value, list):
        for item in value:
            refuse_addresses(item)
    elif isinstance(value, dict):
        image = value.get("image_url")
        address = image.get("url") if isinstance(image, dict) else image
        if isinstance(address, str) and not address.startswith("data:"):
            raise refused("this agent has no network: a picture cannot be named by its address")
        if value.get("file_url") or value.get("file_id"):
            raise refused("this agent has no network: a file cannot be named by its address or its id")
        for name in ("content", "output", "file"):
            refuse_addresses(value.get(name))


def standard(body: Json) -> bool:
    """True where no option of the request changes its price."""
    return body.get("service_tier") in (None, "auto", "default")


def usage(model: str, counted: Any, names: tuple[str, str, str], *, known: bool) -> Usage:
    """`names`: of the fields for what was read, for its details, and for what was written. Without them the price is
    unknown."""
    told = counted if isinstance(counted, dict) else {}
    read, details, written = names
    detail = told.get(details)
    cached = count(detail.get("cached_tokens")) if isinstance(detail, dict) else 0
    found = Usage(
        input_tokens=max(0, count(told.get(read)) - cached),
        cache_read_tokens=cached,
        output_tokens=count(told.get(written)),
    )
    return found.model_copy(update={"cost_usd": price(model, found) if known and found.tokens else None})
