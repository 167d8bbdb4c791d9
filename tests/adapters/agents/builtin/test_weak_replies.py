"""Replies that nothing can be done with, over real HTTP: asked again within a bound, ended by name, bought once."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agent_turns import turns

from perdure.adapters.agents.builtin.conversation import StepFinished
from perdure.adapters.agents.builtin.model import Model
from perdure.adapters.agents.builtin.tools import Toolbox
from perdure.models.delivery.turn import Ending
from perdure.models.phases import Step
from tests.weak_models import WeakServer, call_block, in_order, stream, text_block, weak_server

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
        from test_model import ask

        reply, _ = await ask(model)
        await model.aclose()
    assert reply.usage.cost_usd is None, "unknown, never nothing"
