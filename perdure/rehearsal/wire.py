"""The request of the Messages API, in the shapes that this twin plays; all else is refused as the API does.

Field names, limits and literals are those of the API's parameters (anthropic-version 2026-10-21).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class StrictModel(BaseModel):
    """A model of an API's JSON: unknown fields are refused, and "5" is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class CacheControl(StrictModel):
    """A cache breakpoint."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class Cacheable(StrictModel):
    """A block or tool that may carry a cache breakpoint."""

    cache_control: CacheControl | None = None


class Text(Cacheable):
    type: Literal["text"]
    text: str
    citations: list[dict[str, Any]] | None = None


class Media(Cacheable):
    """An image or a document; what an image has to be is in `cache.image_problem`."""

    type: Literal["image", "document"]
    source: dict[str, Any]
    title: str | None = None
    context: str | None = None
    citations: dict[str, Any] | None = None


class Thinking(StrictModel):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinking(StrictModel):
    type: Literal["redacted_thinking"]
    data: str


class ToolUse(Cacheable):
    type: Literal["tool_use"]
    id: str = Field(pattern=r"^[a-zA-Z0-9_-]+$")
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input: dict[str, Any]
    caller: dict[str, Any] | None = None
    toolset_name: str | None = None


def _as_text_block(content: object) -> object:
    """Return text content as a list of one text block, other content unchanged (a validator)."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


ResultBlock = Annotated[Text | Media, Field(discriminator="type")]


class ToolResult(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[list[ResultBlock], BeforeValidator(_as_text_block)] = []
    is_error: bool | None = None
    toolset_name: str | None = None


Block = Annotated[Text | Media | Thinking | RedactedThinking | ToolUse | ToolResult, Field(discriminator="type")]


class JsonFormat(StrictModel):
    type: Literal["json_schema"]
    json_schema: dict[str, Any] = Field(alias="schema")


class OutputConfig(StrictModel):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonFormat | None = None


class ApiMessage(StrictModel):
    """A message of the conversation. Role `system` and an `output_config` are betas, which `strict` checks."""

    role: Literal["user", "assistant", "system"]
    content: Annotated[list[Block], BeforeValidator(_as_text_block)]
    output_config: OutputConfig | None = None


class InputSchema(BaseModel):
    """The schema of a tool's input: an object, with any keywords."""

    model_config = ConfigDict(extra="allow", strict=True)

    type: Literal["object"]


class ApiTool(Cacheable):
    """A client tool. The API's own tools need its servers and are not played."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    input_schema: InputSchema
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    input_examples: list[dict[str, Any]] | None = None
    defer_loading: bool | None = None


class ToolChoice(StrictModel):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class BlockBinding(StrictModel):
    prefix_mismatch_behavior: Literal["error", "drop_block"] | None = None


class ThinkingConfig(StrictModel):
    type: Literal["adaptive", "between_tools", "enabled", "disabled"]
    display: Literal["summarized", "omitted", "updates"] | None = None  # The last value is a beta: `strict` checks it.
    budget_tokens: int | None = Field(default=None, ge=1024)
    block_binding: BlockBinding | None = None  # A beta: `strict` checks it.


class Diagnostics(StrictModel):
    previous_message_id: str | None = None


class Compaction(StrictModel):
    type: Literal["summarize"]
    instructions: str | None = None


class Metadata(StrictModel):
    user_id: str | None = None


class Request(StrictModel):
    """The body of POST /v1/messages."""

    model: str = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    messages: list[ApiMessage] = Field(min_length=1)
    system: Annotated[list[Text], BeforeValidator(_as_text_block)] = []
    tools: list[ApiTool] = []
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheControl | None = None
    stop_sequences: list[str] = []
    stream: bool = False
    metadata: Metadata | None = None
    diagnostics: Diagnostics | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speed: Literal["standard", "fast"] | None = None
    context_management: dict[str, Any] | None = None
    compaction: Compaction | None = None  # A beta: `strict` checks it.

    @property
    def json_schema(self) -> dict[str, Any] | None:
        """Return the schema that a structured answer must follow; None where none is requested."""
        return self.output_config.format.json_schema if self.output_config and self.output_config.format else None


class Summary(StrictModel):
    """The one block of the reply to a request for a summary; no request here may carry it."""

    type: Literal["compaction"]
    content: str


def canonical_json(part: BaseModel) -> str:
    """Return the JSON of a block, message or tool as the cache and the ids see it: without its cache breakpoint."""
    return part.model_dump_json(exclude={"cache_control"}, exclude_unset=True, by_alias=True)


class ApiRefusal(Exception):
    """The error with which the API answers instead of a reply.

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

    def error_body(self, request_id: str) -> dict[str, Any]:
        """Return the error as the JSON body of the Messages API."""
        error: dict[str, Any] = {"type": self.kind, "message": self.message}
        if self.details:
            error["details"] = self.details
        return {"type": "error", "error": error, "request_id": request_id}


def invalid_request(message: str) -> ApiRefusal:
    """Return the refusal of an invalid request: status 400, `invalid_request_error`."""
    return ApiRefusal(400, "invalid_request_error", message)
