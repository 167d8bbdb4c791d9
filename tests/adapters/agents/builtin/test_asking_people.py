"""A question is one, understandable and small, or a mistake that the model is told; nobody else is asked anything."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tool_calls import called, mistake, ok, run

from perdure.adapters.agents.builtin.tools import Toolbox, describe_reply, tool_definitions
from perdure.adapters.agents.builtin.tools.ask import (
    ASSUMPTION_CHARS,
    ASSUMPTION_RESULT,
    CHOICE_CHARS,
    QUESTION_CHARS,
    QUESTION_RESULT,
)
from perdure.models.delivery.decisions import Question, QuestionKind
from perdure.models.delivery.steps import AGENTIC, STEPS
from perdure.models.phases import Step

SIGN = {"text": "Which sign?", "kind": "choice", "choices": ["plus", "minus"], "why": "Callers depend on it."}


@pytest.mark.parametrize("step", AGENTIC)
def test_a_step_that_can_lack_a_requirement_asks_or_assumes_and_no_other_does(step: Step) -> None:
    asking, assuming = ({tool["name"] for tool in tool_definitions(step, questions=q)} for q in (True, False))
    assert ("ask" in asking, "assume" in assuming) == (STEPS[step].may_ask, STEPS[step].may_ask)
    assert not {"assume"} & asking
    assert not {"ask"} & assuming
    assert STEPS[step].may_ask is (step not in (Step.CLASSIFY, Step.REVIEW))
    names = [tool["name"] for tool in tool_definitions(step, questions=False)]
    assert names == sorted(names)


async def test_a_question_is_put_and_the_other_calls_of_the_reply_are_carried_out(toolbox: Toolbox) -> None:
    asked, written = await run(
        toolbox, called("ask", SIGN, "t1"), called("write", {"path": "n.txt", "content": "x"}, "t2")
    )
    assert asked == {"type": "tool_result", "tool_use_id": "t1", "content": QUESTION_RESULT}
    assert "is_error" not in written
    assert (toolbox.worktree / "n.txt").read_text() == "x"
    assert toolbox.question == Question(
        text="Which sign?", kind=QuestionKind.CHOICE, choices=("plus", "minus"), why="Callers depend on it."
    )


async def test_the_second_question_of_a_reply_is_told_to_wait_for_the_first(toolbox: Toolbox) -> None:
    other = {"text": "And the unit?", "kind": "text", "why": "x"}
    first, second = await run(toolbox, called("ask", SIGN, "t1"), called("ask", other, "t2"))
    assert "is_error" not in first
    assert second["is_error"]
    assert "ask this one after its answer" in second["content"]
    assert toolbox.question is not None
    assert toolbox.question.text == "Which sign?"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"choices": []}, "kind choice takes 2 to 10 choices, not 0"),
        ({"choices": ["one"]}, "2 to 10 choices, not 1"),
        ({"choices": [str(n) for n in range(11)]}, "2 to 10 choices, not 11"),
        ({"choices": ["Plus", " plus\n"]}, "must differ"),
        ({"choices": ["plus", " "]}, "none may be empty"),
        ({"choices": ["plus", "x" * (CHOICE_CHARS + 1)]}, f"at most {CHOICE_CHARS} characters"),
        ({"kind": "yes_no"}, "choices are for kind choice, not for yes_no"),
        ({"kind": "text"}, "choices are for kind choice, not for text"),
        ({"kind": "number"}, "kind: Input should be 'text', 'choice' or 'yes_no'"),
        ({"text": " \u202e?! "}, "asks nothing"),
        ({"text": "x" * (QUESTION_CHARS + 1)}, f"text: String should have at most {QUESTION_CHARS} characters"),
        ({"why": None}, "why: Input should be a valid string"),
    ],
)
async def test_a_question_that_nobody_could_answer_is_a_mistake_and_nobody_is_asked(
    toolbox: Toolbox, changed: dict[str, Any], words: str
) -> None:
    assert words in await mistake(toolbox, "ask", **(SIGN | changed))
    assert toolbox.question is None


async def test_after_a_mistake_the_next_question_of_the_reply_is_put(toolbox: Toolbox) -> None:
    wrong, right = await run(toolbox, called("ask", SIGN | {"choices": []}, "t1"), called("ask", SIGN, "t2"))
    assert wrong["is_error"]
    assert right["content"] == QUESTION_RESULT


async def test_what_people_see_of_a_question_is_plain_words_on_one_line(toolbox: Toolbox) -> None:
    await ok(toolbox, "ask", text="a\x1b[31m\nb\u202ec?", kind="yes_no", choices=[], why="d\n\ne\u2066")
    assert toolbox.question == Question(text="a bc?", kind=QuestionKind.YES_NO, why="d e")


async def test_the_longest_question_fits_into_a_turns_result(toolbox: Toolbox) -> None:
    wide = "\U0001f600"
    choices = [f"{n}{wide * (CHOICE_CHARS - 1)}" for n in range(10)]
    await ok(toolbox, "ask", text="q" + wide * (QUESTION_CHARS - 1), kind="choice", choices=choices, why=wide * 500)
    assert toolbox.question is not None
    assert len(toolbox.question.model_dump_json().encode()) < 12 * 1024


async def test_where_nobody_is_asked_an_assumption_is_recorded_and_ask_is_no_tool(toolbox: Toolbox) -> None:
    toolbox.questions = False
    given = {"question": "Which sign?", "assumption": "Minus, as in add.\x07", "why": "the tests of add use it"}
    assert await ok(toolbox, "assume", **given) == ASSUMPTION_RESULT
    assert toolbox.assumptions == ["Which sign? Minus, as in add (the tests of add use it)"]
    assert "there is no tool 'ask' in this step; there are: assume, bash" in await mistake(toolbox, "ask", **SIGN)
    assert "say what you would have asked" in await mistake(toolbox, "assume", question="?", assumption="x", why="")
    toolbox.questions = True
    assert "there is no tool 'assume'" in await mistake(toolbox, "assume", **given)
    assert toolbox.question is None


async def test_more_assumptions_than_a_turn_reports_are_refused_and_none_is_cut_off(toolbox: Toolbox) -> None:
    toolbox.questions = False
    calls = [
        called("assume", {"question": "q" * 160, "assumption": f"{n}" * 200, "why": ""}, f"t{n}") for n in range(3)
    ]
    results = await run(toolbox, *calls)
    assert [result.get("is_error", False) for result in results] == [False, True, True]
    assert "in your next one" in results[1]["content"]
    assert len("\n".join(toolbox.assumptions)) <= ASSUMPTION_CHARS


async def test_the_longest_assumption_is_recorded_whole_or_visibly_shortened(toolbox: Toolbox) -> None:
    toolbox.questions = False
    await ok(toolbox, "assume", question="q" * 900, assumption="a" * 900, why="w" * 900)
    (said,) = toolbox.assumptions
    assert len(said) <= ASSUMPTION_CHARS
    assert said.count("…") == 3


def test_a_turn_that_asks_says_so() -> None:
    assert describe_reply({"role": "assistant", "content": [called("ask", SIGN)]}) == "ask Which sign?"
    assert describe_reply({"role": "assistant", "content": [called("assume", {"question": "Sign?"})]}) == "assume Sign?"


def test_the_tools_read_the_same_for_every_delivery() -> None:
    told = json.dumps([tool_definitions(Step.PLAN, questions=q) for q in (True, False)])
    assert told == json.dumps([tool_definitions(Step.PLAN, questions=q) for q in (True, False)])
    assert "$ref" not in told
