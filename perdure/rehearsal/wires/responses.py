"""OpenAI's Responses API on the wire: what Codex speaks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from perdure.rehearsal.reply import is_genuine
from perdure.rehearsal.wire import Refused, Thinking
from perdure.rehearsal.wires.base import (
    Asked,
    Came,
    Json,
    arguments_of,
    as_messages,
    body_of,
    event_frame,
    pieces,
    result_block,
    text_block,
    total_input,
    use_block,
)
from perdure.rehearsal.wires.openai import authenticate, bad, error_body, unreadable
from perdure.rehearsal.wires.responses_input import (
    AdditionalTools,
    CallOutput,
    CustomCall,
    FunctionCall,
    InputMessage,
    Item,
    Reasoning,
    ResponsesRequest,
    ResponsesTool,
)

MOST_OUTPUT = 128_000
"""Tokens, where a request names no limit."""


class Responses:
    """Nothing is stored: a request carries its whole conversation."""

    def read(self, came: Came, made_up: frozenset[str]) -> Asked:
        authenticate(came.headers)
        try:
            body = ResponsesRequest.model_validate(body_of(came.raw))
        except ValidationError as error:
            raise unreadable(error) from None
        if body.previous_response_id:
            message = f"Previous response with id '{body.previous_response_id}' not found."
            raise bad(message, "previous_response_id", "previous_response_not_found")
        _check_calls(body.items)
        system, parts, tools = [body.instructions or ""], list[tuple[str, list[Json]]](), list(body.tools)
        for number, item in enumerate(body.items):
            if isinstance(item, AdditionalTools):
                tools += item.tools
            elif isinstance(item, InputMessage) and item.role in ("system", "developer"):
                system.append(item.text)
            else:
                parts.append(_part(item, body.model, number))
        flat = list(_flat(tools, ""))
        request = as_messages(
            system,
            parts,
            body.text.format.json_schema if body.text and body.text.format else None,
            model=body.model,
            max_tokens=body.max_output_tokens or MOST_OUTPUT,
            tools=[_tool(tool) for _, tool in flat if tool.name],
            stream=body.stream,
        )
        freeform = frozenset(tool.name or "" for _, tool in flat if tool.type == "custom")
        return Asked(request, freeform, {tool.name or "": space for space, tool in flat if space})

    def whole(self, reply: Json, asked: Asked) -> Json:
        return _response(reply, _items(reply, asked), _status(reply))

    def frames(self, reply: Json, asked: Asked) -> Iterator[bytes]:
        for number, event in enumerate(_events(reply, asked)):
            yield event_frame({**event, "sequence_number": number})

    def error(self, refused: Refused, request_id: str) -> Json:
        return error_body(refused)

    def broken(self, refused: Refused, request_id: str) -> bytes:
        error = {"code": "server_is_overloaded", "message": refused.message}
        response = {"id": f"resp_{request_id}", "object": "response", "status": "failed", "error": error, "output": []}
        return event_frame({"type": "response.failed", "response": response})


def _check_calls(items: list[Item]) -> None:
    """Each call has its output, each output its call, and none of them two."""
    calls = [item.call_id for item in items if isinstance(item, FunctionCall | CustomCall)]
    outputs = Counter(item.call_id for item in items if isinstance(item, CallOutput))
    for call in calls:
        if not outputs[call]:
            raise bad(f"No tool output found for function call {call}.", "input")
    for output, number in outputs.items():
        if output not in calls:
            raise bad(f"No tool call found for function call output with call_id {output}.", "input")
        if number > 1:
            raise bad(f"Duplicate item found with call_id {output}.", "input")


def _part(item: Item, model: str, number: int) -> tuple[str, list[Json]]:
    match item:
        case InputMessage():
            return ("assistant" if item.role == "assistant" else "user"), text_block(item.text)
        case FunctionCall():
            return "assistant", [use_block(item.call_id, item.name, arguments_of(item.arguments))]
        case CustomCall():
            return "assistant", [use_block(item.call_id, item.name, {"input": item.input})]
        case CallOutput():
            return "user", [result_block(item.call_id, item.text)]
        case Reasoning():
            block = Thinking(type="thinking", thinking=item.shown, signature=item.encrypted_content or "")
            if item.encrypted_content is not None and not is_genuine(model, block):
                raise bad(
                    f"The encrypted content of item {number} could not be verified.",
                    "input",
                    "invalid_encrypted_content",
                )
            return "assistant", [block.model_dump()] if item.encrypted_content is not None else []
        case _:
            return "user", []


def _flat(tools: list[ResponsesTool], space: str) -> Iterator[tuple[str, ResponsesTool]]:
    for tool in tools:
        if tool.type == "namespace":
            yield from _flat(tool.tools, tool.name or "")
        else:
            yield space, tool


def _tool(tool: ResponsesTool) -> Json:
    schema = tool.parameters or {"type": "object", "properties": {"input": {"type": "string"}}}
    return {"name": tool.name, "description": tool.description, "input_schema": {"type": "object", **schema}}


# ---------------------------------------------------------------------------------------------------------- replies


def _status(reply: Json) -> str:
    return "incomplete" if reply["stop_reason"] == "max_tokens" else "completed"


def _response(reply: Json, output: list[Json], status: str) -> Json:
    usage, read = reply["usage"], reply["usage"]["cache_read_input_tokens"]
    entire = total_input(usage)
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
            "input_tokens": entire,
            "input_tokens_details": {"cached_tokens": read},
            "output_tokens": usage["output_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": entire + usage["output_tokens"],
        },
    }


def _items(reply: Json, asked: Asked) -> list[Json]:
    """The reply as output items; a refusal is a message of its own kind."""
    name, status = reply["id"].removeprefix("msg_"), _status(reply)
    if reply["stop_reason"] == "refusal":
        content = [{"type": "refusal", "refusal": reply["stop_details"]["explanation"]}]
        return [
            {"type": "message", "id": f"msg_{name}_0", "role": "assistant", "status": "completed", "content": content}
        ]
    items = [_item(block, f"{name}_{number}", asked) for number, block in enumerate(reply["content"])]
    return [item if item["type"] == "reasoning" else {**item, "status": status} for item in items]


def _item(block: Json, name: str, asked: Asked) -> Json:
    match block["type"]:
        case "text":
            content = [{"type": "output_text", "text": block["text"], "annotations": []}]
            return {"type": "message", "id": f"msg_{name}", "role": "assistant", "content": content}
        case "tool_use":
            call: Json = {"call_id": block["id"].replace("toolu_", "call_"), "name": block["name"]}
            if space := asked.spaces.get(block["name"]):
                call["namespace"] = space
            if block["name"] in asked.freeform:
                return {"type": "custom_tool_call", "id": f"ctc_{name}", **call, "input": block["input"]["input"]}
            return {"type": "function_call", "id": f"fc_{name}", **call, "arguments": json.dumps(block["input"])}
        case _:
            shown = block["thinking"]
            return {
                "type": "reasoning",
                "id": f"rs_{name}",
                "summary": [{"type": "summary_text", "text": shown}] if shown else [],
                "encrypted_content": block["signature"],
            }


def _events(reply: Json, asked: Asked) -> Iterator[Json]:
    items, status = _items(reply, asked), _status(reply)
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": _response(reply, [], "in_progress")}
    for index, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _opened(item)}
        for event in _filling(item):
            yield {**event, **at}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{status}", "response": _response(reply, items, status)}


_EMPTY: dict[str, Any] = {"content": [], "arguments": "", "input": "", "summary": []}


def _opened(item: Json) -> Json:
    """An item before anything of it was said."""
    opened = {key: _EMPTY.get(key, value) for key, value in item.items()}
    return {**opened, "status": "in_progress"} if "status" in item else opened


def _filling(item: Json) -> Iterator[Json]:
    match item["type"]:
        case "message":
            part = item["content"][0]
            kind = part["type"]
            text = part["text" if kind == "output_text" else "refusal"]
            empty = {**part, ("text" if kind == "output_text" else "refusal"): ""}
            yield {"type": "response.content_part.added", "content_index": 0, "part": empty}
            for piece in pieces(text):
                yield {"type": f"response.{kind}.delta", "content_index": 0, "delta": piece}
            done = {"text": text} if kind == "output_text" else {"refusal": text}
            yield {"type": f"response.{kind}.done", "content_index": 0, **done}
            yield {"type": "response.content_part.done", "content_index": 0, "part": part}
        case "function_call":
            for piece in pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", "delta": piece}
            yield {"type": "response.function_call_arguments.done", "arguments": item["arguments"]}
        case "custom_tool_call":
            for piece in pieces(item["input"]):
                yield {"type": "response.custom_tool_call_input.delta", "delta": piece}
            yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}
        case _:
            for number, part in enumerate(item["summary"]):
                empty = {**part, "text": ""}
                yield {"type": "response.reasoning_summary_part.added", "summary_index": number, "part": empty}
                for piece in pieces(part["text"]):
                    yield {"type": "response.reasoning_summary_text.delta", "summary_index": number, "delta": piece}
                yield {"type": "response.reasoning_summary_part.done", "summary_index": number, "part": part}
