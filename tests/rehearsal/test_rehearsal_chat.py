"""Chat completions: a conversation of two turns, streamed and whole, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rehearsal.wire_fixtures import PLAY, SCHEMA, Json, frames, post

LOOK: Json = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


PATCH: Json = {"type": "custom", "custom": {"name": "apply_patch", "format": {"type": "text"}}}
"""As Copilot CLI offers it."""


def asked(*messages: Json, **more: Any) -> Json:
    opening = [{"role": "system", "content": "Step: implement"}, {"role": "user", "content": "Go."}]
    return {"model": "m", "messages": [*opening, *messages], "tools": [LOOK], **more}


async def test_a_conversation_goes_on_with_what_the_tools_gave(rehearsal):
    twin = await rehearsal(PLAY)
    first = (await post(f"{twin.url}/v1/chat/completions", asked())).json()
    choice = first["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["arguments"] for call in choice["message"]["tool_calls"]] == [
        '{"path": "\\u00e4.py"}',
        '{"path": "b.py"}',
    ]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "def add"} for call in choice["message"]["tool_calls"]
    ]
    second = (await post(f"{twin.url}/v1/chat/completions", asked(choice["message"], *results))).json()
    assert second["choices"][0]["message"]["content"] == "Done."
    assert second["choices"][0]["finish_reason"] == "stop"
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert [(call.step, call.turn) for call in twin.calls] == [("implement", 1), ("implement", 2)]


async def test_the_stream_is_the_same_reply_and_ends_with_what_it_cost_where_that_is_asked_for(rehearsal):
    twin = await rehearsal(PLAY)
    url = f"{twin.url}/v1/chat/completions"
    message = (await post(url, asked())).json()["choices"][0]["message"]
    answer = await post(url, asked(stream=True, stream_options={"include_usage": True}))
    assert answer.text.endswith("data: [DONE]\n\n")
    *chunks, last = frames(answer)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert "".join(delta.get("content") or "" for delta in deltas) == message["content"]
    calls: dict[int, str] = {}
    for call in (call for delta in deltas for call in delta.get("tool_calls", [])):
        calls[call["index"]] = calls.get(call["index"], "") + call["function"]["arguments"]
    assert list(calls.values()) == [call["function"]["arguments"] for call in message["tool_calls"]]
    assert (last["choices"], last["usage"]["total_tokens"] > 0) == ([], True)
    assert all("usage" not in chunk for chunk in frames(await post(url, asked(stream=True))))


async def test_an_answer_follows_the_schema_of_the_request(rehearsal):
    twin = await rehearsal(PLAY)
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    body = asked(response_format=form)
    body["messages"][0]["content"] = "Step: plan"
    message = (await post(f"{twin.url}/v1/chat/completions", body)).json()["choices"][0]["message"]
    assert message["content"] == '{"title": "A plan, with ümlauts"}'


async def test_a_tool_whose_input_is_text_may_be_offered_beside_others(rehearsal):
    twin = await rehearsal(PLAY)
    answer = (await post(f"{twin.url}/v1/chat/completions", asked(tools=[PATCH, LOOK]))).json()
    assert [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]] == ["look", "look"]


CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}],
}


@pytest.mark.parametrize(
    ("messages", "more", "words"),
    [
        ([], {"colour": "red"}, "Unknown parameter: 'colour'."),
        ([], {"stream_options": {"include_usage": True}}, "only allowed when 'stream' is enabled"),
        ([], {"tools": [{**PATCH, "custom": None}]}, "Missing required parameter"),
        ([CALL], {}, "did not have response messages: c"),
        ([CALL, {"role": "user", "content": "Go on."}], {}, "did not have response messages: c"),
        ([{"role": "tool", "tool_call_id": "c", "content": "x"}], {}, "must be a response to a preceeding message"),
    ],
)
async def test_what_the_api_would_not_take_is_refused_in_its_words(rehearsal, messages, more, words):
    twin = await rehearsal(PLAY)
    answer = await post(f"{twin.url}/v1/chat/completions", asked(*messages, **more))
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


async def test_a_refusal_and_a_cut_reply_say_so(rehearsal):
    twin = await rehearsal(
        '[[line]]\nfault = "refusal"\n[[line]]\nfault = "max_tokens"\nsay = "All of this is said."\n'
    )
    url = f"{twin.url}/v1/chat/completions"
    refused = (await post(url, asked())).json()["choices"][0]["message"]
    assert (refused["content"], bool(refused["refusal"])) == (None, True)
    assert (await post(url, asked())).json()["choices"][0]["finish_reason"] == "length"
