"""The API's refusals about a request as a whole; rules about the conversation are in `dialogue`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from perdure.rehearsal.dialogue import check_dialogue
from perdure.rehearsal.refused import Refused, invalid
from perdure.rehearsal.schema import schema_problem
from perdure.rehearsal.wire import CacheControl, Request

MAX_BREAKPOINTS = 4
_SAMPLING = ("temperature", "top_p", "top_k")


def parse(raw: bytes, headers: Mapping[str, str], scripted_tools: frozenset[str]) -> Request:
    """A request the API would take. Raises Refused with the status and type the API would answer with.

    `scripted_tools` are names a model in this screenplay makes up: they may stand in a conversation unoffered.
    """
    _authenticated(headers)
    if not headers.get("anthropic-version"):
        raise invalid("anthropic-version: header is required")
    try:
        body = json.loads(raw)
    except ValueError:
        raise invalid("The request body is not valid JSON") from None
    if not isinstance(body, dict):
        raise invalid("The request body must be a JSON object")
    for name in _SAMPLING:
        if name in body:
            raise invalid(f"`{name}` is deprecated for this model")
    try:
        request = Request.model_validate(body)
    except ValidationError as error:
        raise invalid(_first(error)) from None
    _check_choices(request)
    _check_tools(request)
    _check_breakpoints(request)
    check_dialogue(request, scripted_tools)
    return request


def _authenticated(headers: Mapping[str, str]) -> None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    if not bearer and not headers.get("x-api-key", "").strip():
        raise Refused(401, "authentication_error", "x-api-key header is required")


def _first(error: ValidationError) -> str:
    """`messages.0.content.1.text.text: Field required`: one problem, the unknown parameter before its consequences."""
    problems: list[Any] = list(error.errors())
    problem = min(problems, key=lambda p: p["type"] != "extra_forbidden")
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"


def _check_choices(request: Request) -> None:
    choice, thinking = request.tool_choice, request.thinking
    if choice and not request.tools:
        raise invalid("tool_choice: may only be specified while providing tools")
    if choice and choice.type in ("any", "tool"):
        raise invalid(f"tool_choice: forced tool use (type '{choice.type}') is not supported by this model")
    if thinking and (thinking.type == "enabled") != (thinking.budget_tokens is not None):
        raise invalid("thinking.budget_tokens: required by type 'enabled', and by no other")
    if thinking and thinking.budget_tokens and thinking.budget_tokens >= request.max_tokens:
        raise invalid("thinking.budget_tokens: must be less than max_tokens")
    if request.json_schema is not None and (problem := schema_problem(request.json_schema)):
        raise invalid(f"output_config.format.schema: {problem}")


def _check_tools(request: Request) -> None:
    names = [tool.name for tool in request.tools]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise invalid(f"tools: Tool names must be unique: {repeated[0]}")


def _check_breakpoints(request: Request) -> None:
    marks = [*_explicit_marks(request), *([request.cache_control] if request.cache_control else [])]
    if len(marks) > MAX_BREAKPOINTS:
        raise invalid(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marks)}."
            + (" (top-level cache_control counts as one)" if request.cache_control else "")
        )
    if [mark.ttl for mark in marks] != sorted((mark.ttl for mark in marks), key=("1h", "5m").index):
        raise invalid("cache_control: a ttl='1h' block must not come after a ttl='5m' block")


def _explicit_marks(request: Request) -> Iterator[CacheControl]:
    blocks = (block for message in request.messages for block in message.content)
    for part in (*request.tools, *request.system, *blocks):
        if mark := getattr(part, "cache_control", None):
            yield mark
