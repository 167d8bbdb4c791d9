"""The Responses API: a conversation of two turns, streamed and whole, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.rehearsal.server import Rehearsal
from tests.rehearsal.wire_fixtures import PLAY, SCHEMA, Json, frames, post

LOOK: Json = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def asked(*items: Json, **more: Any) -> Json:
    opening = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You write software."}]},
        {"role": "user", "content": "Step: implement\n\nGo."},
    ]
    return {"model": "gpt-5.5", "input": [*opening, *items], "tools": [LOOK], "store": False, **more}


async def said(twin: Rehearsal, body: Json) -> Json:
    answer = await post(f"{twin.url}/v1/responses", body)
    assert answer.status_code == 200, answer.text
    whole: Json = answer.json()
    return whole


async def test_a_conversation_goes_on_with_what_the_tools_gave(rehearsal):
    twin = await rehearsal(PLAY)
    first = await said(twin, asked())
    thought, words, *calls = first["output"]
    assert (thought["type"], words["content"][0]["text"]) == ("reasoning", "I look at the file before I change it.")
    assert [(call["type"], call["name"], call["arguments"]) for call in calls] == [
        ("function_call", "look", '{"path": "\\u00e4.py"}'),
        ("function_call", "look", '{"path": "b.py"}'),
    ]
    results = [{"type": "function_call_output", "call_id": call["call_id"], "output": "def add"} for call in calls]
    second = await said(twin, asked(*first["output"], *results))
    assert second["output"][0]["content"][0]["text"] == "Done."
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert twin.report()["replies"] == 2
    assert [(call.step, call.turn) for call in twin.calls] == [("implement", 1), ("implement", 2)]


async def test_the_stream_is_the_same_reply_and_its_events_are_numbered(rehearsal):
    twin = await rehearsal(PLAY)
    whole = await said(twin, asked())
    events = frames(await post(f"{twin.url}/v1/responses", asked(stream=True)))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    assert events[-1]["response"]["output"] == whole["output"]
    assert [event["item"] for event in events if event["type"] == "response.output_item.done"] == whole["output"]
    for number, item in enumerate(whole["output"]):
        deltas = [e["delta"] for e in events if e["type"].endswith(".delta") and e["output_index"] == number]
        text = item["content"][0]["text"] if item["type"] == "message" else item.get("arguments", "")
        assert "".join(deltas) == text


async def test_a_tool_that_takes_a_text_is_called_with_a_text_in_its_namespace(rehearsal):
    twin = await rehearsal('[[line]]\nuse = [{ tool = "bash", input = { command = "ls" } }]')
    tools = [{"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}]
    body = asked({"type": "additional_tools", "role": "developer", "tools": tools}, tools=[])
    (call,) = (await said(twin, body))["output"]
    assert (call["type"], call["name"], call["namespace"]) == ("custom_tool_call", "exec", "functions")
    assert call["input"] == 'text(await tools.exec_command({"cmd": "ls", "yield_time_ms": 30000}));'


async def test_an_answer_follows_the_schema_of_the_request(rehearsal):
    twin = await rehearsal(PLAY)
    body = asked(text={"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}})
    body["input"][1]["content"] = "Step: plan"
    (item,) = (await said(twin, body))["output"]
    assert item["content"][0]["text"] == '{"title": "A plan, with ümlauts"}'


@pytest.mark.parametrize(
    ("change", "status", "code", "words"),
    [
        ({"colour": "red"}, 400, "unknown_parameter", "Unknown parameter: 'colour'."),
        ({"model": None}, 400, "invalid_value", "Invalid value for 'model'"),
        ({"previous_response_id": "resp_1"}, 400, "previous_response_not_found", "resp_1"),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}]},
            400,
            None,
            "No tool output found for function call c.",
        ),
        (
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
            400,
            None,
            "No tool call found for function call output with call_id c.",
        ),
        (
            {"input": [{"type": "reasoning", "summary": [], "encrypted_content": "bWFkZQ=="}]},
            400,
            "invalid_encrypted_content",
            "could not be verified",
        ),
    ],
)
async def test_what_the_api_would_not_take_is_refused_in_its_words(rehearsal, change, status, code, words):
    twin = await rehearsal(PLAY)
    answer = await post(f"{twin.url}/v1/responses", asked() | change)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (status, "invalid_request_error", code)
    assert words in error["message"]
    assert twin.report()["refused"] == 1


async def test_nobody_without_a_key_is_answered(rehearsal):
    twin = await rehearsal(PLAY)
    assert (await post(f"{twin.url}/v1/responses", asked(), accept="*/*")).status_code == 401


async def test_faults_look_as_they_do_there(rehearsal):
    twin = await rehearsal('[[line]]\nfault = "529"\n[[line]]\nfault = "stream_error"\nsay = "Not whole."\n')
    overloaded = await post(f"{twin.url}/v1/responses", asked())
    assert (overloaded.status_code, overloaded.json()["error"]["type"]) == (529, "server_error")
    broken = frames(await post(f"{twin.url}/v1/responses", asked(stream=True)))
    assert (broken[-1]["type"], broken[-1]["response"]["status"]) == ("response.failed", "failed")
    twin = await rehearsal('[[line]]\nfault = "max_tokens"\nsay = "All of this is said."\n')
    cut = await said(twin, asked())
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
