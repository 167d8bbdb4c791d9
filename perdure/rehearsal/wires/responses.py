"""The wire of OpenAI's Responses API, which Codex speaks: it converts a request into one of the Messages API, refuses
one in a shape that is not played, and writes replies and errors in the format of this API. The rehearsal's server calls
it; what is replied is decided elsewhere."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from perdure.models.base import Json
from perdure.rehearsal.reply import is_genuine_thinking
from perdure.rehearsal.wire import ApiRefusal, StrictModel, Thinking
from perdure.rehearsal.wires.base import (
    IncomingRequest,
    OpenAiRequest,
    ParsedRequest,
    bad_request,
    check_bearer_token,
    event_frame,
    openai_error,
    parse_arguments,
    parse_body,
    split_text,
    text_blocks,
    to_messages_request,
    tool_result_block,
    tool_use_block,
    total_input_tokens,
    validation_refusal,
)


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


DEFAULT_MAX_OUTPUT = 128_000
"""Limit on a reply's tokens where a request names none."""


class ResponsesWire:
    """The wire of the Responses API. Nothing is stored: a request carries its whole conversation."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        """Parse a request of the Responses API into one of the Messages API.

        Raises ApiRefusal as OpenAI refuses it: without a key, in another shape, with a reply to go on from, or with
        calls and outputs that do not match. Raises ValidationError when the API's shape allows what the Messages API's
        does not.
        """
        check_bearer_token(incoming.headers)
        try:
            body = ResponsesRequest.model_validate(parse_body(incoming.raw))
        except ValidationError as error:
            raise validation_refusal(error) from None
        if body.previous_response_id:
            message = f"Previous response with id '{body.previous_response_id}' not found."
            raise bad_request(message, "previous_response_id", "previous_response_not_found")
        _check_calls(body.items)
        system, parts, tools = [body.instructions or ""], list[tuple[str, list[Json]]](), list(body.tools)
        for number, item in enumerate(body.items):
            if isinstance(item, AdditionalTools):
                tools += item.tools
            elif isinstance(item, InputMessage) and item.role in ("system", "developer"):
                system.append(item.text)
            else:
                parts.append(_to_turn(item, body.model, number))
        flat_tools = list(_flatten_tools(tools, ""))
        request = to_messages_request(
            system,
            parts,
            body.text.format.json_schema if body.text and body.text.format else None,
            model=body.model,
            max_tokens=body.max_output_tokens or DEFAULT_MAX_OUTPUT,
            tools=[_to_tool(tool) for _, tool in flat_tools if tool.name],
            stream=body.stream,
        )
        freeform = frozenset(tool.name or "" for _, tool in flat_tools if tool.type == "custom")
        return ParsedRequest(
            request, freeform, {tool.name or "": namespace for namespace, tool in flat_tools if namespace}
        )

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        return _response_object(reply, _output_items(reply, parsed), _status(reply))

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        for number, event in enumerate(_stream_events(reply, parsed)):
            yield event_frame({**event, "sequence_number": number})

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        return openai_error(refused)

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        error = {"code": "server_is_overloaded", "message": refused.message}
        response = {"id": f"resp_{request_id}", "object": "response", "status": "failed", "error": error, "output": []}
        return event_frame({"type": "response.failed", "response": response})


def _check_calls(items: list[Item]) -> None:
    """Raise ApiRefusal unless each call has exactly one output, and each output its call."""
    calls = [item.call_id for item in items if isinstance(item, FunctionCall | CustomCall)]
    outputs = Counter(item.call_id for item in items if isinstance(item, CallOutput))
    for call in calls:
        if not outputs[call]:
            raise bad_request(f"No tool output found for function call {call}.", "input")
    for call_id, number in outputs.items():
        if call_id not in calls:
            raise bad_request(f"No tool call found for function call output with call_id {call_id}.", "input")
        if number > 1:
            raise bad_request(f"Duplicate item found with call_id {call_id}.", "input")


def _to_turn(item: Item, model: str, number: int) -> tuple[str, list[Json]]:
    """Return an input item as (role, blocks) of the Messages API; blocks are empty for an item that has nothing to say.

    Raises ApiRefusal for reasoning whose encrypted content this model did not write. `number` is the item's place.
    """
    match item:
        case InputMessage():
            return ("assistant" if item.role == "assistant" else "user"), text_blocks(item.text)
        case FunctionCall():
            return "assistant", [tool_use_block(item.call_id, item.name, parse_arguments(item.arguments))]
        case CustomCall():
            return "assistant", [tool_use_block(item.call_id, item.name, {"input": item.input})]
        case CallOutput():
            return "user", [tool_result_block(item.call_id, item.text)]
        case Reasoning():
            block = Thinking(type="thinking", thinking=item.summary_text, signature=item.encrypted_content or "")
            if item.encrypted_content is not None and not is_genuine_thinking(model, block):
                raise bad_request(
                    f"The encrypted content of item {number} could not be verified.",
                    "input",
                    "invalid_encrypted_content",
                )
            return "assistant", [block.model_dump()] if item.encrypted_content is not None else []
        case _:
            return "user", []


def _flatten_tools(tools: list[ResponsesTool], namespace: str) -> Iterator[tuple[str, ResponsesTool]]:
    """Yield (namespace, tool) for each tool, also inside namespaces; the namespace is empty outside of any."""
    for tool in tools:
        if tool.type == "namespace":
            yield from _flatten_tools(tool.tools, tool.name or "")
        else:
            yield namespace, tool


def _to_tool(tool: ResponsesTool) -> Json:
    """Return a tool as one of the Messages API; one without parameters takes a text as `input`."""
    schema = tool.parameters or {"type": "object", "properties": {"input": {"type": "string"}}}
    return {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **schema}}


# ---------------------------------------------------------------------------------------------------------- replies


def _status(reply: Json) -> str:
    """Return the status of a finished response: `incomplete` at max_tokens, else `completed`."""
    return "incomplete" if reply["stop_reason"] == "max_tokens" else "completed"


def _response_object(reply: Json, output: list[Json], status: str) -> Json:
    """Return a `response` object of this output and status; one in progress has no usage."""
    usage, cached_tokens = reply["usage"], reply["usage"]["cache_read_input_tokens"]
    input_tokens = total_input_tokens(usage)
    return {
        "id": reply["id"].replace("msg_", "resp_"),
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": reply["model"],
        "output": output,
        "usage": None
        if status == "in_progress"
        else {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": cached_tokens},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + usage["output_tokens"],
        },
    }


def _output_items(reply: Json, parsed: ParsedRequest) -> list[Json]:
    """Return the blocks of a reply as output items; a refusal is a single message of its own kind."""
    name, status = reply["id"].removeprefix("msg_"), _status(reply)
    if reply["stop_reason"] == "refusal":
        content = [{"type": "refusal", "refusal": reply["stop_details"]["explanation"]}]
        return [
            {"type": "message", "id": f"msg_{name}_0", "role": "assistant", "status": "completed", "content": content}
        ]
    items = [_output_item(block, f"{name}_{number}", parsed) for number, block in enumerate(reply["content"])]
    return [item if item["type"] == "reasoning" else {**item, "status": status} for item in items]


def _output_item(block: Json, name: str, parsed: ParsedRequest) -> Json:
    """Return a block as an output item: message, function call, custom tool call or reasoning. `name` makes its id."""
    match block["type"]:
        case "text":
            content = [{"type": "output_text", "text": block["text"], "annotations": []}]
            return {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": content}
        case "tool_use":
            call: Json = {"call_id": block["id"].replace("toolu_", "call_"), "name": block["name"]}
            if namespace := parsed.namespaces.get(block["name"]):
                call["namespace"] = namespace
            if block["name"] in parsed.freeform:
                return {"type": "custom_tool_call", "id": f"ctc_{name}", **call, "input": block["input"]["input"]}
            return {"type": "function_call", "id": f"fc_{name}", **call, "arguments": json.dumps(block["input"])}
        case _:
            text = block["thinking"]
            return {
                "type": "reasoning",
                "id": f"rs_{name}",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": block["signature"],
            }


def _stream_events(reply: Json, parsed: ParsedRequest) -> Iterator[Json]:
    """Yield the events of a streamed reply: created, in progress, each item opened, filled and done, and the end."""
    items, status = _output_items(reply, parsed), _status(reply)
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": _response_object(reply, [], "in_progress")}
    for index, item in enumerate(items):
        location = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _empty_item(item)}
        for event in _item_events(item):
            yield {**event, **location}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{status}", "response": _response_object(reply, items, status)}


_EMPTY: dict[str, Any] = {"content": [], "arguments": "", "input": "", "summary": []}


def _empty_item(item: Json) -> Json:
    """Return an item as it is announced, before any of its content is sent."""
    emptied = {key: _EMPTY.get(key, value) for key, value in item.items()}
    return {**emptied, "status": "in_progress"} if "status" in item else emptied


def _item_events(item: Json) -> Iterator[Json]:
    """Yield the events that fill an item: its text, arguments, input or summary in pieces, and then whole."""
    match item["type"]:
        case "message":
            part = item["content"][0]
            kind = part["type"]
            text = part["text" if kind == "output_text" else "refusal"]
            empty = {**part, ("text" if kind == "output_text" else "refusal"): ""}
            yield {"type": "response.content_part.added", "content_index": 0, "part": empty}
            for piece in split_text(text):
                yield {"type": f"response.{kind}.delta", "content_index": 0, "delta": piece}
            done = {"text": text} if kind == "output_text" else {"refusal": text}
            yield {"type": f"response.{kind}.done", "content_index": 0, **done}
            yield {"type": "response.content_part.done", "content_index": 0, "part": part}
        case "function_call":
            for piece in split_text(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
            yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
        case "custom_tool_call":
            for piece in split_text(item["input"]):
                yield {"type": "response.custom_tool_call_input.delta", "delta": piece}
            yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
        case _:
            for number, part in enumerate(item["summary"]):
                empty = {**part, "text": ""}
                yield {"type": "response.reasoning_summary_part.added", "summary_index": number, "part": empty}
                for piece in split_text(part["text"]):
                    yield {"type": "response.reasoning_summary_text.delta", "summary_index": number, "delta": piece}
                yield {"type": "response.reasoning_summary_part.done", "summary_index": number, "part": part}
