"""Parts that both wires of OpenAI share: errors, prices, texts, and the refusal of files that its servers would
fetch."""

from __future__ import annotations

from typing import Any

from perdure.adapters.agents.prices import usage_cost
from perdure.adapters.agents.proxied.base import Json, WireError
from perdure.adapters.agents.proxied.wires.common import parse_error_answer, refuse_addresses, text_block, token_count
from perdure.models.ledger import Usage

ID_FIELDS = ("client_metadata", "metadata", "prompt_cache_key", "safety_identifier", "user")
"""Fields that name who asks and in which session: they differ for an agent that is started again."""

_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}

_CODE_STATUS = {
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "invalid_prompt": 400,
    "context_length_exceeded": 400,
}
"""The status of errors that have none of their own, or one that says less: without credit nobody should try again."""


class ProxiedOpenAIWire:
    """The base of both wires of OpenAI: errors, headers, no pings."""

    forwarded_headers: frozenset[str] = frozenset()
    ping = b""

    def parse_error(self, status: int, body: bytes) -> WireError:
        """Parse an error's body; a used-up quota has status 402 whatever the API sends (429), because it does not pass
        by itself."""
        error, message = parse_error_answer(body)
        code = error.get("code") if isinstance(error, dict) else None
        code = code if isinstance(code, str) else ""
        return WireError(402 if code == "insufficient_quota" else status, code, message)

    def error_body(self, error: WireError) -> Json:
        """Return the error as OpenAI writes it."""
        error_type = _ERROR_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
        return {"error": {"message": error.message, "type": error_type, "param": None, "code": error.kind or None}}


def reply_error(error: Any) -> WireError:
    """Return the error of a reply that has failed after its beginning, from its field `error`; its status is that of
    its code, or 500."""
    error = error if isinstance(error, dict) else {}
    code = str(error.get("code") or error.get("type") or "server_error")
    return WireError(_CODE_STATUS.get(code, 500), code, str(error.get("message") or code))


def refuse_remote_files(value: Any) -> None:
    """Raise WireError where messages or items name a picture by its address, or a file by its address or as one of the
    account."""
    refuse_addresses(value, _remote_file_reason, "content", "output", "file")


def _remote_file_reason(value: Json) -> str:
    """Return the reason why a content part may not be sent: it names a picture by its address, or a file by its address
    or id. Empty: it may."""
    image = value.get("image_url")
    address = image.get("url") if isinstance(image, dict) else image
    if isinstance(address, str) and not address.startswith("data:"):
        return "a picture cannot be named by its address"
    is_named = value.get("file_url") or value.get("file_id")
    return "a file cannot be named by its address or its id" if is_named else ""


def text_blocks(content: Any) -> list[Json]:
    """Return the text blocks of a message's content; a refusal counts as text."""
    if isinstance(content, str):
        return [text_block(content)] if content else []
    parts = content if isinstance(content, list) else []
    part_texts = (part.get("text") or part.get("refusal") for part in parts if isinstance(part, dict))
    return [text_block(part_text) for part_text in part_texts if isinstance(part_text, str)]


def has_standard_price(body: Json) -> bool:
    """Return whether no option of the request changes its price."""
    return body.get("service_tier") in (None, "auto", "default")


def parse_usage(model: str, usage_fields: Any, field_names: tuple[str, str, str], *, price_known: bool) -> Usage:
    """Parse the tokens of a reply from its field `usage`, with their price.

    field_names  the fields of the prompt's tokens, of their details (how many were cached), and of the reply's tokens
    price_known  whether the price table holds; else, or without tokens, the price is unknown
    """
    fields = usage_fields if isinstance(usage_fields, dict) else {}
    input_field, details_field, output_field = field_names
    details = fields.get(details_field)
    cached = token_count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    usage = Usage(
        input_tokens=max(0, token_count(fields.get(input_field)) - cached),
        cache_read_tokens=cached,
        output_tokens=token_count(fields.get(output_field)),
    )
    return usage.model_copy(update={"cost_usd": usage_cost(model, usage) if price_known and usage.tokens else None})
