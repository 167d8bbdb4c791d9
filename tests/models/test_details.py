"""Lists, Web UI and clients show a state truly: its newest commit, decisions, the text to paste."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.builtin.tools.ask import QUESTION_CHARS, QUESTION_CHOICES, QUESTION_WHY_CHARS
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.decisions import DecisionRecord, Gate, GateVerdict, PendingDecision, Question, QuestionKind
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import PullRequest, Reason, ReviewResult, Status, StepRecord, TestsStatus
from perdure.models.delivery.state import (
    BuildingState,
    DeliveryState,
    GatesState,
    PlanningState,
    PublishingState,
    ReviewingState,
    SpendingState,
    TestingState,
    TurnsState,
)
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.summary import (
    DECISIONS_SHOWN,
    UNREAD_CHARS,
    decisions_of,
    next_commands,
    progress_of,
    result_of,
    usage_of,
)
from perdure.models.delivery.work import ChangeSize, TestVerdict
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.phases import ALL_PHASES, Phase, Step
from perdure.models.rules.inbox import Inbox
from perdure.models.webui import captions
from perdure.models.webui.captions import format_change, format_waiting, parse_waiting
from perdure.models.webui.details import DETAILS_BYTES, render_delivery_details
from perdure.models.webui.markdown import escape_line
from perdure.text import one_line
from tests.states import prepared_workspace, with_fields

REQUEST = DeliveryRequest(repository="/r", request="Add sub", base="main", budget_usd=2)
PREPARED = prepared_workspace(phases=ALL_PHASES)
NASTY = st.text(st.one_of(st.sampled_from("|`*_[]<>!-\\\n\t\x1b\u202e\x00"), st.characters()), max_size=300)


@given(NASTY, st.integers(1, 200))
def test_a_cell_is_one_line_without_markup_or_control_characters(text: str, limit: int) -> None:
    safe = escape_line(text, limit)
    assert all(c.isprintable() for c in safe)
    bare = safe.replace("&#47;", "/")
    assert not re.search(r"[`*_\[\]<>|{}()#~^$&:!]|--|^-", re.sub(r"\\.", "x", bare))
    assert re.sub(r"\\(.)", r"\1", bare) == one_line(text, limit)


@given(NASTY, NASTY, NASTY)
def test_the_table_keeps_its_columns_whatever_a_model_said(summary: str, message: str, branch: str) -> None:
    prepared = PREPARED.model_copy(update={"branch": branch})
    state = DeliveryState(
        prepared=prepared,
        message=message,
        waiting=message,
        steps=[StepRecord(step="run_tests", attempt=2, summary=summary, duration_s=2, turns=3, commit="c" * 40)],
    )
    text = render_delivery_details(state, REQUEST)
    row = text.splitlines()[-1]
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 5
    assert "<!--" not in text
    assert sum(line.startswith("- branch `") for line in text.splitlines()) == 1


def test_details_name_the_issue_and_its_title_once_it_is_known() -> None:
    request = DeliveryRequest(repository="/r", issue="#12")
    state = DeliveryState()
    assert "\n- issue #12\n" in render_delivery_details(state, request)
    state.prepared = with_fields(PREPARED, issue=12, title="Accept | <b>1h30m</b>\n- branch `main`")
    assert "\n- issue #12: Accept \\| \\<b\\>1h30m\\</b\\> - branch \\`main\\`\n" in render_delivery_details(
        state, request
    )
    assert "- request:" not in render_delivery_details(state, request)
    assert "\n- request: Add sub\n" in render_delivery_details(state, REQUEST)
    assert "- issue" not in render_delivery_details(state, REQUEST)


def test_details_say_where_it_stands_and_what_it_cost() -> None:
    state = DeliveryState()
    assert render_delivery_details(state, REQUEST).startswith("### Preparing")
    state.phase = Phase.BUILD
    assert render_delivery_details(state, REQUEST).startswith("### Running: build")
    state.status, state.reason = Status.NOT_DELIVERED, Reason.TESTS_RED
    state.prepared, state.building.head = PREPARED, "h" * 40
    state.spending.spend, state.budget.extra_usd = Spend(usd=None, at_risk_usd=0.1), 2.5
    state.publishing.pull_request = PullRequest(number=3, url="file:///r", title="t")
    state.steps = [*[StepRecord(step="implement")] * 59, StepRecord(step="run_tests")]
    text = render_delivery_details(state, REQUEST)
    assert text.startswith("### Not delivered: tests red")
    assert "- branch `perdure/d` at `hhhhhhh`" in text
    # Two bare dollar signs on one line would be a formula to the Web UI.
    cheap = StepRecord(step="plan", turns=1, cost_usd=0.001, duration_s=188)
    rows = render_delivery_details(DeliveryState(steps=[cheap]), REQUEST).splitlines()
    assert rows[-1].endswith("| 3m\u00a008s,\u00a0\\<\\$0.01 |"), "as elsewhere, without a place to break the line"
    assert "- spent unknown of \\$7.50, up to \\$0.10 more for replies cut off" in text
    assert "[#3](file:///r)" in text
    assert text.count("| implement\u00a0") == 11
    assert "| run tests\u00a0" in text.splitlines()[-1]
    assert "| 48 before\u00a0" in text


def test_details_say_who_decided_what_in_which_words_the_newest_ones() -> None:
    made = DecisionRecord(verdict=GateVerdict.APPROVED, by="Ada", note="as *we* said")
    rest = {f"budget:{number}": DecisionRecord(verdict=GateVerdict.REJECTED) for number in range(2)}
    state = DeliveryState(gates=GatesState(decided={"plan:old": made, "pull_request:1a2b3c4d": made, **rest}))
    lines = render_delivery_details(state, REQUEST).splitlines()
    assert "- pull request 1a2b3c4d: approved by Ada: as \\*we\\* said" in lines
    assert "- budget 1: rejected" in lines
    assert not any("plan old" in line for line in lines)


def test_a_pull_request_in_a_directory_is_named_and_not_linked() -> None:
    pull = PullRequest(number=3, url="/srv/my `repos/calc.git#pull/3", title="t")
    state = DeliveryState(prepared=PREPARED, publishing=PublishingState(pull_request=pull), status=Status.DELIVERED)
    text = render_delivery_details(state, REQUEST)
    assert "- pull request #3 in `/srv/my repos/calc.git`: `perdure pulls 3` there" in text
    assert next_commands(state, "d")[0] == "perdure pulls 3 --repo '/srv/my `repos/calc.git'"
    away = pull.model_copy(update={"url": "https://github.com/me/calc/pull/3"})
    assert next_commands(with_fields(state, pull_request=away), "d")[0] == "perdure diff d"


def test_the_timeline_says_what_an_activity_is_about() -> None:
    state = DeliveryState(prepared=PREPARED, building=BuildingState(head="h" * 40))
    assert captions.step_caption(Step.PREPARE, 1, DeliveryState()) == "workspace, setup, tests on the base"
    assert captions.step_caption(Step.RUN_TESTS, 2, state) == "round 2 · on a clean checkout of hhhhhhh"
    assert captions.step_caption(Step.COMMIT, 1, state, "Read\nsigns") == "Read signs"
    assert captions.step_caption(Step.OPEN_PULL_REQUEST, 1, state) == "perdure/d → main"
    assert captions.turn_caption(1, 1, "", "claude") == "turn 1 · claude"
    assert (
        captions.turn_caption(2, 3, "turn 2 · pytest -q · twice", "claude")
        == "round 2 · turn 3, after pytest -q · twice"
    )
    assert len(captions.turn_caption(1, 2, "turn 1 · " + "x" * 200, "claude")) == 66
    assert captions.wait_caption("approve the plan:\nAdd sub") == "waiting for you: approve the plan: Add sub"


def test_a_result_says_what_exists_and_a_progress_what_is_going_on() -> None:
    early = DeliveryState(status=Status.CANCELLED)
    result = result_of(early, REQUEST, "d", "run")
    assert (result.branch, result.base, result.base_sha, result.next) == (None, "main", None, ("perdure retry d",))
    assert progress_of(DeliveryState(), REQUEST, "d", "run").budget_usd == 2
    state = DeliveryState(
        prepared=PREPARED,
        building=BuildingState(head="h"),
        turns=TurnsState(checkpoint="c"),
        status=Status.DELIVERED,
        testing=TestingState(verdict=TestVerdict(status=TestsStatus.GREEN, tree="t", passed=4, failed=0, report="f00")),
        reviewing=ReviewingState(review="ba5", result=ReviewResult(blockers=0)),
    )
    result = result_of(state, REQUEST, "d", "run")
    assert (result.branch, result.head_sha) == ("perdure/d", "h")
    assert (result.tests.tree_sha, result.tests.report) == ("t", "artifact:sha256:f00")
    assert result.review.report == "artifact:sha256:ba5"
    assert result.next == ("perdure diff d", "perdure show d")
    progress = progress_of(state, REQUEST, "d", "run")
    assert (progress.queue, progress.budget_usd, progress.status) == ("q", 5.0, "delivered")
    assert next_commands(DeliveryState(prepared=PREPARED), "d")[-1] == "perdure retry d"


def test_a_rewind_hides_no_money_and_an_unknown_price_is_not_zero() -> None:
    state = DeliveryState(spending=SpendingState(usage=Usage(cost_usd=0.1), spend=Spend(usd=0.5, at_risk_usd=0.2)))
    assert usage_of(state).cost_usd == 0.5
    assert usage_of(state).at_risk_usd == 0.2
    state.spending.spend = Spend(usd=None, known_usd=0.4)
    assert usage_of(state).cost_usd is None


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


PLAN_OF_DECISIONS = Plan(
    title="Add sub",
    problem="There is no sub.\n\nPeople want it.",
    solution="Write it.",
    relevant_files=["calc.py"],
    tasks=[Task(title="Write sub", details="Beside add.", files=["calc.py"])],
    validation=["sub(3, 2) is 1"],
)


def test_who_decided_what_is_part_of_the_result_and_of_the_progress() -> None:
    decided = {
        "plan:1a2b": DecisionRecord(verdict=GateVerdict.REJECTED, by="ada", note="with\ntypes " + "x" * 300),
        "added:7": DecisionRecord(verdict=GateVerdict.APPROVED, by="bob"),
        "pull_request:3c4d": DecisionRecord(verdict=GateVerdict.APPROVED, by="ada"),
    }
    state = DeliveryState(prepared=PREPARED, gates=GatesState(decided=decided))
    made = decisions_of(state)
    assert [(one.gate, one.target, one.verdict, one.by) for one in made] == [
        ("plan", "1a2b", "rejected", "ada"),
        ("budget", "", "raised", "bob"),
        ("pull_request", "3c4d", "approved", "ada"),
    ]
    assert made[0].note.startswith("with types")
    assert len(made[0].note) == UNREAD_CHARS
    assert result_of(state, REQUEST, "d", "r").decisions == made
    assert progress_of(state, REQUEST, "d", "r").decisions == list(made)
    many = {f"question:{n}": DecisionRecord(verdict=GateVerdict.ANSWERED) for n in range(3 * DECISIONS_SHOWN)}
    kept = decisions_of(with_fields(state, decided=many))
    assert [one.target for one in kept] == [str(n) for n in range(2 * DECISIONS_SHOWN, 3 * DECISIONS_SHOWN)]


def test_a_plan_reads_as_plain_lines_within_its_limit() -> None:
    assert PLAN_OF_DECISIONS.to_text(1000).splitlines() == [
        "There is no sub.", "People want it.", "Write it.", "1. Write sub (calc.py)", "check: sub(3, 2) is 1",
    ]  # fmt: skip
    long = PLAN_OF_DECISIONS.model_copy(update={"solution": "ä" * 5000}).to_text(PLAN_SHOWN_BYTES)
    assert PLAN_SHOWN_BYTES - 2 <= len(long.encode()) <= PLAN_SHOWN_BYTES + 3
    assert long.endswith("ä…")


def test_the_web_ui_has_the_plan_in_the_details() -> None:
    state = DeliveryState(
        prepared=PREPARED, planning=PlanningState(plan="f00d", plan_text=PLAN_OF_DECISIONS.to_text(PLAN_SHOWN_BYTES))
    )
    section = render_delivery_details(state, REQUEST).partition("\n### Plan\n")[2]
    assert section.splitlines()[:3] == ["There is no sub.  ", "People want it.  ", "Write it.  "]
    own = REQUEST.model_copy(update={"plan": "# Mine\n\nWrite it well"})
    assert "Write it well" in render_delivery_details(DeliveryState(prepared=PREPARED), own).partition("### Plan")[2]
    assert "### Plan" not in render_delivery_details(DeliveryState(prepared=PREPARED), REQUEST)


@given(st.lists(NASTY, max_size=12).map("\n".join))
def test_whatever_a_plan_says_the_details_stay_within_their_limit_and_it_begins_no_section(words: str) -> None:
    steps = [StepRecord(step="implement", status="done", summary=words[:200]) for _ in range(30)]
    text = render_delivery_details(
        DeliveryState(prepared=PREPARED, planning=PlanningState(plan_text=words), steps=steps), REQUEST
    )
    assert len(text.encode()) <= DETAILS_BYTES
    assert sum(line.startswith("#") for line in text.splitlines()) <= 2


SIZE = ChangeSize(files=3, added=120, deleted=14)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def verdict(status: TestsStatus = TestsStatus.GREEN, **counts: int) -> TestVerdict:
    return TestVerdict(status=status, tree="t", **counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (None, ""),
        (verdict(passed=455, failed=0), " · tests 455/455"),
        (verdict(TestsStatus.RED, passed=453, failed=2), " · tests 453/455"),
        (verdict(TestsStatus.RED), " · tests red"),
        (verdict(TestsStatus.NONE), ""),
    ],
)
def test_the_size_is_said_with_the_tests_of_that_commit(tests: TestVerdict | None, words: str) -> None:
    state = DeliveryState(
        building=BuildingState(head="h1", change_size=SIZE), testing=TestingState(tested_commit="h1", verdict=tests)
    )
    assert format_change(state) == "+120 −14 in 3 files" + words
    state.building.head = "h2"
    assert format_change(state) == "+120 −14 in 3 files", "a fix that nobody has tested yet is not green"
    assert format_change(DeliveryState(testing=TestingState(verdict=tests))) == ""


@given(st.text(max_size=400).filter(str.strip))
def test_whatever_it_waits_for_fits_and_is_read_with_its_moment(words: str) -> None:
    value = format_waiting(words, NOON)
    assert len(value) < 255
    shown, since = parse_waiting(value)
    assert since == NOON
    assert "\n" not in shown


def test_words_of_others_are_words_without_a_moment() -> None:
    assert parse_waiting("") == ("", None)
    assert parse_waiting("held · since yesterday") == ("held · since yesterday", None)
    assert format_waiting("", NOON) == ""
