"""OpenAI's chat completions on the wire: what most other agents and local models speak."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from perdure.rehearsal.wire import Refused, Wire
from perdure.rehearsal.wires.base import (
    Asked,
    Came,
    Json,
    arguments_of,
    as_messages,
    body_of,
    data_frame,
    pieces,
    result_block,
    text_block,
    total_input,
    use_block,
)
from perdure.rehearsal.wires.openai import OpenAiRequest, authenticate, bad, error_body, unreadable

_FINISH = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "stop"}
_MOST_OUTPUT = 128_000


class ChatPart(Wire):
    type: Literal["text", "image_url", "refusal"]
    text: str | None = None
    refusal: str | None = None
    image_url: dict[str, Any] | None = None


class Called(Wire):
    name: str
    arguments: str


class ChatCall(Wire):
    id: str
    type: Literal["function"] = "function"
    function: Called
    index: int | None = None


def _said(content: object) -> object:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


class ChatMessage(Wire):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[ChatPart], BeforeValidator(_said)] = Field(default=[])
    name: str | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None

    @property
    def text(self) -> str:
        return "\n".join(part.text or part.refusal or "" for part in self.content)


class Declared(Wire):
    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Freeform(Wire):
    """A tool whose input is text, by a grammar or any: the model may be offered it, and here it calls none."""

    name: str
    description: str | None = None
    format: dict[str, Any] | None = None


class ChatTool(Wire):
    type: Literal["function", "custom"]
    function: Declared | None = None
    custom: Freeform | None = None

    @model_validator(mode="after")
    def _whole(self) -> ChatTool:
        if (self.function, self.custom)[self.type == "custom"] is None:
            raise PydanticCustomError("missing", "Missing required parameter")
        return self


class SchemaOf(Wire):
    name: str
    description: str | None = None
    json_schema: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Wire):
    type: Literal["text", "json_schema", "json_object"]
    json_schema: SchemaOf | None = None


class StreamOptions(Wire):
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
    def schema_of_answer(self) -> Json | None:
        wanted = self.response_format.json_schema if self.response_format else None
        return wanted.json_schema if wanted else None


class Chat:
    """Tools are functions; a result is a message of its own."""

    def read(self, came: Came, made_up: frozenset[str]) -> Asked:
        authenticate(came.headers)
        try:
            body = ChatRequest.model_validate(body_of(came.raw))
        except ValidationError as error:
            raise unreadable(error) from None
        if body.stream_options and not body.stream:
            raise bad("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
        _check_calls(body.messages)
        system = [message.text for message in body.messages if message.role in ("system", "developer")]
        talk = [message for message in body.messages if message.role not in ("system", "developer")]
        request = as_messages(
            system,
            [_part(message) for message in talk],
            body.schema_of_answer,
            model=body.model,
            max_tokens=body.max_completion_tokens or body.max_tokens or _MOST_OUTPUT,
            tools=[_tool(tool.function) for tool in body.tools if tool.function],
            stream=body.stream,
        )
        return Asked(request, usage=bool(body.stream_options and body.stream_options.include_usage))

    def whole(self, reply: Json, asked: Asked) -> Json:
        message = {"role": "assistant", **_message(reply)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply["stop_reason"]]}
        return {**_head(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}

    def frames(self, reply: Json, asked: Asked) -> Iterator[bytes]:
        for delta in _deltas(_message(reply)):
            yield _chunk(reply, asked, delta, None)
        yield _chunk(reply, asked, {}, _FINISH[reply["stop_reason"]])
        if asked.usage:
            yield data_frame({**_head(reply, "chat.completion.chunk"), "choices": [], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"

    def error(self, refused: Refused, request_id: str) -> Json:
        return error_body(refused)

    def broken(self, refused: Refused, request_id: str) -> bytes:
        return data_frame(error_body(refused))


def _check_calls(messages: list[ChatMessage]) -> None:
    """Raise Refused where calls and results do not follow each other."""
    open_calls: list[str] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_calls:
                raise bad(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    f"messages.[{number}].role",
                )
            open_calls.remove(message.tool_call_id)
            continue
        _check_answered(open_calls, number)
        open_calls = [call.id for call in message.tool_calls or []]
    _check_answered(open_calls, len(messages))


def _check_answered(open_calls: list[str], number: int) -> None:
    if open_calls:
        raise bad(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(open_calls)}",
            f"messages.[{number}].role",
        )


def _part(message: ChatMessage) -> tuple[str, list[Json]]:
    if message.role == "tool":
        return "user", [result_block(message.tool_call_id or "", message.text)]
    calls = [
        use_block(call.id, call.function.name, arguments_of(call.function.arguments))
        for call in message.tool_calls or []
    ]
    return message.role, [*text_block(message.text), *calls]


def _tool(tool: Declared) -> Json:
    schema = {"type": "object", **(tool.parameters or {})}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


# ---------------------------------------------------------------------------------------------------------- replies


def _head(reply: Json, kind: str) -> Json:
    return {"id": reply["id"].replace("msg_", "chatcmpl-"), "object": kind, "created": 0, "model": reply["model"]}


def _usage(reply: Json) -> Json:
    usage, entire = reply["usage"], total_input(reply["usage"])
    return {
        "prompt_tokens": entire,
        "completion_tokens": usage["output_tokens"],
        "total_tokens": entire + usage["output_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["cache_read_input_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _message(reply: Json) -> Json:
    """Text, refusal and calls; thoughts are not sent on this wire."""
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


def _deltas(message: Json) -> Iterator[Json]:
    yield {"role": "assistant", "content": "", "refusal": None}
    for key in ("content", "refusal"):
        for piece in pieces(message[key] or ""):
            yield {key: piece}
    for index, call in enumerate(message.get("tool_calls", [])):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        for piece in pieces(call["function"]["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunk(reply: Json, asked: Asked, delta: Json, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    usage = {"usage": None} if asked.usage else {}
    return data_frame({**_head(reply, "chat.completion.chunk"), "choices": [choice], **usage})
