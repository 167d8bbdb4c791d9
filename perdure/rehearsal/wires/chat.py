"""The wire of OpenAI's chat completions, which most other agents and local models speak: it converts a request into one
of the Messages API or refuses it, and writes replies (whole or streamed) and errors in the format of this API. The
rehearsal's server calls it; what is replied is decided elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from perdure.models.base import Json
from perdure.rehearsal.wire import ApiRefusal, StrictModel
from perdure.rehearsal.wires.base import (
    IncomingRequest,
    OpenAiRequest,
    ParsedRequest,
    bad_request,
    check_bearer_token,
    data_frame,
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

_FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "stop"}
_DEFAULT_MAX_OUTPUT = 128_000


class ChatPart(StrictModel):
    type: Literal["text", "image_url", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: dict[str, Any] | None = None


class ChatFunctionCall(StrictModel):
    name: str
    arguments: str


class ChatCall(StrictModel):
    id: str
    type: Literal["function"] = "function"
    function: ChatFunctionCall
    index: int | None = None


def _as_parts(content: object) -> object:
    """Return text content as a list of one text part, no content as an empty list (a validator)."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


class ChatMessage(StrictModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[ChatPart], BeforeValidator(_as_parts)] = Field(default=[])
    name: str | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text or part.refusal or "" for part in self.content)


class ChatFunction(StrictModel):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatCustomTool(StrictModel):
    """A tool whose input is text, by a grammar or any: it may be offered to the model, which never calls it here."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class ChatTool(StrictModel):
    type: Literal["function", "custom"]
    function: ChatFunction | None = None
    custom: ChatCustomTool | None = None

    @model_validator(mode="after")
    def _check_declared(self) -> ChatTool:
        """Raise a validation error for a tool without the declaration that its type needs."""
        if (self.function, self.custom)[self.type == "custom"] is None:
            raise PydanticCustomError("missing", "Missing required parameter")
        return self


class ChatSchema(StrictModel):
    name: str
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    type: Literal["text", "json_schema", "json_object"]
    json_schema: ChatSchema | None = None


class StreamOptions(StrictModel):
    include_usage: bool = False
    include_obfuscation: bool | None = None


class ChatRequest(OpenAiRequest):
    """The body of POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ChatTool] = Field(default=[])
    response_format: ResponseFormat | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    reasoning_effort: str | None = None
    verbosity: str | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    stop: str | list[str] | None = None
    n: Literal[1] = 1
    seed: int | None = None

    @property
    def answer_schema(self) -> Json | None:
        """Return the schema of a structured answer, None where none is requested."""
        wanted = self.response_format.json_schema if self.response_format else None
        return wanted.json_schema if wanted else None


class ChatWire:
    """The wire of chat completions: tools are functions, and a tool's result is a message of its own."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        """Parse a request of chat completions into one of the Messages API.

        Raises ApiRefusal as OpenAI refuses it: without a key, in another shape, with calls and results that do not
        match. Raises ValidationError when the API's shape allows what the Messages API's does not.
        """
        check_bearer_token(incoming.headers)
        try:
            body = ChatRequest.model_validate(parse_body(incoming.raw))
        except ValidationError as error:
            raise validation_refusal(error) from None
        if body.stream_options and not body.stream:
            raise bad_request(
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options"
            )
        _check_calls(body.messages)
        system = [message.text for message in body.messages if message.role in ("system", "developer")]
        conversation = [message for message in body.messages if message.role not in ("system", "developer")]
        request = to_messages_request(
            system,
            [_to_turn(message) for message in conversation],
            body.answer_schema,
            model=body.model,
            max_tokens=body.max_completion_tokens or body.max_tokens or _DEFAULT_MAX_OUTPUT,
            tools=[_to_tool(tool.function) for tool in body.tools if tool.function],
            stream=body.stream,
        )
        return ParsedRequest(request, usage=bool(body.stream_options and body.stream_options.include_usage))

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        """Return the reply as a `chat.completion` object."""
        message = {"role": "assistant", **_assistant_message(reply)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply["stop_reason"]]}
        return {**_reply_head(reply, "chat.completion"), "choices": [choice], "usage": _chat_usage(reply)}

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        """Yield the reply as server-sent chunks, with a chunk of usage if requested, and `[DONE]` at the end."""
        for delta in _message_deltas(_assistant_message(reply)):
            yield _chunk_frame(reply, parsed, delta, None)
        yield _chunk_frame(reply, parsed, {}, _FINISH[reply["stop_reason"]])
        if parsed.usage:
            yield data_frame(
                {**_reply_head(reply, "chat.completion.chunk"), "choices": [], "usage": _chat_usage(reply)}
            )
        yield b"data: [DONE]\n\n"

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        return openai_error(refused)

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        return data_frame(openai_error(refused))


def _check_calls(messages: list[ChatMessage]) -> None:
    """Raise ApiRefusal unless the results of a message's calls follow it, and each result belongs to such a call."""
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise bad_request(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{number}].role",
                )
            open_calls.remove(message.tool_call_id)
            continue
        _check_no_open_calls(open_calls, number)
        open_calls = [call.id for call in message.tool_calls or []]
    _check_no_open_calls(open_calls, len(messages))


def _check_no_open_calls(open_calls: list[str], number: int) -> None:
    """Raise ApiRefusal when calls are still open, so without a result, where message `number` begins."""
    if open_calls:
        raise bad_request(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}",
            f"messages.[{number}].role",
        )


def _to_turn(message: ChatMessage) -> tuple[str, list[Json]]:
    """Return a message of the conversation as (role, blocks) of the Messages API."""
    if message.role == "tool":
        return "user", [tool_result_block(message.tool_call_id or "", message.text)]
    calls = [
        tool_use_block(call.id, call.function.name, parse_arguments(call.function.arguments))
        for call in message.tool_calls or []
    ]
    return message.role, [*text_blocks(message.text), *calls]


def _to_tool(tool: ChatFunction) -> Json:
    """Return a function as a tool of the Messages API."""
    schema = {"type": "object", **(tool.parameters or {})}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


# ---------------------------------------------------------------------------------------------------------- replies


def _reply_head(reply: Json, kind: str) -> Json:
    """Return the fields with which every object of a reply begins; `kind` is the object's type."""
    return {"id": reply["id"].replace("msg_", "chatcmpl-"), "object": kind, "created": 0, "model": reply["model"]}


def _chat_usage(reply: Json) -> Json:
    """Return a reply's usage in the fields of chat completions."""
    usage, input_tokens = reply["usage"], total_input_tokens(reply["usage"])
    return {
        "prompt_tokens": input_tokens,
        "completion_tokens": usage["output_tokens"],
        "total_tokens": input_tokens + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cache_read_input_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _assistant_message(reply: Json) -> Json:
    """Return text, refusal and calls of a reply as an assistant message; thoughts are not sent on this wire."""
    calls = [
        {
            "id": block["id"].replace("toolu_", "call_"),
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
        }
        for block in reply["content"]
        if block["type"] == "tool_use"
    ]
    text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
    refusal = reply["stop_details"]["explanation"] if reply["stop_reason"] == "refusal" else None
    return {"content": text or None, "refusal": refusal, **({"tool_calls": calls} if calls else {})}


def _message_deltas(message: Json) -> Iterator[Json]:
    """Yield the deltas that build up a message: role, then text and refusal in pieces, then calls with arguments."""
    yield {"role": "assistant", "content": "", "refusal": None}
    for key in ("content", "refusal"):
        for piece in split_text(message[key] or ""):
            yield {key: piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        for piece in split_text(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk_frame(reply: Json, parsed: ParsedRequest, delta: Json, finish: str | None) -> bytes:
    """Return a chunk of the stream with one delta; `finish` is the finish reason of the last one."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    usage = {"usage": None} if parsed.usage else {}
    return data_frame({**_reply_head(reply, "chat.completion.chunk"), "choices": [choice], **usage})
