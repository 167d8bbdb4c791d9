"""The request of the Responses API, in the shapes that are played; anything else is refused as an unknown parameter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from perdure.rehearsal.wire import StrictModel
from perdure.rehearsal.wires.openai import OpenAiRequest


class ResponsesContent(StrictModel):
    """A part of a message or of a tool's output."""

    type: Literal["input_text", "output_text", "refusal", "input_image", "input_file", "encrypted_content"]
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None
    file_data: str | None = None
    filename: str | None = None
    encrypted_content: str | None = None
    annotations: list[dict[str, Any]] | None = None
    logprobs: list[dict[str, Any]] | None = None


class ResponsesItem(StrictModel):
    """Fields that every item of the input may have. `internal_…` is Codex's own, and accepted."""

    id: str | None = None
    status: str | None = None
    internal_chat_message_metadata_passthrough: dict[str, Any] | None = None


def _as_input_text(content: object) -> object:
    """Return text content as a list of one text part, other content unchanged (a validator)."""
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


class InputMessage(ResponsesItem):
    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[list[ResponsesContent], BeforeValidator(_as_input_text)]
    phase: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text or part.refusal or "" for part in self.content)


class FunctionCall(ResponsesItem):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class CustomCall(ResponsesItem):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class CallOutput(ResponsesItem):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Annotated[list[ResponsesContent], BeforeValidator(_as_input_text)]
    name: str | None = None
    namespace: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text or "" for part in self.output)


class SummaryPart(StrictModel):
    type: Literal["summary_text"]
    text: str


class Reasoning(ResponsesItem):
    type: Literal["reasoning"]
    summary: list[SummaryPart]
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None

    @property
    def summary_text(self) -> str:
        """Return the text of the summary."""
        return "".join(part.text for part in self.summary)


class ResponsesTool(StrictModel):
    """A tool, or a namespace of several; the API's own, such as web_search, are accepted and never played."""

    type: str
    name: str | None = Field(default=None, pattern=r"^[a-zA-Z0-9_-]{1,128}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: dict[str, Any] | None = None
    tools: list[ResponsesTool] = Field(default=[])
    execution: str | None = None
    defer_loading: bool | None = None
    external_web_access: bool | None = None
    search_content_types: list[str] | None = None
    filters: dict[str, Any] | None = None
    user_location: dict[str, Any] | None = None
    search_context_size: str | None = None
    output_schema: dict[str, Any] | None = None


class AdditionalTools(ResponsesItem):
    """Tools that are declared inside the conversation."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    tools: list[ResponsesTool]


Item = InputMessage | FunctionCall | CustomCall | CallOutput | Reasoning | AdditionalTools


def _add_types(items: object) -> object:
    """Return the input as items with types: text alone is a user's message, and messages may leave the type out."""
    if isinstance(items, str):
        return [{"type": "message", "role": "user", "content": items}]
    if not isinstance(items, list):
        return items
    return [{"type": "message", **item} if isinstance(item, dict) else item for item in items]


class TextFormat(StrictModel):
    type: Literal["text", "json_schema", "json_object"]
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextConfig(StrictModel):
    verbosity: Literal["low", "medium", "high"] | None = None
    format: TextFormat | None = None


class ReasoningConfig(StrictModel):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"] | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    context: str | None = None


class ResponsesRequest(OpenAiRequest):
    """The body of POST /v1/responses."""

    items: Annotated[
        list[Annotated[Item, Field(discriminator="type")]],
        BeforeValidator(_add_types),
        Field(alias="input"),
    ]
    instructions: str | None = None
    tools: list[ResponsesTool] = Field(default=[])
    reasoning: ReasoningConfig | None = None
    stream_options: dict[str, Any] | None = None
    include: list[str] | None = None
    prompt_cache_retention: str | None = None
    text: TextConfig | None = None
    client_metadata: dict[str, str] | None = None
    max_output_tokens: int | None = Field(default=None, ge=16)
    previous_response_id: str | None = None
    truncation: str | None = None
