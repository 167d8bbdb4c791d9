from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from replies import OPENING, PLAN, finished, issue, reply, review, text, use

from perdure.adapters.agents.builtin.conversation import (
    Continue,
    RunTools,
    StepFinished,
    count_identical_calls,
    decide_next,
    known_file_versions,
    repetition_nudge,
    results_message,
    schema_for,
)
from perdure.models.checks.report import Review
from perdure.models.delivery.steps import AGENTIC, Plan
from perdure.models.delivery.turn import Ending
from perdure.models.phases import Step


@pytest.mark.parametrize("step", [Step.CLASSIFY, Step.PLAN, Step.REVIEW])
def test_schemas_are_what_the_library_would_make_of_them(step: Step) -> None:
    schema = schema_for(step)
    assert schema is not None
    assert anthropic.transform_schema(schema) == schema


def test_every_object_of_a_schema_is_closed_and_all_its_fields_are_required() -> None:
    def objects(value: Any) -> list[dict[str, Any]]:
        found = [value] if isinstance(value, dict) and value.get("type") == "object" else []
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return found + [one for part in inner for one in objects(part)]

    for step in (Step.CLASSIFY, Step.PLAN, Step.REVIEW):
        for one in objects(schema_for(step)):
            assert one["additionalProperties"] is False
            assert set(one["required"]) == set(one["properties"])


def test_a_class_is_one_of_three_words() -> None:
    outcome = finished(Step.CLASSIFY, reply(text('{"kind": "feature", "reason": "new"}'))).outcome
    assert (outcome.summary, outcome.data, outcome.ending) == ("feature", {"kind": "feature"}, Ending.DONE)


def test_a_plan_is_kept_whole_and_its_facts_are_small() -> None:
    done = finished(Step.PLAN, reply({"type": "thinking", "thinking": "{", "signature": "s"}, text(json.dumps(PLAN))))
    assert done.outcome.summary == "1 task, 2 files"
    words = "p\ns\n1. t (a.py)\ncheck: run it"
    facts = {"title": "Accept compound durations", "tasks": 1, "files": 2, "words": words}
    assert done.outcome.data == facts | {"touches": ["a.py", "b.py"]}
    assert done.document is not None
    assert Plan.model_validate_json(done.document).tasks[0].title == "t"


def test_a_title_from_a_model_is_one_short_plain_line() -> None:
    plan = PLAN | {"title": "Accept\n\x1b[31m compound " + "x" * 100}
    title = finished(Step.PLAN, reply(text(json.dumps(plan)))).outcome.data["title"]
    assert len(title) <= 60
    assert title.isprintable()


@pytest.mark.parametrize(
    ("severities", "summary"),
    [
        ([], "no issues"),
        (["blocker", "tech_debt"], "1 blocker, 1 tech debt"),
        (["blocker", "blocker", "skippable", "tech_debt", "tech_debt"], "2 blockers, 2 tech debt, 1 skippable"),
    ],
)
def test_a_review_is_counted_by_severity(severities: list[str], summary: str) -> None:
    said = review(*(issue(severity, f"t{number}") for number, severity in enumerate(severities)))
    done = finished(Step.REVIEW, reply(text(said)))
    assert done.outcome.summary == summary
    assert done.outcome.data == {name: severities.count(name) for name in ("blocker", "tech_debt", "skippable")}
    assert done.document is not None
    assert len(Review.model_validate_json(done.document).issues) == len(severities)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Step.CLASSIFY, '{"kind": "epic", "reason": "big"}'),
        (Step.CLASSIFY, "feature"),
        (Step.CLASSIFY, ""),
        (Step.PLAN, json.dumps(PLAN | {"tasks": []})),
        (Step.PLAN, json.dumps(PLAN | {"surprise": 1})),
        (Step.REVIEW, '{"summary": "fine", "issues": [{"severity": "none"}]}'),
        (Step.REVIEW, "LGTM"),
        (Step.REVIEW, ""),
        (Step.REVIEW, "[]"),
        (Step.REVIEW, '{"summary": "fine"}'),
        (Step.REVIEW, '{"summary": "fine", "issues": [{"title": "t", "descr'),
        (Step.REVIEW, review(issue("blocker")) + review()),
        (Step.REVIEW, review(issue("harmless"))),
        (Step.REVIEW, review(issue("blocker", title=" "))),
        (Step.REVIEW, review(issue("blocker", description="…"))),
        (Step.PLAN, ""),
        (Step.PLAN, json.dumps(PLAN)[:100]),
        (Step.PLAN, json.dumps(PLAN | {"title": "\x07"})),
        (Step.CLASSIFY, '{"kind": "bug"'),
        (Step.CLASSIFY, '{"kind": ["bug", "feature"], "reason": "both"}'),
    ],
)
def test_an_answer_that_does_not_validate_is_asked_for_once_more_and_then_is_invalid(step: Step, said: str) -> None:
    first = decide_next(step, reply(text(said)), [OPENING])
    assert isinstance(first, Continue)
    assert "not accepted" in first.user_message["content"][0]["text"]
    transcript = [OPENING, reply(text(said)).message, first.user_message]
    second = decide_next(step, reply(text(said)), transcript)
    assert isinstance(second, StepFinished)
    assert second.outcome.ending is Ending.INVALID
    assert second.outcome.summary.startswith(f"{step}: "), (
        "a person reads which answer it was, and what is wrong with it"
    )
    assert len(second.outcome.summary) > len(step) + 5
    assert second.document is None


@pytest.mark.parametrize("step", [Step.CLASSIFY, Step.PLAN, Step.REVIEW])
def test_an_answer_cut_off_twice_is_invalid(step: Step) -> None:
    cut = reply(text('{"'), stop="max_tokens")
    asked = decide_next(step, cut, [OPENING])
    assert isinstance(asked, Continue)
    done = decide_next(step, cut, [OPENING, cut.message, asked.user_message])
    assert isinstance(done, StepFinished)
    assert (done.outcome.ending, done.outcome.data, done.document) == (Ending.INVALID, {}, None)


def test_a_re_ask_names_what_is_wrong() -> None:
    asked = decide_next(Step.CLASSIFY, reply(text('{"kind": "epic", "reason": "big"}')), [OPENING])
    assert isinstance(asked, Continue)
    assert "kind: Input should be 'bug', 'feature' or 'chore'" in asked.user_message["content"][0]["text"]


def test_an_answer_mended_after_a_re_ask_counts() -> None:
    asked = decide_next(Step.CLASSIFY, reply(text("hm")), [OPENING])
    assert isinstance(asked, Continue)
    transcript = [OPENING, reply(text("hm")).message, asked.user_message]
    done = decide_next(Step.CLASSIFY, reply(text('{"kind": "bug", "reason": "r"}')), transcript)
    assert isinstance(done, StepFinished)
    assert done.outcome.data == {"kind": "bug"}


def test_writing_steps_end_with_the_first_line_of_what_was_said() -> None:
    outcome = finished(Step.IMPLEMENT, reply(text("**Accept compound durations**\n\nParsed by regex."))).outcome
    assert outcome.summary == "Accept compound durations"
    assert finished(Step.IMPLEMENT, reply()).outcome.summary == "done"


@pytest.mark.parametrize("stop", ["tool_use", "end_turn", "pause_turn"])
def test_tool_calls_are_run_whatever_the_reply_is_called(stop: str) -> None:
    assert isinstance(decide_next(Step.IMPLEMENT, reply(use(), stop=stop), [OPENING]), RunTools)


def test_a_reply_cut_off_in_a_tool_call_runs_none_of_its_calls() -> None:
    said = reply(use(number=1, command="a"), use(number=2, comma=""), stop="max_tokens")
    found = decide_next(Step.IMPLEMENT, said, [OPENING])
    assert isinstance(found, Continue)
    results = found.user_message["content"]
    assert [result["tool_use_id"] for result in results] == ["toolu_1", "toolu_2"]
    assert all(result["is_error"] and "cut off" in result["content"] for result in results)


def test_a_text_cut_off_goes_on_and_an_answer_cut_off_is_asked_for_again() -> None:
    cut = reply(text('{"kind": "feat'), stop="max_tokens")
    goes_on = decide_next(Step.IMPLEMENT, cut, [OPENING])
    again = decide_next(Step.CLASSIFY, cut, [OPENING])
    assert isinstance(goes_on, Continue)
    assert isinstance(again, Continue)
    assert "Go on" in goes_on.user_message["content"][0]["text"]
    assert "shorter" in again.user_message["content"][0]["text"]


@pytest.mark.parametrize("step", AGENTIC)
@pytest.mark.parametrize(
    ("stop", "ending"),
    [
        ("refusal", Ending.REFUSED),
        ("model_context_window_exceeded", Ending.CONTEXT),
        ("some_new_reason", Ending.INVALID),
    ],
)
def test_other_ends_are_typed_results_and_never_a_pass(step: Step, stop: str, ending: Ending) -> None:
    said = text('{"kind": "bug", "reason": "r"}')
    done = finished(step, reply(said, stop=stop, detail="cyber"))
    assert done.outcome.ending is ending
    assert done.outcome.data == {}
    if ending is Ending.REFUSED:
        assert "cyber" in done.outcome.summary


def same(times: int) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [OPENING]
    for number in range(times):
        messages.append(reply(use(number=number, command="ls", timeout=1)).message)
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}"}]})
    return messages


def test_the_same_call_in_a_row_is_counted_whatever_the_order_of_its_input() -> None:
    other_order = {"role": "assistant", "content": [{**use(number=9), "input": {"timeout": 1, "command": "ls"}}]}
    assert count_identical_calls([*same(2), other_order]) == 3
    assert count_identical_calls([*same(2), reply(use(command="pwd")).message]) == 1
    assert count_identical_calls([OPENING]) == 0


def test_a_model_that_repeats_itself_is_told_so_and_then_stopped() -> None:
    third = [*same(2), reply(use(number=7, command="ls", timeout=1)).message]
    results = [{"type": "tool_result", "tool_use_id": "toolu_7", "content": "x"}]
    told = results_message(results, third)
    assert [block["type"] for block in told["content"]] == ["tool_result", "text"]
    assert "3 times in a row" in told["content"][1]["text"]
    assert repetition_nudge(2) is None
    ends = decide_next(Step.IMPLEMENT, reply(use(number=8, command="ls", timeout=1), stop="tool_use"), same(4))
    assert isinstance(ends, StepFinished)
    assert ends.outcome.ending is Ending.LOOPING
    goes_on = decide_next(Step.IMPLEMENT, reply(use(number=8, command="ls", timeout=1), stop="tool_use"), same(3))
    assert isinstance(goes_on, RunTools)


def test_only_file_tools_that_succeeded_say_which_version_is_known() -> None:
    uses = [
        use("read", 1, path="a.py"),
        use("bash", 2, command="echo"),
        use("edit", 3, path="b.py"),
        use("read", 4, path="c"),
    ]
    contents = [
        "a: b.py: lines 1-2 of 2 · version aaaaaaaaaaaa\n     1\tx: y · version ffffffffffff",
        "b.py: edited at line 1 · version bbbbbbbbbbbb",
        "b.py: 0 matches of old. · version cccccccccccc",
        "c: a binary file",
    ]
    results = [
        {"type": "tool_result", "tool_use_id": one["id"], "content": content, **({"is_error": True} if i == 2 else {})}
        for i, (one, content) in enumerate(zip(uses, contents, strict=True))
    ]
    transcript = [OPENING, reply(*uses).message, {"role": "user", "content": results}]
    assert known_file_versions(transcript) == {"a: b.py": "aaaaaaaaaaaa"}
