"""Parts that both wires of OpenAI share: errors, prices, texts, what their servers would fetch."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.agents.proxied.base import Json, WireError
from perdure.adapters.agents.proxied.wires.shapes import count, refuse_addresses, said_in, text
from perdure.models.ledger import Usage

IDS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Fields that name who asks and in which session: they differ for an agent that is started again."""

_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

_CODES = {"rate_limit_exceeded": 429, "insufficient_quota": 402, "invalid_prompt": 400, "context_length_exceeded": 400}
"""Statuses of errors that have none of their own, or one that says less: nobody comes again without credit."""


class OpenAI:
    """Answers as both of them read them."""

    headers: frozenset[str] = frozenset()
    ping = b""

    def refusal(self, status: int, body: bytes) -> WireError:
        told, said = said_in(body)
        code = told.get("code") if isinstance(told, dict) else None
        code = code if isinstance(code, str) else ""
        return WireError(402 if code == "insufficient_quota" else status, code, said)

    def error(self, error: WireError) -> Json:
        kind = _TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
        return {"error": {"message": error.said, "type": kind, "param": None, "code": error.kind or None}}


def failed(told: Any) -> WireError:
    """The error of a reply that has failed after its beginning."""
    told = told if isinstance(told, dict) else {}
    code = str(told.get("code") or told.get("type") or "server_error")
    return WireError(_CODES.get(code, 500), code, str(told.get("message") or code))


def refuse_fetched(value: Any) -> None:
    """Raises WireError for a picture by its address, and a file of the account."""
    refuse_addresses(value, _fetched, "content", "output", "file")


def _fetched(value: Json) -> str:
    image = value.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    if isinstance(address, str) and not address.startswith("data:"):
        return "a picture cannot be named by its address"
    named = value.get("file_url") or value.get("file_id")
    return "a file cannot be named by its address or its id" if named else ""


def texts(content: Any) -> list[Json]:
    """The text blocks of a message's content."""
    if isinstance(content, str):
        return [text(content)] if content else []
    parts = content if isinstance(content, list) else []
    said = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return [text(words) for words in said if isinstance(words, str)]


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
    return found.model_copy(update={"cost_usd": usage_cost(model, found) if known and found.tokens else None})
