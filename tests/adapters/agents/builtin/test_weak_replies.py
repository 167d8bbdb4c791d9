"""Replies that nothing can be done with, over real HTTP: asked again within a bound, ended by name, bought once."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_turns import CONTRACT, turns
from replies import PLAN
from test_model import answering, ask

from perdure.adapters.agents.builtin.conversation import StepFinished, model_request_for, opening_message
from perdure.adapters.agents.builtin.errors import ConversationTooLong
from perdure.adapters.agents.builtin.model import Model, load_api_library
from perdure.adapters.agents.builtin.tools import Toolbox, describe_reply
from perdure.models.delivery.turn import Ending
from perdure.models.errors import BadInput, ModelRefusesUs, ModelUnavailable
from perdure.models.phases import Step
from tests.weak_models import USAGE, WeakServer, call_block, in_order, stream, text_block, weak_server

Taken = Callable[..., Awaitable[tuple[StepFinished, WeakServer]]]

WRITE = json.dumps({"command": "echo '# unfinished' >> src/durations.py"})
HALF = stream(call_block("bash", WRITE), stop="tool_use")
DONE = stream(text_block("Accept fractions"))


@pytest.fixture
def taken(toolbox: Toolbox) -> Taken:
    """All turns of a step whose model's server answers so: how it ended, and what was asked."""

    async def take(*answers: str, step: Step = Step.IMPLEMENT) -> tuple[StepFinished, WeakServer]:
        async with weak_server(in_order(*answers)) as server:
            model = Model("sk-0123456789", server.url)
            done, count = await turns(model, toolbox, step)
            await model.aclose()
            assert len(server.bodies) == count
            return done, server

    return take


@pytest.mark.parametrize(
    "empty",
    [
        stream(),
        stream(text_block(" \n")),
        stream(text_block("…")),
        stream(text_block("<think>\nThe function is half done.\n</think>\n")),
        stream(text_block("<think>It is half d")),
        stream(text_block("I will now write the rest."), stop="tool_use"),
        stream(text_block(""), stop="stop_sequence"),
        stream(stop="pause_turn"),
    ],
)
async def test_a_reply_that_says_nothing_ends_nothing(taken: Taken, empty: str) -> None:
    done, _ = await taken(HALF, empty, empty, DONE)
    assert (done.outcome.ending, done.outcome.summary) == (Ending.DONE, "Accept fractions")
    done, server = await taken(HALF, empty)
    assert done.outcome.ending is Ending.FAILED
    assert "3" in done.outcome.summary
    assert done.outcome.summary.startswith("implement: the model")
    assert len(server.bodies) == 4


async def test_empty_replies_between_others_are_counted_anew(taken: Taken) -> None:
    done, _ = await taken(stream(), stream(), HALF, stream(), stream(), DONE)
    assert done.outcome.ending is Ending.DONE


@pytest.mark.parametrize(
    "cut",
    [
        stream(text_block("Let me think about it. " * 9), stop="max_tokens"),
        stream(text_block("Let me"), usage={"input_tokens": 40, "output_tokens": 16_000}),
        stream(text_block("Let me"), stop="tool_use", usage={"input_tokens": 40, "output_tokens": 99_000}),
    ],
)
async def test_replies_cut_off_twice_without_a_call_end_the_step(taken: Taken, cut: str) -> None:
    done, server = await taken(HALF, cut)
    assert done.outcome.ending is Ending.FAILED
    assert "length limit" in done.outcome.summary
    assert len(server.bodies) == 3


async def test_calls_that_are_cut_off_again_and_again_end_the_step_and_none_is_run(
    taken: Taken, toolbox: Toolbox
) -> None:
    cut = stream(call_block("bash", WRITE[:-9]), stop="tool_use", usage={"input_tokens": 40, "output_tokens": 16_000})
    done, server = await taken(cut)
    assert "length limit" in done.outcome.summary
    assert len(server.bodies) == 4
    assert "unfinished" not in (toolbox.worktree / "src/durations.py").read_text()


CALLS_AS_TEXT = [
    '<tool_call>\n{"name": "bash", "arguments": {"command": "pytest"}}\n</tool_call>',
    'I run the tests.\n```json\n{"name": "bash", "arguments": {"command": "pytest"}}\n```',
    '{"tool_calls": [{"type": "function", "function": {"name": "read", "arguments": "{}"}}]}',
    '[TOOL_CALLS][{"name": "bash", "arguments": {"command": "pytest"}}]',
    "<function=bash>\n<parameter=command>pytest</parameter>\n</function>",
    'Now:\n<invoke name="bash"><parameter name="command">pytest</parameter></invoke>',
    'Action: bash\nAction Input: {"command": "pytest"}',
    'bash(command="pytest")',
    '<think>hm</think>\n<|python_tag|>{"name": "bash", "parameters": {"command": "pytest"}}',
]


@pytest.mark.parametrize("said", CALLS_AS_TEXT)
async def test_a_tool_call_written_as_text_gets_one_word_and_then_a_clear_end(taken: Taken, said: str) -> None:
    done, server = await taken(stream(text_block(said)))
    assert done.outcome.ending is Ending.FAILED
    assert "does its server parse tool calls?" in done.outcome.summary
    assert len(server.bodies) == 2
    assert "written as text" in json.dumps(server.bodies[-1]["messages"])


@pytest.mark.parametrize(
    "said",
    [
        "Add sub",
        'Reads `{"name": "x"}` from JSON and calls bash(…) for each `<tool_call>` in it.',
        'The file now holds:\n{"name": "perdure", "version": "1.2"}',
        "Added read() and write().",
        "完成",
    ],
)
async def test_words_that_are_no_call_end_the_step(taken: Taken, said: str) -> None:
    done, server = await taken(stream(text_block(said)))
    assert done.outcome.ending is Ending.DONE
    assert len(server.bodies) == 1


UNUSABLE = [
    '{"command": "echo \\udc00"}',
    '{"command": "echo \\ud83d"}',
    '{"command": "echo hel',
    '{"command": "true", "timeout": 1e400}',
    '{"command": "true", "timeout": NaN}',
    '{"command": "echo \\u0000"}',
    '["true"]',
    "true",
    "'command': 'true'",
    "[" * 100_000,
    '{"command": "true", "timeout": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("raw", UNUSABLE)
async def test_a_call_that_cannot_be_used_comes_back_as_an_error_and_is_not_bought_again(
    taken: Taken, raw: str
) -> None:
    done, server = await taken(stream(call_block("bash", raw), stop="tool_use"), DONE)
    assert done.outcome.ending is Ending.DONE
    assert len(server.bodies) == 2, "asked once each"
    result = server.bodies[-1]["messages"][-1]["content"][0]
    assert result["is_error"], result
    assert isinstance(server.bodies[-1]["messages"][-2]["content"][0]["input"], dict)


@pytest.mark.parametrize("tool", ["bash", "read", "write", "edit", "grep", "glob"])
@pytest.mark.parametrize("value", ["a\0b", "x" * 70_000, 10**30, None, {"a": 1}])
async def test_no_value_of_an_input_breaks_a_turn(taken: Taken, tool: str, value: Any) -> None:
    given = dict.fromkeys(("command", "path", "content", "old", "new", "pattern"), value)
    for fields in (given, {"path": "a.txt"} | {name: given[name] for name in ("content", "pattern")}):
        done, _ = await taken(stream(call_block(tool, json.dumps(fields)), stop="tool_use"), DONE)
        assert done.outcome.ending is Ending.DONE


async def test_calls_with_the_same_id_or_none_get_one_each(taken: Taken) -> None:
    nameless = {**call_block("bash", '{"command": "true"}'), "id": None}
    same = [call_block("bash", '{"command": "true"}', "call_0"), call_block("bash", '{"command": "pwd"}', "call_0")]
    twice = stream(*same, nameless, {**nameless, "name": None}, stop="tool_use")
    done, server = await taken(twice, twice, DONE)
    assert done.outcome.ending is Ending.DONE
    messages = server.bodies[-1]["messages"]
    ids = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids) == 8
    results = [block["tool_use_id"] for message in messages for block in message["content"] if "tool_use_id" in block]
    assert results == ids


@pytest.mark.parametrize("said", ["half \udc00 a character", "pair \ud83d\ude00"])
async def test_half_a_character_in_a_text_is_replaced(taken: Taken, said: str) -> None:
    done, server = await taken(stream(text_block(said)))
    assert done.outcome.ending is Ending.DONE
    assert len(server.bodies) == 1


async def test_a_reply_without_usage_has_no_price(taken: Taken) -> None:
    async with weak_server(in_order(stream(text_block("Done"), usage={}))) as server:
        model = Model("sk-0123456789", server.url)
        reply, _ = await ask(model)
        await model.aclose()
    assert reply.usage.cost_usd is None, "unknown, never nothing"


PLANNED = json.dumps(PLAN)


@pytest.mark.parametrize(
    "said",
    [f"```json\n{PLANNED}\n```", f"Here is the plan:\n```\n{PLANNED}\n```\nDone.", f"<think>hm</think>\n{PLANNED}"],
)
async def test_one_fenced_object_is_an_answer(taken: Taken, said: str) -> None:
    done, server = await taken(stream(text_block(said)), step=Step.PLAN)
    assert (done.outcome.ending, done.outcome.summary) == (Ending.DONE, "1 task, 2 files")
    assert len(server.bodies) == 1


async def test_two_fenced_objects_are_none_and_a_second_try_is_told_schema_and_error(taken: Taken) -> None:
    twice = f"```json\n{PLANNED}\n```\n" * 2
    done, server = await taken(stream(text_block(twice)), stream(text_block(PLANNED)), step=Step.PLAN)
    assert done.outcome.ending is Ending.DONE
    told = server.bodies[-1]["messages"][-1]["content"][0]["text"]
    assert "not accepted" in told
    assert '"relevant_files"' in told.partition("follows this JSON Schema")[2]


async def test_the_schema_stands_in_the_prompt_where_a_server_is_only_asked_for_it() -> None:
    async with weak_server(in_order(stream(text_block(PLANNED)))) as server:
        for value, stands in (("asked", True), ("enforced", False), (None, False)):
            variables = {"ANTHROPIC_API_KEY": "sk-0123456789", "ANTHROPIC_BASE_URL": server.url}
            model = Model.from_environment(variables | ({"PERDURE_MODEL_SCHEMA": value} if value else {}))
            assert model is not None
            opening = opening_message(Step.PLAN, CONTRACT, {})
            request = model_request_for(Step.PLAN, CONTRACT, [opening], asks_schema=model.asks_schema)
            await ask(model, request)
            await model.aclose()
            assert ('"relevant_files"' in server.bodies[-1]["system"][0]["text"]) == stands
            assert server.bodies[-1]["output_config"]["format"]["schema"], "beside the field, not in place of it"
    with pytest.raises(BadInput, match="no way to ask"):
        Model.from_environment({"ANTHROPIC_API_KEY": "sk-0123456789", "PERDURE_MODEL_SCHEMA": "always"})


@pytest.mark.parametrize(
    ("said", "kind"),
    [("This is a bug.", "bug"), ("bug or feature?", "feature"), ("", "feature"), ('{"kind": "Chore"', "chore")],
)
async def test_a_classification_that_cannot_be_used_twice_is_a_kind_all_the_same(
    taken: Taken, said: str, kind: str
) -> None:
    done, server = await taken(stream(text_block(said)), step=Step.CLASSIFY)
    assert (done.outcome.ending, done.outcome.data) == (Ending.DONE, {"kind": kind})
    assert "not usable" in done.outcome.summary
    assert len(server.bodies) == 2


TOO_LONG = [
    (400, {"error": {"code": 400, "message": "the request exceeds the available context size", "n_ctx": 4096}}),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 21000"}},
    ),
    (400, {"message": "This model's maximum context length is 8192 tokens. However, you requested 16384 tokens"}),
    (500, {"type": "error", "error": {"type": "api_error", "message": "input exceeds the context window of n_ctx"}}),
    (413, {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}),
]


@pytest.mark.parametrize(("status", "error"), TOO_LONG)
async def test_an_error_about_the_context_is_one_that_a_shorter_conversation_mends(
    status: int, error: dict[str, Any]
) -> None:
    async with weak_server(lambda body: (status, json.dumps(error).encode())) as server:
        model = Model("sk-0123456789", server.url)
        with pytest.raises(ConversationTooLong, match="larger than"):
            await ask(model)
        await model.aclose()


@pytest.mark.parametrize(
    ("status", "body"),
    [(404, b'{"detail": "Not Found"}'), (404, b"<html>404</html>"), (405, b'{"error": "Method Not Allowed"}')],
)
async def test_a_404_that_names_no_model_says_where_the_address_ends(status: int, body: bytes) -> None:
    async with weak_server(lambda sent: (status, body)) as server:
        model = Model("sk-0123456789", f"{server.url}/v1".replace("http://", "http://me:pass-of-mine@"))
        with pytest.raises(ModelRefusesUs) as refused:
            await ask(model)
        await model.aclose()
    assert f"no Messages API at {server.url}/v1: it ends before /v1" in str(refused.value)
    assert "pass-of-mine" not in str(refused.value)


def test_no_log_line_names_a_host_that_was_not_called(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        load_api_library()
    assert [record.getMessage() for record in caplog.records if "anthropic.com" in record.getMessage()] == []


@pytest.mark.parametrize(
    ("said", "stop"),
    [
        (stream(text_block("Done"), stop="stop"), "end_turn"),
        (stream(text_block("Done"), stop="length"), "max_tokens"),
        (stream(call_block("bash", "{}"), stop="tool_calls"), "tool_use"),
        (stream(text_block("Done"), stop=None), "end_turn"),
        (stream(call_block("bash", "{}"), stop=None), "tool_use"),
    ],
)
async def test_a_whole_reply_is_kept_whatever_its_server_calls_its_end(said: str, stop: str) -> None:
    async with weak_server(in_order(said)) as server:
        model = Model("sk-0123456789", server.url)
        reply, _ = await ask(model)
        await model.aclose()
    assert reply.stop_reason == stop


async def test_a_reply_that_comes_whole_although_a_stream_was_requested_is_a_reply() -> None:
    content = [text_block("Look."), {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "true"}}]
    message = {"type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "content": content}
    message |= {"stop_reason": "tool_use", "usage": USAGE}
    for body, whole in ((json.dumps(message), True), ('{"object": "chat.completion"}', False), ("[]", False)):
        async with answering("200 OK", "application/json", body.encode()) as host:
            model = Model("sk-0123456789", f"http://{host}")
            if whole:
                reply, heard = await ask(model)
                assert (reply.message["content"], reply.stop_reason, heard) == (content, "tool_use", ["begun", "Look."])
                assert reply.usage.cost_usd
            else:
                with pytest.raises(ModelUnavailable, match="without a reply"):
                    await ask(model)
            await model.aclose()


def test_half_a_character_in_what_people_read_of_a_reply_can_be_encoded() -> None:
    call = {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "echo \udc00", "path": "\ud83d"}}
    for block in (call, text_block("half \udc00"), {**call, "name": "x\udc00", "input": {"path": "\ud83d"}}):
        assert describe_reply({"role": "assistant", "content": [block]}).encode()
