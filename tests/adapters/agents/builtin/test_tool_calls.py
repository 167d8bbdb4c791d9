from __future__ import annotations

import json
from typing import Any

import pytest
from tool_calls import called, run

from perdure.adapters.agents.builtin.tools import Toolbox, describe_reply, tool_definitions
from perdure.models.delivery.steps import AGENTIC, WRITERS
from perdure.models.phases import Step


@pytest.mark.parametrize("step", AGENTIC)
def test_every_step_has_its_tools_sorted_and_closed(step: Step) -> None:
    names = [tool["name"] for tool in tool_definitions(step)]
    assert names == sorted(names)
    assert json.dumps(tool_definitions(step)) == json.dumps(tool_definitions(step))
    for tool in tool_definitions(step):
        assert set(tool) == {"name", "description", "input_schema"}
        assert tool["input_schema"]["additionalProperties"] is False
    assert ("write" in names) is (step in WRITERS)
    assert bool(names) is (step is not Step.CLASSIFY)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("browse", {"url": "http://x"}, "there is no tool 'browse' in this step; there are: ask, bash, edit"),
        ("read", {}, "path: Field required"),
        ("read", {"path": "a", "lines": 3}, "lines: Extra inputs are not permitted"),
        ("read", {"path": 7}, "path: Input should be a valid string"),
        ("read", {"path": "a", "offset": 0}, "offset: Input should be greater than or equal to 1"),
        ("bash", {"command": "true", "timeout": -1}, "timeout"),
        ("read", "a.py", "input"),
        ("edit", None, "input"),
        ("write", [], "input"),
    ],
)
async def test_a_wrong_call_is_answered_with_what_is_wrong(toolbox: Toolbox, name: str, given: Any, words: str) -> None:
    (result,) = await run(toolbox, called(name, given))
    assert result["is_error"] is True
    assert words in result["content"]


@pytest.mark.parametrize("step", [Step.PLAN, Step.REVIEW])
@pytest.mark.parametrize("name", ["write", "edit"])
async def test_reading_steps_have_no_writing_tools(toolbox: Toolbox, step: Step, name: str) -> None:
    (result,) = await run(toolbox, called(name, {"path": "x", "content": "y"}), step=step)
    assert "there is no tool" in result["content"]
    assert not (toolbox.worktree / "x").exists()


async def test_every_call_is_answered_once_in_order_and_a_mistake_does_not_stop_the_next(toolbox: Toolbox) -> None:
    results = await run(
        toolbox,
        {"type": "text", "text": "Let me see."},
        called("write", {"path": "n.txt", "content": "x"}, "t1"),
        called("nonsense", {}, "t2"),
        called("edit", {"path": "n.txt", "old": "x", "new": "y"}, "t3"),
        called("bash", {"command": "cat n.txt"}, "t4"),
    )
    assert [result["tool_use_id"] for result in results] == ["t1", "t2", "t3", "t4"]
    assert [result.get("is_error", False) for result in results] == [False, True, False, False]
    assert results[3]["content"] == "exit code 0\ny"


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([called("edit", {"path": "src/x.py"}), called("bash", {"command": "pytest -q"})], "edit src/x.py, pytest -q"),
        ([called("grep", {"pattern": "a"}), called("glob", {"pattern": "*.py"})], "grep a, glob *.py"),
        ([called("bash", {"command": "a \\\n  b\x1b[31m\u202e c"})], "a \\ b c"),
        ([called("bash", "not an object"), called("read", {})], "bash, read"),
        ([{"type": "text", "text": "## Done\nmore"}], "Done"),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}], "no answer"),
    ],
)
def test_a_turn_is_described_in_a_few_plain_words(blocks: list[dict[str, Any]], words: str) -> None:
    assert describe_reply({"role": "assistant", "content": blocks}) == words


def test_a_description_has_at_most_80_characters() -> None:
    words = describe_reply({"role": "assistant", "content": [called("bash", {"command": "x" * 500})] * 3})
    assert len(words) <= 80
    assert words.isprintable()
