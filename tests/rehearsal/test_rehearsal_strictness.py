"""The twin refuses all that the real API refuses, with the place; it takes pictures and the extras of Claude Code."""

from __future__ import annotations

import base64
import struct
from typing import Any

import httpx2
import pytest
from anthropic import BadRequestError

from tests.rehearsal.wire_fixtures import Json, post

PLAY = """
[[line]]
turn = 1
think = "Let me see."
say = "Hello."
use = [{ tool = "bash", input = { command = "ls" } }, { tool = "bash", input = { command = "pwd" } }]
[[line]]
say = "Done."
"""
TOOLS: list[dict[str, Any]] = [{"name": "bash", "input_schema": {"type": "object", "properties": {}}}]
MARK = {"type": "ephemeral"}
SHOWN = {"type": "adaptive", "display": "summarized"}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def text(words: str = "Go.", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(name: str = "bash", number: int = 1) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": {}}


def result(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": "ok", **more}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def schema(**properties: Any) -> dict[str, Any]:
    inner = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"output_config": {"format": {"type": "json_schema", "schema": inner}}}


PARAMETERS = [
    ({"extra_body": {"temprature": 1}}, "temprature: Extra inputs are not permitted"),
    ({"extra_body": {"temperature": 0.5}}, "`temperature` is deprecated"),
    ({"extra_body": {"top_p": 0.5}}, "`top_p` is deprecated"),
    ({"extra_body": {"top_k": 5}}, "`top_k` is deprecated"),
    ({"model": ""}, "model: String should have at least 1 character"),
    ({"max_tokens": 0}, "max_tokens: "),
    ({"extra_body": {"max_tokens": "100"}}, "max_tokens: Input should be a valid integer"),
    ({"tools": TOOLS, "tool_choice": {"type": "any"}}, "forced tool use"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "bash"}}, "forced tool use"),
    ({"tool_choice": {"type": "auto"}}, "only be specified while providing tools"),
    ({"tools": [{**TOOLS[0], "name": "no spaces"}]}, "tools.0.name: String should match pattern"),
    ({"tools": [*TOOLS, *TOOLS]}, "Tool names must be unique: bash"),
    ({"tools": [{"name": "bash"}]}, "tools.0.input_schema: Field required"),
    ({"tools": [{"name": "bash", "input_schema": {"type": "array"}}]}, "tools.0.input_schema.type"),
    ({"thinking": {"type": "enabled"}}, "budget_tokens: required by type 'enabled'"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "must be less than max_tokens"),
    ({"output_config": {"effort": "extreme"}}, "output_config.effort"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "array"}}}}, "must be an object schema"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "'additionalProperties'"),
    (schema(inner={"type": "object"}), "schema.properties.inner: for 'object' type, 'additionalProperties'"),
    (schema(n={"type": "integer", "minimum": 1}), "schema.properties.n: property 'minimum' is not supported"),
    (schema(n={"type": "array", "items": {"type": "int"}}), "schema.properties.n.items: 'int' is not a type"),
]

DIALOGUES = [
    ([assistant(text())], "messages.0: roles must alternate"),
    ([user(text()), user(text())], "messages.1: roles must alternate"),
    ([user(text()), assistant(text("Hi."))], "does not support assistant message prefill"),
    ([user()], "messages.0: all messages must have non-empty content"),
    ([user(text(" \n"))], "messages.0.content.0: text content blocks must contain non-whitespace text"),
    ([user(use())], "`tool_use` blocks can only be in `assistant` messages"),
    ([user(text()), assistant(result()), user(text())], "`tool_result` blocks can only be in `user` messages"),
    ([user(text(color="red"))], "messages.0.content.0.text.color: Extra inputs are not permitted"),
    ([user({"type": "sound"})], "messages.0.content.0: Input tag 'sound'"),
    ([user(text()), assistant(use()), user(text())], "ids were found without `tool_result` blocks.*toolu_1"),
    ([user(text()), assistant(use(), use(number=2)), user(result())], "without `tool_result` blocks.*toolu_2"),
    ([user(result())], "messages.0.content.0: unexpected `tool_use_id`"),
    ([user(text()), assistant(use()), user(result(), result(2))], "messages.2.content.1: unexpected `tool_use_id`"),
    ([user(text()), assistant(use()), user(result(), result())], "a single result: toolu_1"),
    ([user(text()), assistant(use()), user(text(), result())], "must come first"),
    ([user(text()), assistant(use("sing")), user(result())], "messages.1.content.0.tool_use.name: tool 'sing'"),
    ([user(text()), assistant(use("no spaces")), user(result())], "tool_use.name: String should match pattern"),
    ([user(text()), assistant(use(), use()), user(result())], "ids must be unique"),
    (
        [user(text()), assistant({"type": "thinking", "thinking": "I forged this.", "signature": "abc"}), user(text())],
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
]


@pytest.mark.parametrize(("parameters", "said"), PARAMETERS)
async def test_a_parameter_the_api_refuses_is_named(rehearsal, ask, parameters, said):
    twin = await rehearsal(PLAY)
    with pytest.raises(BadRequestError, match=said) as caught:
        await ask(twin, **parameters)
    assert caught.value.type == "invalid_request_error"
    assert twin.report()["refused"] == 1


@pytest.mark.parametrize(("messages", "said"), DIALOGUES)
async def test_a_conversation_the_api_refuses_is_explained(rehearsal, ask, messages, said):
    twin = await rehearsal(PLAY)
    with pytest.raises(BadRequestError, match=said):
        await ask(twin, messages, tools=TOOLS)


async def test_tool_calls_need_tools_in_the_request(rehearsal, ask):
    twin = await rehearsal(PLAY)
    with pytest.raises(BadRequestError, match="must define tools"):
        await ask(twin, [user(text()), assistant(use()), user(result())])


async def test_four_breakpoints_are_taken_and_the_top_level_one_counts(rehearsal, ask):
    twin = await rehearsal(PLAY)
    system = [text("Step: implement", cache_control=MARK), text("more", cache_control=MARK)]
    messages = [user(text(cache_control=MARK), text(cache_control=MARK))]
    await ask(twin, messages, system=system, tools=TOOLS)
    with pytest.raises(BadRequestError, match=r"A maximum of 4 blocks.*Found 5.*top-level"):
        await ask(twin, messages, system=system, tools=TOOLS, cache_control=MARK)
    with pytest.raises(BadRequestError, match=r"A maximum of 4 blocks.*Found 5"):
        await ask(twin, messages, system=system, tools=[{**TOOLS[0], "cache_control": MARK}])


async def test_an_hour_must_not_come_after_five_minutes(rehearsal, ask):
    twin = await rehearsal(PLAY)
    hour = {"type": "ephemeral", "ttl": "1h"}
    await ask(twin, [user(text(cache_control=hour))], tools=TOOLS, cache_control=MARK)
    with pytest.raises(BadRequestError, match="must not come after"):
        await ask(twin, [user(text(cache_control=MARK))], tools=TOOLS, cache_control=hour)


@pytest.mark.parametrize("thinking", [SHOWN, {"type": "adaptive"}, None])
async def test_thinking_goes_back_unchanged_or_not_at_all(rehearsal, ask, thinking):
    twin = await rehearsal(PLAY)
    more = {"tools": TOOLS} | ({"thinking": thinking} if thinking else {})
    first = await ask(twin, **more)
    blocks = [block.to_dict() for block in first.content]
    assert blocks[0]["thinking"] == ("Let me see." if thinking == SHOWN else "")
    answers = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"} for block in blocks if "id" in block
    ]
    assert (await ask(twin, [user(text()), assistant(*blocks), user(*answers)], **more)).content[0].text == "Done."
    changed = [{**blocks[0], "thinking": "Let me see"}, *blocks[1:]]
    with pytest.raises(BadRequestError, match="thinking blocks must be returned unmodified"):
        await ask(twin, [user(text()), assistant(*changed), user(*answers)], **more)
    with pytest.raises(BadRequestError, match="to the model that wrote them"):
        await ask(twin, [user(text()), assistant(*blocks), user(*answers)], **more, model="claude-opus-5-5")


async def test_thinking_can_be_switched_off(rehearsal, ask):
    twin = await rehearsal(PLAY)
    reply = await ask(twin, tools=TOOLS, thinking={"type": "disabled"})
    assert [block.type for block in reply.content] == ["text", "tool_use", "tool_use"]


async def test_an_answer_follows_the_schema_that_was_asked_for(rehearsal, ask):
    twin = await rehearsal(
        '[[line]]\nturn = 1\nlast = "good"\nanswer = { kind = "bug", n = 1 }\n'
        '[[line]]\nlast = "bad"\nanswer = { kind = "bugs", n = 1 }\n'
        '[[line]]\nlast = "missing"\nanswer = { n = 1 }\n'
        '[[line]]\nlast = "broken"\nsay = "no JSON"'
    )
    asked = schema(kind={"enum": ["bug", "feature"]}, n={"anyOf": [{"type": "integer"}, {"type": "null"}]})
    asked["output_config"]["format"]["schema"]["required"] = ["kind"]
    assert (await ask(twin, "good", **asked)).content[0].text == '{"kind": "bug", "n": 1}'
    with pytest.raises(BadRequestError, match=r"line 2 .* answer.kind is 'bugs', not one of 'bug', 'feature'"):
        await ask(twin, "bad", **asked)
    with pytest.raises(BadRequestError, match=r"answer\.kind is missing"):
        await ask(twin, "missing", **asked)
    assert (await ask(twin, "broken", **asked)).content[0].text == "no JSON"


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer"}, {"x-api-key": ""}, {"authorization": "Basic x"}])
async def test_a_request_without_a_key_is_unauthenticated(rehearsal, headers):
    twin = await rehearsal(PLAY)
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{twin.url}/v1/messages", headers=headers, json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")


@pytest.mark.parametrize(
    ("raw", "headers", "said"),
    [
        (b"{}", {}, "anthropic-version: header is required"),
        (b"{", {"anthropic-version": "2026-10-21"}, "not valid JSON"),
        (b"[]", {"anthropic-version": "2026-10-21"}, "must be a JSON object"),
        (b"{}", {"anthropic-version": "2026-10-21"}, "model: Field required"),
        (b'{"model": "m", "messages": []}', {"anthropic-version": "2026-10-21"}, "max_tokens: Field required"),
    ],
)
async def test_a_malformed_request_is_explained(rehearsal, raw, headers, said):
    twin = await rehearsal(PLAY)
    async with httpx2.AsyncClient() as client:
        answer = await client.post(f"{twin.url}/v1/messages", headers={"x-api-key": "k", **headers}, content=raw)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


async def test_an_unknown_path_is_not_found_in_the_apis_own_shape(rehearsal):
    twin = await rehearsal(PLAY)
    async with httpx2.AsyncClient() as client:
        for answer in (await client.get(f"{twin.url}/v1/messages"), await client.post(f"{twin.url}/v2")):
            assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


PLAY_OF_MEDIA = '[[line]]\nsay = "Seen."'


def png(width: int = 1280, height: int = 2000, size: int = 100_000) -> bytes:
    """As much of one as the API's rules look at."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(size)


def image(data: bytes | str, kind: str = "image/png") -> dict[str, Any]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": text}}


def look(*images: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*images, {"type": "text", "text": "Look."}]}]


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([{"type": "image", "source": {"type": "path"}}], "source: Input tag"),
        ([image(png(), "image/bmp")], "source.base64.media_type: Input should be one of"),
        ([image("no base64!")], "source.base64.data: Invalid base64 data"),
        ([image(png(), "image/jpeg")], "does not match the provided media type image/jpeg"),
        ([image(b"\x89PNG\r\n\x1a\n")], "Could not process image"),
        ([image(png(0, 5))], "Could not process image"),
        ([image(png(1280, 8001))], "max allowed size: 8000 pixels"),
        ([image(png(10, 2001, 10))] * 21, "max allowed size: 2000 pixels"),
        ([image(png(size=4_000_000))], "exceeds 5 MB maximum"),
    ],
)
async def test_a_picture_that_cannot_be_one_is_refused_with_its_place(rehearsal, ask, blocks, said):
    twin = await rehearsal(PLAY_OF_MEDIA)
    with pytest.raises(BadRequestError, match=r"messages\.0\.content\.\d+\.image\.") as refused:
        await ask(twin, look(*blocks))
    assert said in str(refused.value)


async def test_a_picture_is_charged_by_its_pixels(rehearsal, ask):
    twin = await rehearsal(PLAY_OF_MEDIA)
    without = (await ask(twin, look())).usage.input_tokens
    small = (await ask(twin, look(image(png(size=10))))).usage.input_tokens
    large = (await ask(twin, look(image(png(size=1_000_000))))).usage.input_tokens
    assert small == large == without + 3414


TOOLS_OF_BETAS: list[Json] = [{"name": "bash", "input_schema": {"type": "object"}, "defer_loading": True}]
USER: Json = {"role": "user", "content": "Step: implement"}
CASES: dict[str, tuple[Json, str]] = {
    "context-management-2025-06-27": ({"context_management": {"edits": []}}, "context_management: Extra inputs"),
    "advanced-tool-use-2025-11-20": ({"tools": TOOLS_OF_BETAS}, "tools.0.defer_loading: Extra inputs"),
    "thinking-display-updates-2026-08-18": (
        {"thinking": {"type": "adaptive", "display": "updates"}},
        "thinking.display: Input should be 'summarized' or 'omitted'",
    ),
    "thinking-binding-controls-2026-08-01": (
        {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}},
        "thinking.block_binding: Extra inputs",
    ),
    "per-turn-control-2026-07-01": (
        {"messages": [{**USER, "output_config": {"effort": "low"}}]},
        "messages.0.output_config: Extra inputs",
    ),
    "compact-2026-09-04": ({"compaction": {"type": "summarize"}}, "compaction: Extra inputs"),
    "mid-conversation-tool-changes-2026-07-01": (
        {"messages": [USER, {"role": "system", "content": "Another tool."}]},
        "messages.1.role: Input should be 'user' or 'assistant'",
    ),
}
HEADERS = {"x-api-key": "k", "anthropic-version": "2023-06-01"}


def asked(**more: Any) -> Json:
    return {"model": "m", "max_tokens": 9, "messages": [USER], **more}


@pytest.mark.parametrize("beta", CASES)
async def test_a_betas_parameter_is_taken_with_its_header_only(rehearsal, beta):
    twin = await rehearsal('[[line]]\nstep = "implement"\nturn = 1\nsay = "Yes."')
    parameter, complaint = CASES[beta]
    url = f"{twin.url}/v1/messages?beta=true"
    refused = await post(url, asked(**parameter), **HEADERS)
    assert (refused.status_code, complaint in refused.json()["error"]["message"]) == (400, True)
    taken = await post(url, asked(**parameter), **HEADERS, **{"anthropic-beta": f"another-2020-01-01,{beta}"})
    assert taken.status_code == 200, taken.text


async def test_a_summary_is_a_reply_of_one_block_that_no_line_answers(rehearsal):
    twin = await rehearsal('[[line]]\nstep = "review"\nsay = "Yes."')
    beta = {**HEADERS, "anthropic-beta": "compact-2026-09-04"}
    reply = (await post(f"{twin.url}/v1/messages", asked(compaction={"type": "summarize"}), **beta)).json()
    assert (reply["stop_reason"], [block["type"] for block in reply["content"]]) == ("compaction", ["compaction"])
    formatted = {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}
    body = asked(compaction={"type": "summarize"}, **formatted)
    refused = await post(f"{twin.url}/v1/messages", body, **beta)
    assert "cannot be combined" in refused.json()["error"]["message"]


async def test_counting_tokens_is_answered_and_is_no_call(rehearsal):
    twin = await rehearsal('[[line]]\nsay = "Yes."')
    body = {"model": "m", "messages": [{"role": "user", "content": "x" * 4000}]}
    counted = await post(f"{twin.url}/v1/messages/count_tokens", body, **HEADERS)
    assert 1000 <= counted.json()["input_tokens"] < 1100
    refused = await post(f"{twin.url}/v1/messages/count_tokens", {**body, "colour": "red"}, **HEADERS)
    assert refused.json()["error"]["message"] == "colour: Extra inputs are not permitted"
    assert twin.report()["calls"] == 0
