"""What is put before people at each gate: named by exactly what it is, so that no answer is for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import DecisionRecord, Gate, GateVerdict, UserMessage
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import TestsStatus as Status
from perdure.models.delivery.state import DELIVERED_MESSAGE_BYTES, DeliveryState
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.delivery.work import TestVerdict as Red
from perdure.models.phases import Phase
from perdure.models.rules.gates import gate_question, gate_settings, red_tests_approval, red_tests_approval_text
from tests.states import prepared_workspace, with_fields

TREE = "f" * 40


def state(**facts: object) -> DeliveryState:
    verdict = Red(status=Status.RED, tree=TREE, summary="unit: exit code 1", undecidable=True)
    return with_fields(DeliveryState(), **{"verdict": verdict, "head": "a" * 40, "plan": "b" * 64, **facts})


def prepared(*phases: Phase) -> PreparedWorkspace:
    return prepared_workspace(branch="mine", phases=phases)


@pytest.mark.parametrize(
    ("gate", "counted", "of"),
    [
        (Gate.PLAN, {"plan_count": 1}, "bbbbbbbb"),
        (Gate.PLAN, {"plan_count": 2}, "bbbbbbbb-2"),
        (Gate.PLAN, {"plan_count": 1, "edit_count": 1}, "bbbbbbbb-2"),
        (Gate.TESTS, {}, "ffffffff"),
        (Gate.TESTS, {"requested_fixes": 2}, "ffffffff-2"),
        (Gate.PULL_REQUEST, {}, "aaaaaaaa"),
        (Gate.PULL_REQUEST, {"rejection_rounds": 1}, "aaaaaaaa-1"),
    ],
)
def test_what_is_made_anew_bears_another_name_though_it_be_the_same(
    gate: Gate, counted: dict[str, int], of: str
) -> None:
    assert gate_question(gate, state(**counted))[0] == of


def test_a_gate_stands_where_it_was_asked_for_and_there_is_something_behind_it() -> None:
    def gates(phases: tuple[str, ...], *, questions: bool = True, **asked: Any) -> tuple[str, ...]:
        config = RepositoryConfig.model_validate(
            {"version": 1, "gates": {"before": ["plan"]}, "delivery": {"questions": questions}}
        )
        request = DeliveryRequest.model_validate({"repository": "/r", "request": "Add sub", **asked})
        found: tuple[str, ...] = gate_settings(config, phases, request).gates
        return found

    both = ["pull_request"]
    assert gates(("plan", "test", "ship"), gates=both) == ("plan", "tests", "deaths", "pull_request")
    assert gates(("build", "test"), gates=both) == ("deaths",), (
        "nothing would be published that could be a draft instead"
    )
    assert gates(("review",), gates=both, push=True, branch="mine") == ("deaths", "pull_request")
    assert gates(("plan", "test", "ship"), questions=False) == ("plan",)


def test_only_an_approval_of_this_very_tree_lets_red_tests_through() -> None:
    yes = DecisionRecord(verdict=GateVerdict.APPROVED, by="Ada", note="the old one")
    assert red_tests_approval_text(state(decided={"tests:ffffffff": yes})) == "approved by Ada: the old one"
    assert (
        red_tests_approval_text(state(decided={"tests:ffffffff": DecisionRecord(verdict=GateVerdict.APPROVED)}))
        == "approved"
    )
    for decided in (
        {"tests:eeeeeeee": yes},
        {"pull_request:ffffffff": yes},
        {"tests:ffffffff": DecisionRecord(verdict=GateVerdict.EXPIRED)},
        {"tests:ffffffff": DecisionRecord(verdict=GateVerdict.REJECTED, note="new")},
    ):
        assert red_tests_approval(state(decided=decided)) is None
    assert red_tests_approval_text(state(decided={"tests:ffffffff": yes}, requested_fixes=1)) == ""
    told = Red(status=Status.RED, tree=TREE, summary="1 of 3 fail: test_sub")
    assert red_tests_approval_text(state(decided={"tests:ffffffff": yes}, verdict=told)) == "", (
        "run again, it is known to be new"
    )


def test_a_push_and_a_pull_request_are_asked_for_in_their_own_words() -> None:
    assert (
        gate_question(Gate.PULL_REQUEST, state(prepared=prepared(Phase.SHIP)))[1] == "publish aaaaaaa as a pull request"
    )
    words = gate_question(Gate.PULL_REQUEST, state(prepared=prepared(Phase.REVIEW)))[1]
    assert words == "publish aaaaaaa as the newest commit of mine"


def test_of_all_that_was_said_the_newest_words_are_remembered_as_many_as_a_conversation_begins_with() -> None:
    long = [UserMessage(id=str(number), text=str(number) * (DELIVERED_MESSAGE_BYTES // 4)) for number in range(6)]
    told = state()
    told.messages.add_delivered(*long[:2])
    told.messages.add_delivered(*long[2:])
    assert [said.id for said in told.messages.delivered] == ["2", "3", "4", "5"]
    told.messages.add_delivered()
    assert [said.id for said in told.messages.delivered] == ["2", "3", "4", "5"]
