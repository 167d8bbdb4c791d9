"""Lines answer by what the conversation contains."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import BadRequestError

TOOLS: list[dict[str, Any]] = [
    {"name": name, "input_schema": {"type": "object", "properties": {}}} for name in ("bash", "edit")
]

STORY = """
title = "story"
[[line]]
step = "implement"
last = 'exit code: [1-9]'
say = "It fails."
[[line]]
step = "implement"
turn = 1
say = "First."
use = [
  { tool = "edit", input = { path = "src/a.py", lines = [1, 2] } },
  { tool = "bash", input = { command = "pytest" } },
]
[[line]]
step = "implement"
contains = ["src/a.py", "2 passed"]
lacks = ["rejected"]
say = "Done."
[[line]]
step = "review"
contains = ["blocker fixed"]
say = "Clean."
"""


def turn(message: Any, *results: str) -> list[dict[str, Any]]:
    uses = [block.id for block in message.content if block.type == "tool_use"]
    answers = [
        {"type": "tool_result", "tool_use_id": use, "content": text} for use, text in zip(uses, results, strict=True)
    ]
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [block.to_dict() for block in message.content]},
        {"role": "user", "content": answers},
    ]


async def test_a_line_answers_by_step_turn_texts_inputs_and_results(rehearsal, ask):
    twin = await rehearsal(STORY)
    first = await ask(twin, tools=TOOLS)
    assert [block.type for block in first.content] == ["text", "tool_use", "tool_use"]
    assert first.content[1].input == {"path": "src/a.py", "lines": [1, 2]}
    assert first.stop_reason == "tool_use"
    green = await ask(twin, turn(first, "edited", "2 passed"), tools=TOOLS)
    red = await ask(twin, turn(first, "edited", "2 passed\nexit code: 1"), tools=TOOLS)
    assert (green.content[0].text, green.stop_reason) == ("Done.", "end_turn")
    assert red.content[0].text == "It fails."
    assert [(call.step, call.turn, call.line) for call in twin.calls] == [
        ("implement", 1, 2),
        ("implement", 2, 3),
        ("implement", 2, 1),
    ]


async def test_a_line_answers_as_often_as_it_matches(rehearsal, ask):
    twin = await rehearsal(STORY)
    assert len({(await ask(twin, tools=TOOLS)).to_json() for _ in range(3)}) == 1
    assert twin.report()["repeated"] == 2


async def test_the_system_prompt_is_not_part_of_the_conversation(rehearsal, ask):
    twin = await rehearsal(STORY)
    with pytest.raises(BadRequestError):
        await ask(twin, system="Step: review\n\nblocker fixed")


async def test_when_no_line_matches_the_error_names_what_was_asked_and_the_nearest_lines(rehearsal, ask):
    twin = await rehearsal(STORY)
    first = await ask(twin, tools=TOOLS)
    with pytest.raises(BadRequestError) as caught:
        await ask(twin, turn(first, "edited", "rejected"), tools=TOOLS)
    said = caught.value.api_message
    assert "no line of 'story' answers step implement, turn 2, last message 'edited\\nrejected'" in said
    assert "line 2 (screenplay:7): its turn is 1" in said
    assert "line 3 (screenplay:15): '2 passed' does not occur; 'rejected' occurs" in said
    assert "line 4" not in said
    assert caught.value.type == "invalid_request_error"
    assert twin.report()["refused"] == 1


async def test_a_request_without_a_step_is_told_how_to_name_one(rehearsal, ask):
    twin = await rehearsal(STORY)
    with pytest.raises(BadRequestError, match="no line `Step: <step>` in the system prompt"):
        await ask(twin, system="Be brief.")


async def test_a_line_that_uses_a_tool_nobody_offered_is_named(rehearsal, ask):
    twin = await rehearsal('[[line]]\nuse = [{ tool = "edti" }]')
    with pytest.raises(BadRequestError, match=r"line 1 .*'edti'.*bash, edit \(did you mean edit\?\).*unknown = true"):
        await ask(twin, tools=TOOLS)


async def test_a_made_up_tool_call_may_stand_in_the_conversation(rehearsal, ask):
    twin = await rehearsal(
        '[[line]]\nturn = 1\nuse = [{ tool = "sing", unknown = true }]\n[[line]]\nturn = 2\nsay = "Oh."'
    )
    first = await ask(twin, tools=TOOLS)
    assert (await ask(twin, turn(first, "no such tool"), tools=TOOLS)).content[0].text == "Oh."


REMINDED = "Not tested since your last edit: run `pytest` first."


def reminded(said: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": said},
        {"role": "user", "content": REMINDED},
    ]


async def test_a_model_that_is_reminded_of_the_tests_says_again_what_it_said(rehearsal, ask):
    twin = await rehearsal('[[line]]\nturn = 1\nsay = "Done."\n[[line]]\nturn = 2\nsay = "Something else."')
    again = await ask(twin, reminded("Done."))
    assert again.content[0].text == "Done."


async def test_a_line_that_is_about_the_reminder_answers_it(rehearsal, ask):
    script = '[[line]]\nturn = 1\nsay = "Done."\n[[line]]\nlast = "^Not tested"\nuse = [{ tool = "bash", input = {} }]'
    twin = await rehearsal(script)
    heeded = await ask(twin, reminded("Done."), tools=TOOLS)
    assert [block.type for block in heeded.content] == ["tool_use"]
