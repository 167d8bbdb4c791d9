"""The wire of Google's generateContent and streamGenerateContent: it converts a request into one of the Messages API or
refuses it, and writes replies (whole or streamed) and errors in the format of this API. The rehearsal's server calls
it; what is replied is decided elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from perdure.models.base import Json
from perdure.rehearsal.wire import ApiRefusal
from perdure.rehearsal.wires.base import (
    IncomingRequest,
    ParsedRequest,
    data_frame,
    first_problem,
    parse_body,
    split_text,
    text_blocks,
    to_messages_request,
    tool_result_block,
    tool_use_block,
    total_input_tokens,
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
_DEFAULT_MAX_OUTPUT = 65_536


class GeminiModel(BaseModel):
    """A model of Gemini's JSON: names are accepted in both of protobuf's spellings, unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, populate_by_name=True)


class GeminiCall(GeminiModel):
    name: str
    args: dict[str, Any] = {}
    id: str | None = None


class GeminiResult(GeminiModel):
    name: str
    response: dict[str, Any]
    id: str | None = None


class GeminiPart(GeminiModel):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: GeminiCall | None = None
    function_response: GeminiResult | None = None
    inline_data: dict[str, Any] | None = None


class GeminiContent(GeminiModel):
    role: Literal["user", "model", "function", "system"] = "user"
    parts: list[GeminiPart] = []


class GeminiFunction(GeminiModel):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    parameters_json_schema: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    response_json_schema: dict[str, Any] | None = None
    behavior: str | None = None


class GeminiTool(GeminiModel):
    function_declarations: list[GeminiFunction] = []
    google_search: dict[str, Any] | None = None
    url_context: dict[str, Any] | None = None


class GeminiGeneration(GeminiModel):
    """Settings of the generation. Many are accepted and have no effect here."""

    model_config = ConfigDict(extra="ignore")

    max_output_tokens: int | None = Field(default=None, ge=1)
    response_mime_type: str | None = None
    response_json_schema: dict[str, Any] | None = None
    response_schema: dict[str, Any] | None = None


class GeminiRequest(GeminiModel):
    """The body of POST /v1beta/models/MODEL:generateContent."""

    contents: list[GeminiContent] = Field(min_length=1)
    system_instruction: GeminiContent | None = None
    tools: list[GeminiTool] = []
    tool_config: dict[str, Any] | None = None
    generation_config: GeminiGeneration | None = None
    safety_settings: list[dict[str, Any]] | None = None
    cached_content: str | None = None
    labels: dict[str, str] | None = None
    session_id: str | None = None


class GeminiWire:
    """The wire of generateContent. Model and method stand in the path: `MODEL:generateContent`."""

    def parse_request(self, incoming: IncomingRequest, made_up_tools: frozenset[str]) -> ParsedRequest:
        """Parse a request of generateContent into one of the Messages API.

        Raises ApiRefusal as Google refuses it: without a key, for another method, in another shape, with calls and
        results that do not match. Raises ValidationError when the API's shape allows what the Messages API's does not.
        """
        if not (incoming.headers.get("x-goog-api-key", "").strip() or incoming.query.get("key", "").strip()):
            raise ApiRefusal(403, "permission_denied", "Method doesn't allow unregistered callers. Please use API Key.")
        model, _, method = incoming.path.partition(":")
        if method not in ("generateContent", "streamGenerateContent"):
            raise ApiRefusal(404, "not_found", f"Method not found: {incoming.path}")
        try:
            body = GeminiRequest.model_validate(parse_body(incoming.raw))
        except ValidationError as error:
            where, message, kind = first_problem(error)
            if kind == "extra_forbidden":
                path, _, name = where.rpartition(".")
                place = f" at '{path}'" if path else ""
                raise _invalid_argument(
                    f'Invalid JSON payload received. Unknown name "{name}"{place}: Cannot find field.'
                ) from None
            raise _invalid_argument(f"Invalid value at '{where}': {message}") from None
        _check_calls(body.contents)
        generation = body.generation_config or GeminiGeneration()
        request = to_messages_request(
            [part.text or "" for part in body.system_instruction.parts] if body.system_instruction else [],
            list(_to_turns(body.contents)),
            generation.response_json_schema or generation.response_schema or None,
            model=model,
            max_tokens=generation.max_output_tokens or _DEFAULT_MAX_OUTPUT,
            tools=[_to_tool(declaration) for tool in body.tools for declaration in tool.function_declarations],
            stream=method == "streamGenerateContent",
        )
        return ParsedRequest(request, framed=incoming.query.get("alt") == "sse")

    def reply_body(self, reply: Json, parsed: ParsedRequest) -> Json:
        parts = [_reply_part(block) for block in reply["content"]]
        return _response_body(reply, parts, last=True)

    def reply_frames(self, reply: Json, parsed: ParsedRequest) -> Iterator[bytes]:
        """Yield the reply as server-sent events, or as pieces of a JSON array where no events were requested."""
        parts = [part for block in reply["content"] for part in _stream_parts(block)] or [{"text": ""}]
        answers = [
            _response_body(reply, [part], last=number == len(parts)) for number, part in enumerate(parts, start=1)
        ]
        if parsed.framed:
            yield from map(data_frame, answers)
            return
        for index, answer in enumerate(answers):
            yield (b"[" if index == 0 else b",\n") + json.dumps(answer).encode()
        yield b"]"

    def error(self, refused: ApiRefusal, request_id: str) -> Json:
        status = 503 if refused.status == 529 else refused.status
        return {"error": {"code": status, "message": refused.message, "status": _STATUS.get(status, "UNKNOWN")}}

    def error_frame(self, refused: ApiRefusal, request_id: str) -> bytes:
        return data_frame(self.error(refused, request_id))


def _invalid_argument(message: str) -> ApiRefusal:
    """Return the refusal of an invalid request: status 400, `INVALID_ARGUMENT`."""
    return ApiRefusal(400, "invalid_argument", message)


def _check_calls(contents: list[GeminiContent]) -> None:
    """Raise ApiRefusal unless each turn has as many results as the turn before it has calls."""
    for previous, content in zip([None, *contents], [*contents, None], strict=True):
        calls = sum(part.function_call is not None for part in previous.parts) if previous else 0
        results = sum(part.function_response is not None for part in content.parts) if content else 0
        if calls != results and (calls or results):
            raise _invalid_argument(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )


def _to_turns(contents: list[GeminiContent]) -> Iterator[tuple[str, list[Json]]]:
    """Yield each turn as (role, blocks) of the Messages API. Calls without id get a number, results without one belong
    to the calls in order; thoughts and inline data are left out."""
    call_ids: list[str] = []
    count = 0
    for content in contents:
        blocks: list[Json] = []
        for part in content.parts:
            if part.function_call is not None:
                count += 1
                call_ids.append(part.function_call.id or f"call_{count}")
                blocks.append(tool_use_block(call_ids[-1], part.function_call.name, part.function_call.args))
            elif part.function_response is not None:
                result = part.function_response
                output = result.response.get("output", result.response.get("error", result.response))
                text = output if isinstance(output, str) else json.dumps(output)
                blocks.append(tool_result_block(result.id or call_ids[0], text))
                call_ids = call_ids[1:]
            elif part.text is not None and not part.thought:
                blocks += text_blocks(part.text)
        yield "assistant" if content.role == "model" else "user", blocks


def _to_tool(function: GeminiFunction) -> Json:
    """Return a function as a tool of the Messages API."""
    schema = function.parameters_json_schema or function.parameters or {}
    return {
        "name": function.name,
        "description": function.description,
        "input_schema": {**schema, "type": "object"},
    }


# ---------------------------------------------------------------------------------------------------------- replies


def _reply_part(block: Json) -> Json:
    """Return a block of the reply as a part: text, function call or thought."""
    match block["type"]:
        case "text":
            return {"text": block["text"]}
        case "tool_use":
            call = {"id": block["id"].replace("toolu_", "call_"), "name": block["name"], "args": block["input"]}
            return {"functionCall": call}
        case _:
            return {"text": block["thinking"], "thought": True}


def _stream_parts(block: Json) -> list[Json]:
    """Return a block of the reply as the parts of a stream: a call whole, text in pieces."""
    if block["type"] == "tool_use":
        return [_reply_part(block)]
    return [{**_reply_part(block), "text": piece} for piece in split_text(_reply_part(block)["text"])]


def _response_body(reply: Json, parts: list[Json], *, last: bool) -> Json:
    """Return a response with these parts, its usage and ids; only the `last` of a stream has the finish reason.

    The response of a refusal has no content.
    """
    usage, input_tokens = reply["usage"], total_input_tokens(reply["usage"])
    candidate: Json = {"index": 0}
    if reply["stop_reason"] != "refusal":
        candidate["content"] = {"role": "model", "parts": parts}
    if last:
        candidate["finishReason"] = _FINISH[reply["stop_reason"]]
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": input_tokens,
            "cachedContentTokenCount": usage["cache_read_input_tokens"],
            "candidatesTokenCount": usage["output_tokens"],
            "totalTokenCount": input_tokens + usage["output_tokens"],
        },
        "modelVersion": reply["model"],
        "responseId": reply["id"].removeprefix("msg_"),
    }
