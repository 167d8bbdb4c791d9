"""The findings of an experiment, in the words that every face shares, at the gate and in the Web UI."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.models.checks.report import Promise
from perdure.models.checks.verdict_text import changed_promises, diff_lines, experiment_notes, label_of
from perdure.models.delivery.decisions import Gate
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import StepRecord
from perdure.models.delivery.state import BuildingState, DeliveryState, ReviewingState, TestingState
from perdure.models.delivery.summary import progress_of, result_of
from perdure.models.rules.gates import gate_question
from perdure.models.webui.details import render_delivery_details
from tests.tried import ADD, LINE, QUOTE, REVIEW, VERDICT, ZERO, report, tried


def test_a_promise_shows_both_versions_of_its_test_and_the_words_that_ask_for_it() -> None:
    first, second = changed_promises(report(), REVIEW)
    assert (first.name, first.justified, first.justification) == (
        ADD,
        True,
        f"the request says “{QUOTE}” (that is the wish)",
    )
    assert first.versions == ("  def test_add():", "-     assert add(1, 2) == 3", "+     assert add(1, 2) == -1")
    assert (second.name, second.justified) == (ZERO, False)
    assert second.justification == "nothing in the request asks for it (nobody asked)"
    assert second.versions == ("  the test is the same: what it uses has changed",)
    assert [one.justification for one in changed_promises(report())] == ["not reviewed"] * 2
    assert changed_promises(None) == ()


def test_what_does_not_decide_is_a_note() -> None:
    told = experiment_notes(tried(lost=("test_old",), steered=("pyproject.toml",)))
    assert "test_old" in told[0]
    assert "pyproject.toml" in told[1]


def test_a_person_at_the_gate_reads_which_promises_change_and_of_none_nothing_is_said() -> None:
    state = DeliveryState(building=BuildingState(head="a" * 40), testing=TestingState(verdict=VERDICT))
    assert gate_question(Gate.PULL_REQUEST, state)[1] == (
        "publish aaaaaaa as a pull request, with 2 changed promises: test_add, test_zero"
    )
    state.testing.verdict = VERDICT.model_copy(update={"promises": 0, "promised": ()})
    assert gate_question(Gate.PULL_REQUEST, state)[1] == "publish aaaaaaa as a pull request"
    state.testing.verdict = VERDICT.model_copy(update={"promises": 7})
    assert gate_question(Gate.PULL_REQUEST, state)[1].endswith(
        "with 7 changed promises: test_add, test_zero and 5 more"
    )


def test_details_result_and_progress_tell_of_the_experiment() -> None:
    request = DeliveryRequest(repository="r", request="Add sub")
    state = DeliveryState(
        building=BuildingState(head="a" * 40),
        testing=TestingState(verdict=VERDICT),
        reviewing=ReviewingState(review="e" * 64),
    )
    state.steps = [StepRecord(step="run_tests", status="done", summary=VERDICT.summary)]
    text = render_delivery_details(state, request)
    assert LINE in text.replace("&#47;", "/")
    assert f"- changed promises: `{ADD}`, `{ZERO}`" in text
    result = result_of(state, request, "d", "r")
    assert (result.tests.experiment, result.tests.promises, result.receipt.experiment) == (LINE, 2, LINE)
    assert progress_of(state, request, "d", "r").review == "e" * 64


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_two_versions_and_any_name_are_lines(before: str, after: str) -> None:
    for line in diff_lines(Promise(name=before, before=before, after=after)):
        assert line[0] in "+- …"
        assert "\n" not in line
    assert label_of(before) == label_of(label_of(before))
    assert "\n" not in label_of(before)
