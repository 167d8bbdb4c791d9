"""A conversation: what is sent, cached and kept for an hour, and how it is made shorter."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from replies import OPENING, PLAN, finished, issue, reply, review, text, use

from perdure.adapters.agents.builtin.conversation import (
    LONG_S,
    Continue,
    RunTools,
    StepFinished,
    count_identical_calls,
    decide_next,
    expects_long_wait,
    known_file_versions,
    model_request_for,
    repetition_nudge,
    results_message,
    schema_for,
)
from perdure.adapters.agents.builtin.model import Model, max_cost_usd, parse_window
from perdure.adapters.agents.builtin.model_request import ModelRequest
from perdure.adapters.agents.builtin.opening import COMPACT_TURNS, COMPACTED, compact_transcript, is_window_full
from perdure.adapters.agents.builtin.user_messages import add_user_messages, texts_from_people
from perdure.models.budget.ledger import Usage
from perdure.models.checks.report import Review
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.steps import AGENTIC, Plan
from perdure.models.delivery.turn import Contract, Ending
from perdure.models.errors import BadInput
from perdure.models.phases import Step
from perdure.rehearsal.screenplay import Screenplay
from perdure.rehearsal.server import Rehearsal


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


@pytest.mark.parametrize("step", [Step.PLAN, Step.REVIEW])
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


def long(turns: int, said: str = "keep the old name") -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [OPENING]
    for n in range(turns):
        call = {"type": "tool_use", "id": f"t{n}", "name": "bash", "input": {"command": f"pytest {n}"}}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"exit code {n % 2}\nrun {n}"}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
        if n == 1:
            told = add_user_messages(told, [UserMessage(id="w", text=said)])
    return told


def _texts(message: dict[str, Any]) -> str:
    return json.dumps(message["content"])


def test_the_beginning_stays_and_the_change_the_last_failure_and_words_of_people_are_told() -> None:
    [fresh] = compact_transcript(long(10), "+ def sub")
    assert fresh["role"] == "user"
    assert fresh["content"][: len(OPENING["content"])] == OPENING["content"]
    for words in ("+ def sub", "run 9", "pytest 8", COMPACTED):
        assert words in _texts(fresh)
    assert "run 8" not in _texts(fresh), "it went well"
    assert texts_from_people([fresh]) == ("keep the old name",)


def test_a_summary_stands_in_place_of_the_turns_and_the_last_words_and_of_nothing_else() -> None:
    [fresh] = compact_transcript(long(10), "+ def sub", summary="All of it.")
    for words in ("All of it.", "+ def sub", "run 9", COMPACTED):
        assert words in _texts(fresh)
    assert "pytest 8" not in _texts(fresh)
    assert texts_from_people([fresh]) == ("keep the old name",)
    assert _texts(compact_transcript([fresh, *long(10)[1:]], "")[0]).count("All of it.") == 0, (
        "the next one has it in it"
    )


def test_made_shorter_again_it_has_each_word_once_and_no_more_than_before() -> None:
    [once] = compact_transcript(long(10), "diff 1")
    again = compact_transcript([once, *long(10, said="and the new one")[1:]], "diff 2")
    assert texts_from_people(again) == ("keep the old name", "and the new one")
    assert _texts(again[0]).count(COMPACTED) == 1
    assert "diff 1" not in _texts(again[0])
    assert compact_transcript(long(10), "diff 1") == [once]


def test_a_window_is_full_at_sixty_percent_and_never_twice_in_a_row() -> None:
    enough = Usage(input_tokens=100, cache_read_tokens=400, output_tokens=100)
    assert is_window_full(long(COMPACT_TURNS), enough, 1000)
    assert not is_window_full(long(COMPACT_TURNS), enough, 1001)
    assert not is_window_full(long(COMPACT_TURNS - 1), enough, 1000), "its opening fills it: that cannot be left out"
    assert not is_window_full(compact_transcript(long(50), ""), enough, 1000)


def test_a_window_of_a_variable_is_a_number_of_tokens() -> None:
    assert parse_window(None) is None
    assert parse_window("64000") == 64_000
    for wrong in ("0", "-1", "1e5", "many", "²"):
        with pytest.raises(BadInput):
            parse_window(wrong)


CONTRACT = Contract(
    delivery="d", repository="r", request="q", base="main", base_sha="4", branch="b", config=RepositoryConfig(version=1)
)


def said(call: dict[str, Any]) -> list[dict[str, Any]]:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}
    return [OPENING, {"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize(
    ("transcript", "tests_s", "long"),
    [
        ([OPENING], 0, False),
        ([OPENING], LONG_S, True),
        (said(use("bash", command="make")), LONG_S - 1, False),
        (said(use("bash", command="make", timeout=120)), 0, False),
        (said(use("bash", command="make", timeout=600)), 0, True),
        (said(use("bash", command="make", timeout="long")), 0, False),
        (said(use("ask", text="Which?")), 0, True),
        (said(use("assume", question="Which?")), 0, False),
    ],
)
def test_long_tests_long_commands_and_questions_to_people_are_long_waits(
    transcript: list[dict[str, Any]], tests_s: float, long: bool
) -> None:
    assert expects_long_wait(transcript, tests_s) is long


def marks(question: ModelRequest) -> set[str]:
    body = json.loads(question.body())
    blocks = [*body["system"], *(block for message in body["messages"] for block in message["content"])]
    found = [body["cache_control"], *(block["cache_control"] for block in blocks if "cache_control" in block)]
    return {mark.get("ttl", "5m") for mark in found}


def test_then_every_mark_is_for_an_hour_and_the_most_it_can_cost_is_more() -> None:
    quick = model_request_for(Step.IMPLEMENT, CONTRACT, [OPENING], tests_s=10)
    slow = model_request_for(Step.IMPLEMENT, CONTRACT, [OPENING], tests_s=600)
    assert (marks(quick), marks(slow)) == ({"5m"}, {"1h"})
    below, above = max_cost_usd(quick), max_cost_usd(slow)
    assert below is not None
    assert above is not None
    assert above > below
    assert quick.key() != slow.key()


async def test_what_was_sent_is_still_there_after_ten_minutes_and_what_it_cost_to_keep_is_counted() -> None:
    now = 0.0
    transcript = [{"role": "user", "content": [{"type": "text", "text": "words " * 2000}]}]
    async with Rehearsal(Screenplay.parse('[[line]]\nsay = "Done."'), clock=lambda: now) as twin:
        model = Model("sk-rehearsal-0123456789", twin.url)
        for tests_s, kept in ((600.0, True), (0.0, False)):
            question = model_request_for(Step.FIX_TESTS, CONTRACT, transcript, tests_s=tests_s)
            now += 4000
            first = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
            now += 600
            second = await model.ask(question, on_first_event=lambda: None, on_text=lambda text: None)
            assert first.usage.cache_write_1h_tokens == (first.usage.cache_write_tokens if kept else 0)
            assert (second.usage.cache_read_tokens > 0) is kept
        await model.aclose()
