"""The fields that the proxy sends on to a model's API, by wire and at every depth: a body is written anew from them.
The API's servers have a network and the agent has none, so that nothing is sent by which they would fetch, run or call
something, or read a file of the account."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from perdure.adapters.agents.proxied.wires.common import request_error

Shape = Mapping[str, Any]
"""By field: PLAIN, OPAQUE, or the shape of the object, or of each object of the list, that it holds."""

PLAIN = "plain"
"""A text, a number, a truth value or nothing, or a list of these."""
OPAQUE = "opaque"
"""Whatever it is: the model alone reads it, as text. The schema of a tool, a call's arguments, a tool's result."""

_FILE_FIELDS = ("file_id", "file_ids", "file_url", "file_uri", "fileData", "fileId", "fileUri", "vector_store_ids")
_ADDRESS_FIELDS = ("image_url", "video_url", "url", "uri")


_MOST_DEPTH = 64
"""The most objects and lists around a part of a request, those of schemas and arguments aside: no API takes as many."""


def copy_allowed(
    value: Any, shape: Shape, refusal_reason: Callable[[Any], str] = lambda value: "", depth: int = 0
) -> Any:
    """Return a copy of a body, or a part of it, with the fields of its shape alone.

    refusal_reason  gives the wire's own reason to refuse an object, empty for none
    depth           how many objects and lists are around it

    Raises WireError for an object, at any depth of the shape, that names something which the API's servers would fetch,
    and for what is nested too deeply.
    """
    if depth > _MOST_DEPTH:
        raise request_error("it is nested too deeply")
    if isinstance(value, list):
        return [copy_allowed(item, shape, refusal_reason, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if reason := _remote_reason(value):
        raise request_error(f"this agent has no network: {reason}")
    if reason := refusal_reason(value):
        raise request_error(reason)
    copied = dict[str, Any]()
    for name, content in value.items():
        kind = shape.get(name)
        if kind == OPAQUE or (kind == PLAIN and _is_plain(content)):
            copied[name] = content
        elif isinstance(kind, Mapping):
            copied[name] = copy_allowed(content, kind, refusal_reason, depth + 1)
    return copied


def _is_plain(value: Any) -> bool:
    """Return whether a value is no object and holds none."""
    return not isinstance(value, dict) and not (
        isinstance(value, list) and any(isinstance(item, dict | list) for item in value)
    )


def _remote_reason(value: Mapping[str, Any]) -> str:
    """Return the reason why an object may not be sent: it names a picture or document by its address, or a file by its
    address or id. Empty: it may."""
    if value.get("type") in ("url", "container_upload"):
        return "a picture or document cannot be named by its address"
    addresses = [value.get(name) for name in _ADDRESS_FIELDS]
    if any(isinstance(address, str) and not address.startswith("data:") for address in addresses):
        return "a picture or document cannot be named by its address"
    return "a file cannot be named by its address or its id" if any(map(value.get, _FILE_FIELDS)) else ""


def _plain_fields(names: str) -> dict[str, Any]:
    """Return the shape of fields that are all plain."""
    return dict.fromkeys(names.split(), PLAIN)


_CACHE = {"cache_control": _plain_fields("type ttl")}

_BLOCK: dict[str, Any] = {
    **_plain_fields("type text title context id name tool_use_id is_error thinking signature data tool_name"),
    **_CACHE,
    "input": OPAQUE,
}
_BLOCK |= {"content": _BLOCK, "source": {**_plain_fields("type media_type data"), "content": _BLOCK}}
_BLOCK["citations"] = _plain_fields(
    "enabled type cited_text document_index document_title start_char_index end_char_index start_page_number "
    "end_page_number start_block_index end_block_index search_result_index source title"
)
_OUTPUT = {"effort": PLAIN, "format": {"type": PLAIN, "schema": OPAQUE}}
_EDIT_PART = {name: _plain_fields("type value") for name in ("trigger", "keep", "clear_at_least")}

ANTHROPIC: Shape = {
    **_plain_fields("model max_tokens temperature top_p top_k stop_sequences stream service_tier speed inference_geo"),
    **_CACHE,
    "messages": {"role": PLAIN, "content": _BLOCK, "output_config": _OUTPUT},
    "system": _BLOCK,
    "tools": {
        **_plain_fields(
            "type name description strict defer_loading eager_input_streaming allowed_callers max_characters"
        ),
        **_plain_fields("display_width_px display_height_px display_number enable_zoom"),
        **_CACHE,
        "input_schema": OPAQUE,
        "input_examples": OPAQUE,
    },
    "tool_choice": _plain_fields("type name disable_parallel_tool_use"),
    "thinking": _plain_fields("type budget_tokens display"),
    "metadata": _plain_fields("user_id"),
    "diagnostics": OPAQUE,
    "output_format": {"type": PLAIN, "schema": OPAQUE},
    "output_config": _OUTPUT,
    "context_management": {
        "edits": {
            **_plain_fields("type keep exclude_tools clear_tool_inputs instructions pause_after_compaction"),
            **_EDIT_PART,
        }
    },
}

_GEMINI_PART: dict[str, Any] = {
    **_plain_fields("text thought thoughtSignature mediaResolution"),
    "inlineData": _plain_fields("mimeType data displayName"),
    "functionCall": {**_plain_fields("id name"), "args": OPAQUE},
    "functionResponse": {**_plain_fields("id name scheduling willContinue"), "response": OPAQUE},
}
_GEMINI_PART["functionResponse"]["parts"] = _GEMINI_PART
_GEMINI_CONTENT = {"role": PLAIN, "parts": _GEMINI_PART}

GEMINI: dict[str, Any] = {
    **_plain_fields("model"),
    "contents": _GEMINI_CONTENT,
    "systemInstruction": _GEMINI_CONTENT,
    "tools": {"functionDeclarations": OPAQUE},
    "toolConfig": {"functionCallingConfig": _plain_fields("mode allowedFunctionNames")},
    "safetySettings": _plain_fields("category threshold method"),
    "generationConfig": {
        **_plain_fields("temperature topP topK candidateCount maxOutputTokens stopSequences seed presencePenalty"),
        **_plain_fields("frequencyPenalty responseMimeType mediaResolution responseLogprobs logprobs"),
        "responseSchema": OPAQUE,
        "responseJsonSchema": OPAQUE,
        "thinkingConfig": _plain_fields("includeThoughts thinkingBudget thinkingLevel"),
    },
}

_CALL = {
    **_plain_fields("id type index"),
    "function": _plain_fields("name arguments"),
    "custom": _plain_fields("name input"),
}
_CHAT_PART = {
    **_plain_fields("type text refusal"),
    **_CACHE,
    "image_url": _plain_fields("url detail"),
    "input_audio": _plain_fields("data format"),
    "file": _plain_fields("file_data filename"),
}
_OPENAI_OPTIONS = {
    **_plain_fields(
        "model temperature top_p stream service_tier parallel_tool_calls top_logprobs user prompt_cache_key"
    ),
    **_plain_fields("prompt_cache_retention safety_identifier store"),
    "metadata": OPAQUE,
    "client_metadata": OPAQUE,
}

CHAT: Shape = {
    **_OPENAI_OPTIONS,
    **_plain_fields(
        "max_tokens max_completion_tokens stop n seed presence_penalty frequency_penalty repetition_penalty top_k"
    ),
    **_plain_fields("min_p logprobs reasoning_effort verbosity enable_thinking thinking_budget preserve_thinking"),
    "messages": {
        **_plain_fields(
            "role name tool_call_id refusal reasoning_content reasoning reasoning_text reasoning_opaque phase"
        ),
        **_CACHE,
        "content": _CHAT_PART,
        "tool_calls": {**_CALL, "extra_content": OPAQUE},
        "function_call": _plain_fields("name arguments"),
        "reasoning_details": OPAQUE,
    },
    "tools": {
        "type": PLAIN,
        **_CACHE,
        "function": {**_plain_fields("name description strict"), "parameters": OPAQUE},
        "custom": {**_plain_fields("name description"), "format": OPAQUE},
    },
    "tool_choice": {**_CALL, "allowed_tools": {"mode": PLAIN, "tools": _CALL}},
    "stream_options": _plain_fields("include_usage include_obfuscation"),
    "logit_bias": OPAQUE,
    "response_format": {"type": PLAIN, "json_schema": OPAQUE},
    "reasoning": _plain_fields("effort max_tokens exclude enabled summary"),
    "thinking": _plain_fields("type budget_tokens clear_thinking"),
    "chat_template_kwargs": OPAQUE,
    "prediction": {"type": PLAIN, "content": _CHAT_PART},
    "usage": _plain_fields("include"),
}

_RESPONSES_PART = {
    **_plain_fields("type text image_url detail file_data filename refusal stdout stderr"),
    "input_audio": _plain_fields("data format"),
    "outcome": _plain_fields("type exit_code"),
}
_RESPONSES_TOOL: dict[str, Any] = {
    **_plain_fields("type name description strict execution display_width display_height defer_loading"),
    "environment": _plain_fields("type"),
    "parameters": OPAQUE,
    "format": OPAQUE,
}
_RESPONSES_TOOL["tools"] = _RESPONSES_TOOL

RESPONSES: Shape = {
    **_OPENAI_OPTIONS,
    **_plain_fields("instructions max_output_tokens max_tool_calls include truncation"),
    "input": {
        **_plain_fields("type role id status name namespace arguments call_id input encrypted_content execution phase"),
        **_plain_fields("max_output_length"),
        "content": _RESPONSES_PART,
        "output": _RESPONSES_PART,
        "summary": _RESPONSES_PART,
        "action": OPAQUE,
        "operation": OPAQUE,
        "tools": _RESPONSES_TOOL,
        "pending_safety_checks": OPAQUE,
        "acknowledged_safety_checks": OPAQUE,
    },
    "tools": _RESPONSES_TOOL,
    "tool_choice": {**_plain_fields("type name mode"), "tools": _plain_fields("type name")},
    "reasoning": _plain_fields("effort summary generate_summary"),
    "stream_options": _plain_fields("include_obfuscation"),
    "text": {"verbosity": PLAIN, "format": {**_plain_fields("type name strict description"), "schema": OPAQUE}},
    "context_management": _plain_fields("type compact_threshold"),
}
