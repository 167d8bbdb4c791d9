"""Decisions of people, in result and progress; and the plan, beside the delivery in the Web UI."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from test_details import NASTY, PREPARED, REQUEST

from perdure.models.delivery.decisions import DecisionRecord, GateVerdict
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import DeliveryState, GatesState, PlanningState
from perdure.models.delivery.steps import Plan, Task
from perdure.models.delivery.summary import DECISIONS_SHOWN, UNREAD_CHARS, decisions_of, progress_of, result_of
from perdure.models.limits import PLAN_SHOWN_BYTES
from perdure.models.webui.details import DETAILS_BYTES, render_delivery_details
from tests.states import with_fields

PLAN = Plan(
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
    assert PLAN.to_text(1000).splitlines() == [
        "There is no sub.", "People want it.", "Write it.", "1. Write sub (calc.py)", "check: sub(3, 2) is 1",
    ]  # fmt: skip
    long = PLAN.model_copy(update={"solution": "ä" * 5000}).to_text(PLAN_SHOWN_BYTES)
    assert PLAN_SHOWN_BYTES - 2 <= len(long.encode()) <= PLAN_SHOWN_BYTES + 3
    assert long.endswith("ä…")


def test_the_web_ui_has_the_plan_in_the_details() -> None:
    state = DeliveryState(
        prepared=PREPARED, planning=PlanningState(plan="f00d", plan_text=PLAN.to_text(PLAN_SHOWN_BYTES))
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
