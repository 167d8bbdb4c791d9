"""What the details of a delivery that waits end with: to be copied and sent, whatever an agent wrote."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from test_details import NASTY, PREPARED, REQUEST

from perdure.adapters.agents.builtin.tools.ask import QUESTION_CHARS, QUESTION_CHOICES, QUESTION_WHY_CHARS
from perdure.models.delivery.decisions import Gate, PendingDecision, Question, QuestionKind
from perdure.models.delivery.result import Status, StepRecord
from perdure.models.delivery.state import DeliveryState, GatesState, TurnsState
from perdure.models.phases import Phase
from perdure.models.rules.inbox import Inbox
from perdure.models.webui.details import DETAILS_BYTES, render_delivery_details
from tests.states import with_fields

SINCE = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
PLAN = PendingDecision(gate=Gate.PLAN, target="beef", summary="approve the plan: Add sub", since=SINCE)
PLAN = PLAN.model_copy(update={"options": ("approve", "reject", "edit_plan")})


def asking(text: str, kind: QuestionKind, choices: tuple[str, ...] = (), why: str = "") -> PendingDecision:
    question = Question(text=text, kind=kind, choices=choices, why=why)
    words = f"question: {text}"[:200]
    return PendingDecision(
        gate=Gate.QUESTION, target="plan-1-2-c", summary=words, since=SINCE, question=question, options=("answer",)
    )


def waiting(asked: PendingDecision, **more: object) -> DeliveryState:
    state = DeliveryState(prepared=PREPARED, phase=Phase.PLAN, waiting=asked.summary)
    return with_fields(state, plan="f00d", pending_decision=asked, **more)


def section(text: str) -> str:
    """The last section; there is one of this name, and nothing that somebody wrote can begin another."""
    assert text.count("\n### Waiting for you\n") == 1
    return text.partition("\n### Waiting for you\n")[2]


def jsons(text: str) -> list[dict[str, str]]:
    """Every paragraph that is to be copied, as the Web UI shows it: a code span has no escapes."""
    return [json.loads(line[1:-1]) for line in text.splitlines() if re.fullmatch(r"`\{[^`]*\}`", line)]


def test_a_waiting_delivery_says_so_first_and_ends_with_the_updates_to_send() -> None:
    state = waiting(PLAN)
    text = render_delivery_details(state, REQUEST)
    assert text.startswith("### Waiting for you: approve the plan\\: Add sub\n")
    assert "**Waiting:**" not in text
    end = section(text)
    assert "**Since:** 2026-01-02 03\\:04 UTC" in end
    assert jsons(end) == [{"of": "beef"}, {"of": "beef", "note": "why, and what instead"}]
    assert end.index("`approve`") < end.index("`reject`") < end.index("`edit_plan` needs a terminal")
    for name, said in zip(("approve", "reject"), jsons(end), strict=True):
        Inbox(state).check_decision(name, said)
    late = PLAN.model_copy(update={"expires": datetime(2026, 1, 9, tzinfo=UTC)})
    assert "**Ends by itself:** 2026-01-09 00\\:00 UTC" in render_delivery_details(waiting(late), REQUEST)


def test_what_is_decided_can_be_read_in_the_web_ui() -> None:
    end = section(render_delivery_details(waiting(PLAN), REQUEST, "calc-1"))
    assert "type `read`, queue `q`, data" in end
    assert jsons(end)[0] == {"delivery": "calc-1", "what": "artifact", "checkpoint": "f00d"}
    publish = PLAN.model_copy(update={"gate": Gate.PULL_REQUEST})
    assert jsons(section(render_delivery_details(waiting(publish), REQUEST, "calc-1")))[0] == {
        "delivery": "calc-1",
        "what": "diff",
    }
    budget = PLAN.model_copy(update={"gate": Gate.BUDGET, "options": ("add_budget", "reject")})
    assert jsons(section(render_delivery_details(waiting(budget), REQUEST, "calc-1")))[0] == {"of": "beef", "usd": 5}


def test_every_choice_of_a_question_is_there_to_be_copied_and_counts() -> None:
    choices = ("wrap | around", "raise `Größe`")
    asked = asking("Which?", QuestionKind.CHOICE, choices, why="It shows.")
    text = render_delivery_details(waiting(asked), REQUEST)
    assert text.startswith("### Waiting for you: an agent asks\n")
    assert text.count("Which?") == 1
    assert "**It matters:** It shows." in text
    assert "Größe" in text
    sent = jsons(section(text))
    assert [said["answer"] for said in sent] == list(choices)
    for said in sent:
        Inbox(waiting(asked)).check_decision("answer", said)
    yes = jsons(section(render_delivery_details(waiting(asking("Really?", QuestionKind.YES_NO)), REQUEST)))
    assert [said["answer"] for said in yes] == ["yes", "no"]
    assert (
        jsons(section(render_delivery_details(waiting(asking("What?", QuestionKind.TEXT)), REQUEST)))[0]["answer"]
        == "your answer"
    )


def test_a_held_delivery_says_why_and_how_it_goes_on() -> None:
    state = DeliveryState(prepared=PREPARED, gates=GatesState(hold_reason="held: lunch"), waiting="held: lunch")
    text = render_delivery_details(state, REQUEST)
    assert text.startswith("### Held\\: lunch\n")
    assert "`resume`" in section(text)
    assert jsons(section(text)) == [{}]
    both = render_delivery_details(waiting(PLAN, hold_reason="held: lunch"), REQUEST)
    assert both.startswith("### Waiting for you: approve")
    assert "\n- held\\: lunch\n" in both


def test_a_delivery_that_has_ended_asks_for_nothing_and_tells_what_was_assumed() -> None:
    state = DeliveryState(
        prepared=PREPARED,
        status=Status.DELIVERED,
        gates=GatesState(hold_reason="held"),
        turns=TurnsState(assumptions=("a", "b", "c", "d")),
    )
    text = render_delivery_details(state, REQUEST)
    assert text.startswith("### Delivered\n")
    assert "Waiting for you" not in text
    assert re.findall(r"^- assumed: (\w)$", text, re.M) == ["b", "c", "d"]


@given(NASTY, st.lists(NASTY, max_size=4), NASTY)
def test_what_an_agent_asks_stays_words_and_its_json_stays_json(text: str, choices: list[str], why: str) -> None:
    asked = asking(text, QuestionKind.CHOICE, tuple(choices), why)
    end = section(render_delivery_details(waiting(asked), REQUEST))
    assert [said["answer"] for said in jsons(end)] == choices
    for line in end.splitlines():
        assert line == "" or line.startswith(("**", "`", "Copy "))
        assert line.isprintable()
    assert sum(line.startswith("#") for line in end.splitlines()) == 0


def test_details_fit_whatever_is_in_them_and_the_way_to_answer_is_never_cut_off() -> None:
    wide = "\U0001f300"  # four bytes
    asked = asking(
        wide * QUESTION_CHARS,
        QuestionKind.CHOICE,
        tuple(f"{n}" + wide * 99 for n in range(QUESTION_CHOICES)),
        wide * 500,
    )
    assert len(asked.question.why if asked.question else "") == QUESTION_WHY_CHARS
    state = waiting(asked, message=wide * 900, notes=(wide * 300,) * 20, assumptions=(wide * 500,) * 40)
    state.steps = [StepRecord(step="implement", summary=wide * 100)] * 60
    request = REQUEST.model_copy(update={"request": wide * 9000, "repository": "/" + wide * 900})
    text = render_delivery_details(state, request, "d" * 80)
    assert len(text.encode()) <= DETAILS_BYTES
    assert len(jsons(section(text))) == QUESTION_CHOICES
    assert "implement" in text
