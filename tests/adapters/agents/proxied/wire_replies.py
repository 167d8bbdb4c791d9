"""Replies of the other wires, as their vendors write them."""

from __future__ import annotations

from typing import Any

from proxied_agents import KEY, event

from perdure.adapters.agents.proxied.upstream import CHAT, GEMINI, RESPONSES

FUNCTION = {"type": "function", "name": "shell", "parameters": {"type": "object"}}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "claude-sonnet-5-5",  # gateways serve any model on any wire; this one has a price
    "status": "completed",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "fc", "call_id": "c1", "name": "shell", "arguments": '{"command":"ls"}'},
    ],
    "usage": {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7},
}
CHAT_CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command":"ls"}'}}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "claude-sonnet-5-5",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "I look.", "tool_calls": [CHAT_CALL]},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens": 7},
}
GEMINI_REPLY = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [
                    {"text": "I look."},
                    {"functionCall": {"id": "c1", "name": "shell", "args": {"command": "ls"}}},
                ],
            },
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 4,
        "thoughtsTokenCount": 3,
    },
    "modelVersion": "claude-sonnet-5-5",
}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    RESPONSES: (
        "/v1/responses",
        {"model": "gpt-x", "input": [{"role": "user", "content": "Go."}], "tools": [FUNCTION]},
    ),
    CHAT: (
        "/v1/chat/completions",
        {
            "model": "gpt-x",
            "messages": [{"role": "system", "content": "Work."}, {"role": "user", "content": "Go."}],
            "tools": [{"type": "function", "function": {"name": "shell"}}],
        },
    ),
    GEMINI: (
        "/v1beta/models/gemini-x:generateContent",
        {
            "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
            "tools": [{"functionDeclarations": [{"name": "shell"}]}],
        },
    ),
}
REPLIES: dict[str, dict[str, Any]] = {RESPONSES: RESPONSE, CHAT: COMPLETION, GEMINI: GEMINI_REPLY}
KEYS = {
    RESPONSES: ("authorization", f"Bearer {KEY}"),
    CHAT: ("authorization", f"Bearer {KEY}"),
    GEMINI: ("x-goog-api-key", KEY),
}


def piece(**delta: Any) -> str:
    why = delta.pop("finish_reason", None)
    return event(model="claude-sonnet-5-5", choices=[{"index": 0, "delta": delta, "finish_reason": why}])


def argument(index: int, **function: Any) -> dict[str, Any]:
    return {"index": index, "function": function}


STREAMS: dict[str, tuple[str, ...]] = {
    RESPONSES: (
        event("response.created", type="response.created", response={"id": "resp_1"}),
        *(
            event("response.output_item.done", type="response.output_item.done", item=item)
            for item in RESPONSE["output"]  # type: ignore[attr-defined]
        ),
        event("response.completed", type="response.completed", response={**RESPONSE, "output": []}),
    ),
    CHAT: (
        piece(role="assistant", content="I "),
        piece(content="look."),
        piece(tool_calls=[{**argument(0, name="shell", arguments=""), "id": "c1", "type": "function"}]),
        piece(tool_calls=[argument(0, arguments='{"command":')]),
        piece(tool_calls=[argument(0, arguments='"ls"}')], finish_reason="tool_calls"),
        event(choices=[], usage=COMPLETION["usage"]),
        "data: [DONE]\n\n",
    ),
    GEMINI: (
        event(candidates=[{"content": {"role": "model", "parts": [{"text": "I "}]}}]),
        event(
            **{
                **GEMINI_REPLY,
                "candidates": [
                    {
                        "content": {"parts": [{"text": "look."}, GEMINI_REPLY["candidates"][0]["content"]["parts"][1]]},  # type: ignore[index]
                        "finishReason": "STOP",
                    }
                ],
            }
        ),
    ),
}
