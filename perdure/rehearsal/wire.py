"""The request of the Messages API, in the shapes that this twin plays, the refusals of the API, and the JSON schemas of
structured outputs. Used by the other modules of `perdure.rehearsal` alone, into which requests of other APIs come as
this one's, too."""

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
    """An image or a document; what an image has to be is in `record.image_problem`."""

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


_KEYWORDS = frozenset(
    {"$defs", "$ref", "type", "enum", "const", "anyOf", "allOf", "properties", "required", "additionalProperties"}
    | {"items", "minItems", "format", "description", "title", "default"}
)
"""Keywords of the API's grammar; limits on numbers and lengths are not (the SDK moves them to the description)."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


_NO_EMPTY_VALUE = "nothing may be made up"


def schema_problem(schema: dict[str, Any]) -> str | None:
    """Return why the API would refuse this schema as `output_config.format`, or None."""
    if schema.get("type") != "object" and "$ref" not in schema:
        return "the schema must be an object schema (type: object)"
    return _find_unsupported(schema, "schema")


def answer_problem(answer: Any, schema: dict[str, Any]) -> str | None:
    """Return where an answer departs from a schema that the API takes, or None."""
    return _find_departure(answer, schema, schema, "answer")


def fill_empties(answer: Any, schema: dict[str, Any]) -> Any:
    """Return the answer with the lists and nulls filled in that a screenplay left out of the things in its lists.

    For example an issue's screenshots or a task's role. What the answer itself has to have, such as its issues, is
    never made up.
    """
    return _fill_value(answer, schema, schema, inside=False)


def _fill_value(value: Any, schema: dict[str, Any], root: dict[str, Any], *, inside: bool = True) -> Any:
    """Return a value with its schema's required lists and nulls filled in, at the top only if `inside` is set."""
    schema = _resolve_reference(schema, root)
    if isinstance(value, list) and "items" in schema:
        return [_fill_value(item, schema["items"], root) for item in value]
    if not isinstance(value, dict):
        return value
    properties = {name: _resolve_reference(part, root) for name, part in schema.get("properties", {}).items()}
    empties = {name: _empty_value(properties.get(name, {})) for name in schema.get("required", []) if inside}
    fields = {**{name: empty for name, empty in empties.items() if empty != _NO_EMPTY_VALUE}, **value}
    return {name: _fill_value(part, properties.get(name, {}), root) for name, part in fields.items()}


def _empty_value(schema: dict[str, Any]) -> Any:
    """Return the value to fill in for a missing field: a list, null, or _NO_EMPTY_VALUE where neither is allowed."""
    if schema.get("type") == "array":
        return []
    return None if {"type": "null"} in schema.get("anyOf", []) else _NO_EMPTY_VALUE


def _resolve_reference(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a `$ref` points to within `root`, or the schema itself when it has none."""
    if "$ref" not in schema:
        return schema
    target: Any = root
    for name in str(schema["$ref"]).removeprefix("#/").split("/"):
        target = target[name]
    resolved: dict[str, Any] = target
    return resolved


def _find_unsupported(schema: Any, path: str) -> str | None:
    """Return the first thing in a schema or its subschemas that the API does not support, with its path; else None."""
    if not isinstance(schema, dict):
        return f"{path}: a schema must be an object"
    if unknown := sorted(schema.keys() - _KEYWORDS):
        return f"{path}: property '{unknown[0]}' is not supported"
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in _TYPES:
            return f"{path}: '{kind}' is not a type"
    if "object" in kinds and schema.get("additionalProperties") is not False:
        return f"{path}: for 'object' type, 'additionalProperties' must be explicitly set to false"
    if schema.get("minItems", 0) not in (0, 1):
        return f"{path}: for 'array' type, 'minItems' values other than 0 or 1 are not supported"
    subschemas = [
        (f"{path}.{word}.{name}", part)
        for word in ("properties", "$defs")
        for name, part in schema.get(word, {}).items()
    ]
    subschemas += [
        (f"{path}.{word}.{n}", part) for word in ("anyOf", "allOf") for n, part in enumerate(schema.get(word, []))
    ]
    subschemas += [(f"{path}.items", schema["items"])] if "items" in schema else []
    return next((problem for name, part in subschemas if (problem := _find_unsupported(part, name))), None)


def _find_departure(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> str | None:
    """Return how and where a value departs from a schema's const, enum, anyOf, allOf, type or content; else None."""
    schema = _resolve_reference(schema, root)
    if "const" in schema and value != schema["const"]:
        return f"{path} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{path} is {value!r}, not one of {', '.join(map(repr, schema['enum']))}"
    if "anyOf" in schema:
        problems = [_find_departure(value, part, root, path) for part in schema["anyOf"]]
        return None if None in problems else problems[0]
    for part in schema.get("allOf", []):
        if problem := _find_departure(value, part, root, path):
            return problem
    return _type_problem(value, schema, path) or _content_problem(value, schema, root, path)


def _type_problem(value: Any, schema: dict[str, Any], path: str) -> str | None:
    """Return that a value is not of the schema's types, or None."""
    kinds = schema.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    allowed = tuple(cls for kind in kinds for cls in _TYPES[kind])
    is_wrong_bool = isinstance(value, bool) and "boolean" not in kinds  # True is an int to Python, not to JSON
    if kinds and (is_wrong_bool or not isinstance(value, allowed)):
        return f"{path} is {value!r:.60}, not of type {' or '.join(kinds)}"
    return None


def _content_problem(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str) -> str | None:
    """Return the first list item or object field that departs from the schema, is missing or unknown; else None."""
    if isinstance(value, list) and "items" in schema:
        problems = (_find_departure(item, schema["items"], root, f"{path}[{n}]") for n, item in enumerate(value))
        return next((problem for problem in problems if problem), None)
    if not isinstance(value, dict):
        return None
    properties = schema.get("properties", {})
    if missing := [name for name in schema.get("required", []) if name not in value]:
        return f"{path}.{missing[0]} is missing"
    if unknown := [name for name in value if name not in properties and schema.get("additionalProperties") is False]:
        return f"{path}.{unknown[0]} is not in the schema (it has {', '.join(properties)})"
    problems = (
        _find_departure(value[name], part, root, f"{path}.{name}") for name, part in properties.items() if name in value
    )
    return next((problem for problem in problems if problem), None)
