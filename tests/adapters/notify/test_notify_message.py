"""What is told: complete for programs, readable and harmless in a chat."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from perdure.adapters.notify.webhook import make_message
from perdure.models.budget.ledger import Spend
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import PullRequest, Reason, Status, StepRecord
from perdure.models.delivery.state import DeliveryState
from perdure.models.delivery.summary import result_of
from perdure.models.notice import NOTICE_RESULT_BYTES, Notice, notice_of, trial_notice
from tests.states import with_fields

NOW = datetime(2026, 1, 1, tzinfo=UTC)
UI = "http://127.0.0.1:8233/namespaces/default/workflows/d"


def notice(told: str = "waiting", *, title: str = "Add sub", **changes: Any) -> Notice:
    ways = ("approve", "reject", "edit_plan")
    asked = PendingDecision(
        gate=Gate.PLAN, target="1a2b", summary=f"approve the plan: {title}", since=NOW, options=ways
    )
    state = with_fields(DeliveryState(), title=title, spend=Spend(usd=0.126), **{"pending_decision": asked, **changes})
    request = DeliveryRequest(repository="https://forge.example/me/calc", request="Add sub")
    result = result_of(state, request, "d", "r") if told == "ended" else None
    return notice_of(
        told, state, request, id="notice-1", delivery="d", delivery_id="d", run_id="r", at=NOW, result=result
    )


def test_a_gate_is_told_with_every_way_to_decide_it() -> None:
    told = make_message(notice(), UI)
    assert (told.event, told.gate, told.target, told.version) == ("waiting", "plan", "1a2b", 1)
    assert [(way.update, way.payload.get("of"), way.command) for way in told.decisions] == [
        ("approve", "1a2b", "perdure approve d --of 1a2b"),
        ("reject", "1a2b", 'perdure reject d --of 1a2b --note "…"'),
        ("edit_plan", "1a2b", "perdure approve d --of 1a2b --edit"),
    ]
    assert told.text.splitlines() == [
        "*Waiting for you: approve the plan: Add sub*",
        '`perdure approve d --of 1a2b` · `perdure reject d --of 1a2b --note "…"` · '
        "`perdure approve d --of 1a2b --edit`",
        "d · https:\u200b//forge.example/me/calc · Add sub · $0.13",
        f"<{UI}|Web UI>",
    ]
    assert json.loads(told.model_dump_json()).keys() == type(told).model_json_schema()["properties"].keys()


def test_a_question_and_a_limit_are_events_of_their_own_and_a_reminder_says_that_it_is_one() -> None:
    question = Question(text="Which unit?", kind=QuestionKind.CHOICE, choices=("s", "ms"), why="callers rely on it")
    asked = PendingDecision(
        gate=Gate.QUESTION,
        target="q",
        summary="question: Which unit?",
        since=NOW,
        question=question,
        options=("answer",),
    )
    told = make_message(notice(pending_decision=asked))
    assert told.event == "question"
    assert told.question == question
    assert "Which unit?\n1. s\n2. ms\nIt matters because: callers rely on it" in told.text
    assert told.decisions[0].payload == {"of": "q", "answer": "s"}
    limit = PendingDecision(
        gate=Gate.BUDGET, target="1", summary="$5.00 are spent", since=NOW, options=("add_budget", "reject")
    )
    assert make_message(notice(pending_decision=limit)).event == "budget"
    again = make_message(notice("reminder", pending_decision=limit))
    assert (again.event, again.gate) == ("reminder", "budget")
    assert again.text.startswith("*Still waiting for you: $5.00 are spent*")
    for days, words in ((1, "for 1 day now"), (21, "for 21 days now")):
        told = make_message(
            notice("reminder", pending_decision=limit).model_copy(update={"at": NOW + timedelta(days=days)})
        )
        assert told.text.startswith(f"*Still waiting for you, {words}: $5.00")


def test_the_end_is_told_with_the_result_and_the_pull_request() -> None:
    pull = PullRequest(number=7, url="https://forge.example/me/calc/pull/7", title="Add sub")
    told = make_message(notice("ended", status=Status.DELIVERED, pull_request=pull), UI)
    assert told.result is not None
    assert (told.event, told.gate, told.decisions, told.result["status"]) == ("ended", None, (), "delivered")
    assert told.links.pull_request == pull.url
    assert told.text.splitlines()[0] == "*Delivered*"
    assert told.text.splitlines()[-1] == f"<{pull.url}|pull request #7> · <{UI}|Web UI>"
    red = make_message(notice("ended", status=Status.NOT_DELIVERED, reason=Reason.TESTS_RED, message="2 fail"))
    assert red.text.splitlines()[0] == "*Not delivered (tests red): 2 fail*"
    local = PullRequest(number=1, url="/srv/calc.git#pull/1", title="Add sub")
    assert make_message(notice("ended", status=Status.DELIVERED, pull_request=local)).links.pull_request is None


def test_what_others_wrote_calls_nobody_links_nowhere_and_stays_on_its_line() -> None:
    bad = "<!channel> <@U1> @here <https://evil.example|click> [x](https://evil.example) *a*\n*Delivered* `rm` &lt;"
    text = make_message(notice(title=bad), UI).text
    first, *_ = text.splitlines()
    assert len(text.splitlines()) == 4
    assert "<" not in first
    assert ">" not in first
    assert "@here" not in first
    assert "https://" not in first
    assert "](" not in first
    assert first.count("*") == 2
    assert "`" not in first
    assert "&lt;" in first, "the page shows the signs, escaped"
    assert text.count("<") == 1, "the only link is ours"


def test_a_workflow_id_that_somebody_chose_stays_one_word_of_the_command() -> None:
    given = notice().model_copy(update={"delivery_id": "a b`; rm -rf /"})
    assert make_message(given).decisions[0].command == "perdure approve 'a b`; rm -rf /' --of 1a2b"
    assert make_message(given).text.splitlines()[1].startswith("`perdure approve 'a b; rm -rf /' --of 1a2b`")


def test_the_longest_that_can_be_asked_is_shown_whole_by_a_chat() -> None:
    """Slack cuts a message after 40,000 characters; others have less."""
    long = "&<" * 20_000
    question = Question(text=long, kind=QuestionKind.CHOICE, choices=(long,) * 10, why=long)
    asked = PendingDecision(
        gate=Gate.QUESTION, target="q", summary=long, since=NOW, question=question, options=("answer",)
    )
    text = make_message(notice(pending_decision=asked, title=long), UI).text
    assert len(text) < 20_000
    assert "perdure answer d --of q" in text


def test_a_test_is_one_for_people_and_programs_and_about_no_delivery() -> None:
    told = make_message(trial_notice("notify-test-1", NOW))
    assert (told.event, told.decisions, told.result, told.gate) == ("test", (), None, None)
    assert told.text == "*A test: deliveries can be heard of here*\nNothing waits for you."


def test_an_address_of_a_pull_request_that_is_none_is_not_linked() -> None:
    pull = PullRequest(number=7, url="javascript:alert(1)", title="x")
    assert "javascript" not in make_message(notice("ended", status=Status.DELIVERED, pull_request=pull)).text


def test_a_long_result_leaves_its_steps_out() -> None:
    steps = [StepRecord(step="implement", summary="x" * 190) for _ in range(200)]
    result = notice("ended", status=Status.DELIVERED, steps=steps).result
    assert result is not None
    assert (result["steps"], result["status"]) == ([], "delivered")
    assert len(json.dumps(result)) < NOTICE_RESULT_BYTES
    assert len(notice("ended", status=Status.DELIVERED, steps=steps[:3]).result["steps"]) == 3  # type: ignore[index]
