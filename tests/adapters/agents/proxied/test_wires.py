"""The other wires: real HTTP on both sides, replies as their vendors write them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from proxied_agents import KEY, Books, Played, Serve, event, says, streams

from perdure.adapters.agents.proxied.proxy import Proxy
from perdure.adapters.agents.proxied.upstream import CHAT, GEMINI, RESPONSES
from perdure.models.budget.ledger import Usage
from perdure.models.errors import ModelRefusesUs, ModelUnavailable

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


Http = Callable[[Proxy], httpx2.AsyncClient]

WIRES = pytest.mark.parametrize("wire", [RESPONSES, CHAT, GEMINI])


def streaming(wire: str) -> tuple[str, dict[str, Any]]:
    path, body = ASKED[wire]
    if wire == GEMINI:
        return path.replace("generateContent", "streamGenerateContent?alt=sse"), body
    return path, {**body, "stream": True}


def understood(books: Books) -> None:
    (request,), (reply,) = books.seen, books.replies
    assert request.turn
    assert request.messages[-1]["role"] == "user"
    assert request.messages[-1]["content"][-1] == {"type": "text", "text": "Go."}
    assert request.upper_usd is None, "no price is listed for this model"
    assert request.upper_tokens > 100_000, "a request that sets no limit may be answered at length"
    text, call = reply.message["content"][-2:]
    assert text == {"type": "text", "text": "I look."}
    assert call == {"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}}
    assert reply.stop_reason == "tool_use"
    counted = Usage(input_tokens=40, cache_read_tokens=60, output_tokens=7)
    assert reply.usage.model_copy(update={"cost_usd": 0.0}) == counted
    assert reply.usage.cost_usd == pytest.approx((40 * 2 + 60 * 0.1 + 7 * 10) / 1e6)


@WIRES
async def test_a_reply_goes_to_the_agent_as_it_came_and_is_understood(
    serve: Serve, http: Http, books: Books, wire: str
) -> None:
    path, body = ASKED[wire]
    async with Played(says(REPLIES[wire])) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(
            path, json=body, headers={"authorization": "Bearer other", "x-goog-api-key": "other", "x-api-key": "other"}
        )
    assert answer.json() == REPLIES[wire]
    understood(books)
    (asked, headers, sent) = upstream.calls[0]
    assert asked == path
    assert {n: v for n, v in headers.items() if "key" in n or n == "authorization"} == dict([KEYS[wire]])
    assert sent == body


@WIRES
async def test_a_stream_is_taken_whole_and_says_the_same(serve: Serve, http: Http, books: Books, wire: str) -> None:
    path, body = streaming(wire)
    async with Played(streams(*STREAMS[wire])) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(path, json=body)
    assert answer.text == "".join(STREAMS[wire])
    assert answer.headers["content-type"].startswith("text/event-stream")
    understood(books)


@WIRES
@pytest.mark.parametrize("end", ["cut", ""])
async def test_a_stream_without_its_end_is_no_reply(
    serve: Serve, http: Http, books: Books, wire: str, end: str
) -> None:
    path, body = streaming(wire)
    async with Played(streams(*STREAMS[wire][:-1], end=end)) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(path, json=body)
    assert answer.status_code == 503
    assert "error" in answer.json()
    assert not books.kept
    assert isinstance(books.failures[0], ModelUnavailable)


@WIRES
@pytest.mark.parametrize("page", ["<html>", "[]", "null", '{"choices": 3, "candidates": 3, "output": 3}', '{"a":'])
async def test_what_is_no_reply_of_the_wire_is_none(
    serve: Serve, http: Http, books: Books, wire: str, page: str
) -> None:
    from aiohttp import web

    async def answers(request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="application/json")

    path, body = ASKED[wire]
    async with Played(answers) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(path, json=body)
    assert answer.status_code == 503
    assert not books.kept
    assert isinstance(books.failures[0], ModelUnavailable)


ERRORS: dict[str, Callable[[int], dict[str, Any]]] = {
    RESPONSES: lambda status: {"error": {"message": "no", "type": "t", "code": "c", "param": None}},
    CHAT: lambda status: {"error": {"message": "no", "type": "t", "code": None, "param": None}},
    GEMINI: lambda status: {"error": {"code": status, "message": "no", "status": "SOMETHING"}},
}


@WIRES
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503])
async def test_an_error_has_the_shape_of_its_wire(
    serve: Serve, http: Http, books: Books, wire: str, status: int
) -> None:
    path, body = ASKED[wire]
    async with Played(says(ERRORS[wire](status), status)) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(path, json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert error["message"] == "no"
    assert ("status" in error) == (wire == GEMINI)
    passes = status in (429, 500, 503)
    assert answer.headers["x-should-retry"] == str(passes).lower()
    assert isinstance(books.failures[0], ModelUnavailable if passes else ModelRefusesUs)


@pytest.mark.parametrize(
    ("wire", "events", "status"),
    [
        (RESPONSES, [event(type="response.failed", response={"error": {"code": "rate_limit_exceeded"}})], 429),
        (RESPONSES, [event(type="error", error={"code": "insufficient_quota", "message": "pay"})], 402),
        (RESPONSES, [event(type="response.failed", response={"error": {"code": "server_error"}})], 500),
        (CHAT, [piece(content="I"), event(error={"message": "oh", "code": "rate_limit_exceeded"})], 429),
        (GEMINI, [event(error={"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED"})], 429),
    ],
)
async def test_a_stream_that_says_it_has_failed_is_that_error(
    serve: Serve, http: Http, books: Books, wire: str, events: list[str], status: int
) -> None:
    path, body = streaming(wire)
    async with Played(streams(*events)) as upstream:
        answer = await http(await serve(upstream.upstream(wire))).post(path, json=body)
    assert answer.status_code == status
    assert not books.kept
    assert isinstance(books.failures[0], ModelRefusesUs if status == 402 else ModelUnavailable)


@pytest.mark.parametrize(
    ("wire", "reply", "stop"),
    [
        (RESPONSES, {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "max_tokens"),
        (RESPONSES, {"output": RESPONSE["output"][:2]}, "end_turn"),  # type: ignore[index]
        (CHAT, {"choices": [{"message": {"content": "I"}, "finish_reason": "length"}]}, "max_tokens"),
        (CHAT, {"choices": [{"message": {"refusal": "No"}, "finish_reason": "stop"}]}, "end_turn"),
        (GEMINI, {"candidates": [{"finishReason": "SAFETY"}]}, "refusal"),
        (GEMINI, {"candidates": [], "promptFeedback": {"blockReason": "SAFETY"}}, "refusal"),
        (GEMINI, {"candidates": [{"content": {"parts": [{"text": "I"}]}, "finishReason": "MAX_TOKENS"}]}, "max_tokens"),
    ],
)
async def test_each_way_a_reply_ends_has_our_word(
    serve: Serve, http: Http, books: Books, wire: str, reply: dict[str, Any], stop: str
) -> None:
    path, body = ASKED[wire]
    async with Played(says({**REPLIES[wire], **reply})) as upstream:
        assert (await http(await serve(upstream.upstream(wire))).post(path, json=body)).status_code == 200
    assert books.replies[0].stop_reason == stop


async def test_a_stream_of_chat_says_what_it_costs_although_the_agent_did_not_ask(serve: Serve, http: Http) -> None:
    path, body = streaming(CHAT)
    async with Played(streams(*STREAMS[CHAT])) as upstream:
        await http(await serve(upstream.upstream(CHAT))).post(path, json=body)
    assert upstream.calls[0][2]["stream_options"] == {"include_usage": True}


async def test_the_address_of_openais_variable_ends_in_its_version(serve: Serve, http: Http) -> None:
    path, body = ASKED[RESPONSES]
    async with Played(says(RESPONSE)) as upstream:
        await http(await serve(upstream.upstream(RESPONSES, "/proxy/v1"))).post(path, json=body)
    assert upstream.calls[0][0] == "/proxy/v1/responses"


SPOKEN: dict[str, list[dict[str, Any]]] = {
    RESPONSES: [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Work."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go."}]},
        *RESPONSE["output"],  # type: ignore[list-item]
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    ],
    CHAT: [
        {"role": "system", "content": "Work."},
        {"role": "user", "content": [{"type": "text", "text": "Go."}]},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
    ],
}


@pytest.mark.parametrize("wire", [RESPONSES, CHAT])
async def test_a_conversation_is_told_in_the_shape_of_our_transcripts(
    serve: Serve, http: Http, books: Books, wire: str
) -> None:
    path, body = ASKED[wire]
    said = {"input" if wire == RESPONSES else "messages": SPOKEN[wire]}
    async with Played(says(REPLIES[wire])) as upstream:
        await http(await serve(upstream.upstream(wire))).post(path, json={**body, **said})
    assert json.loads(json.dumps(books.seen[0].messages)) == [
        {"role": "user", "content": [{"type": "text", "text": "Work."}, {"type": "text", "text": "Go."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "shell", "input": {"command": "ls"}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a.py"}]}],
        },
    ]
