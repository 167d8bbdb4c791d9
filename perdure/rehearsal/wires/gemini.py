"""Google's generateContent and streamGenerateContent on the wire."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from perdure.rehearsal.wire import Refused
from perdure.rehearsal.wires.base import (
    Asked,
    Came,
    Json,
    as_messages,
    body_of,
    data_frame,
    first_problem,
    pieces,
    result_block,
    text_block,
    total_input,
    use_block,
)

_FINISH = {"end_turn": "STOP", "tool_use": "STOP", "max_tokens": "MAX_TOKENS", "refusal": "SAFETY"}
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MOST_OUTPUT = 65_536


class Shape(BaseModel):
    """Names are taken in both of protobuf's spellings."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class GeminiCall(Shape):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class GeminiResult(Shape):
    name: str
    response: dict[str, Any]
    id: str | None = None


class GeminiPart(Shape):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: GeminiCall | None = None
    function_response: GeminiResult | None = None
    inline_data: dict[str, Any] | None = None


class GeminiContent(Shape):
    role: Literal["user", "model", "function", "system"] = "user"
    parts: list[GeminiPart] = []


class Declaration(Shape):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    behavior: str | None = None


class GeminiTool(Shape):
    function_declarations: list[Declaration] = []
    google_search: dict[str, Any] | None = None
    url_context: dict[str, Any] | None = None


class Generation(Shape):
    """Many knobs are taken and mean nothing here."""

    model_config = ConfigDict(extra="ignore")

    max_output_tokens: int | None = Field(default=None, ge=1)
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    response_schema: dict[str, Any] | None = None


class GeminiRequest(Shape):
    """The body of POST /v1beta/models/MODEL:generateContent."""

    contents: list[GeminiContent] = Field(min_length=1)
    system_instruction: GeminiContent | None = None
    tools: list[GeminiTool] = []
    tool_config: dict[str, Any] | None = None
    generation_config: Generation | None = None
    safety_settings: list[dict[str, Any]] | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    session_id: str | None = None


class Gemini:
    """The model and the method stand in the path: `MODEL:generateContent`."""

    def read(self, came: Came, made_up: frozenset[str]) -> Asked:
        if not (came.headers.get("x-goog-api-key", "").strip() or came.query.get("key", "").strip()):
            raise Refused(403, "permission_denied", "Method doesn't allow unregistered callers. Please use API Key.")
        model, _, method = came.path.partition(":")
        if method not in ("generateContent", "streamGenerateContent"):
            raise Refused(404, "not_found", f"Method not found: {came.path}")
        try:
            body = GeminiRequest.model_validate(body_of(came.raw))
        except ValidationError as error:
            where, message, kind = first_problem(error)
            if kind == "extra_forbidden":
                path, _, name = where.rpartition(".")
                at = f" at '{path}'" if path else ""
                raise _bad(f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.') from None
            raise _bad(f"Invalid value at '{where}': {message}") from None
        _check_calls(body.contents)
        generation = body.generation_config or Generation()
        request = as_messages(
            [part.text or "" for part in body.system_instruction.parts] if body.system_instruction else [],
            list(_parts(body.contents)),
            generation.response_json_schema or generation.response_schema or None,
            model=model,
            max_tokens=generation.max_output_tokens or _MOST_OUTPUT,
            tools=[_tool(one) for tool in body.tools for one in tool.function_declarations],
            stream=method == "streamGenerateContent",
        )
        return Asked(request, framed=came.query.get("alt") == "sse")

    def whole(self, reply: Json, asked: Asked) -> Json:
        parts = [_part(block) for block in reply["content"]]
        return _answer(reply, parts, last=True)

    def frames(self, reply: Json, asked: Asked) -> Iterator[bytes]:
        parts = [part for block in reply["content"] for part in _split(block)] or [{"text": ""}]
        answers = [_answer(reply, [part], last=n == len(parts)) for n, part in enumerate(parts, start=1)]
        if asked.framed:
            yield from map(data_frame, answers)
            return
        for number, answer in enumerate(answers):
            yield (b"[" if number == 0 else b",\n") + json.dumps(answer).encode()
        yield b"]"

    def error(self, refused: Refused, request_id: str) -> Json:
        status = 503 if refused.status == 529 else refused.status
        return {"error": {"code": status, "message": refused.message, "status": _STATUS.get(status, "UNKNOWN")}}

    def broken(self, refused: Refused, request_id: str) -> bytes:
        return data_frame(self.error(refused, request_id))


def _bad(message: str) -> Refused:
    return Refused(400, "invalid_argument", message)


def _check_calls(contents: list[GeminiContent]) -> None:
    """A turn with calls is followed by one with as many results, and by nothing else."""
    for before, content in zip([None, *contents], [*contents, None], strict=True):
        calls = sum(part.function_call is not None for part in before.parts) if before else 0
        results = sum(part.function_response is not None for part in content.parts) if content else 0
        if calls != results and (calls or results):
            raise _bad(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )


def _parts(contents: list[GeminiContent]) -> Iterator[tuple[str, list[Json]]]:
    """Blocks by role; calls without an id are counted, and results belong to them in order."""
    asked: list[str] = []
    count = 0
    for content in contents:
        blocks: list[Json] = []
        for part in content.parts:
            if part.function_call is not None:
                count += 1
                asked.append(part.function_call.id or f"call_{count}")
                blocks.append(use_block(asked[-1], part.function_call.name, part.function_call.args))
            elif part.function_response is not None:
                result = part.function_response
                said = result.response.get("output", result.response.get("error", result.response))
                text = said if isinstance(said, str) else json.dumps(said)
                blocks.append(result_block(result.id or asked[0], text))
                asked = asked[1:]
            elif part.text is not None and not part.thought:
                blocks += text_block(part.text)
        yield "assistant" if content.role == "model" else "user", blocks


def _tool(declared: Declaration) -> Json:
    schema = declared.parameters_json_schema or declared.parameters or {}
    return {
        "name": declared.name,
        "description": declared.description,
        "input_schema": {**schema, "type": "object"},
    }


# ---------------------------------------------------------------------------------------------------------- replies


def _part(block: Json) -> Json:
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "tool_use":
            call = {"id": block["id"].replace("toolu_", "call_"), "name": block["name"], "args": block["input"]}
            return {"functionCall": call}
        case _:
            return {"text": block["thinking"], "thought": True}


def _split(block: Json) -> list[Json]:
    """A call comes whole, text in pieces."""
    if block["type"] == "tool_use":
        return [_part(block)]
    return [{**_part(block), "text": piece} for piece in pieces(_part(block)["text"])]


def _answer(reply: Json, parts: list[Json], *, last: bool) -> Json:
    usage, entire = reply["usage"], total_input(reply["usage"])
    candidate: Json = {"index": 0}
    if reply["stop_reason"] != "refusal":
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        candidate["finishReason"] = _FINISH[reply["stop_reason"]]
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": entire,
            "cachedContentTokenCount": usage["cache_read_input_tokens"],
            "candidatesTokenCount": usage["output_tokens"],
            "totalTokenCount": entire + usage["output_tokens"],
        },
        "modelVersion": reply["model"],
        "responseId": reply["id"].removeprefix("msg_"),
    }
