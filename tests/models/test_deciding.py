"""Each gate puts its question before people, and only an answer that fits it counts."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.decisions import (
    AddBudget,
    DecisionRecord,
    Gate,
    GateVerdict,
    PendingDecision,
    Question,
    QuestionKind,
    UserMessage,
    parse_input,
)
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import Status, StepRecord, TestsStatus
from perdure.models.delivery.state import DELIVERED_MESSAGE_BYTES, DeliveryState, GatesState
from perdure.models.delivery.work import PreparedWorkspace
from perdure.models.delivery.work import TestVerdict as Red
from perdure.models.errors import InvalidRequest
from perdure.models.limits import NOTES_KEPT
from perdure.models.notice import decision_options
from perdure.models.phases import Phase
from perdure.models.rules.gates import gate_question, gate_settings, red_tests_approval, red_tests_approval_text
from perdure.models.rules.inbox import (
    DECISION_MODELS,
    DECISIONS_KEPT,
    MESSAGE_IDS_KEPT,
    UNREAD_BYTES_KEPT,
    Inbox,
    NotCounted,
    record_decision,
)
from perdure.render.decision_lines import commands_for_decision
from tests.costs import examples
from tests.states import prepared_workspace, with_fields

SINCE = datetime(2026, 11, 21, tzinfo=UTC)
PLAN = PendingDecision(
    gate=Gate.PLAN, target="abcd1234", summary="approve the plan", since=SINCE, options=("approve", "reject")
)
BUDGET = PendingDecision(
    gate=Gate.BUDGET, target="1", summary="$5 spent", since=SINCE, options=("add_budget", "reject")
)
PRICE = BUDGET.model_copy(update={"options": ("approve", "reject")})


def asking(asked: PendingDecision | None = PLAN) -> Inbox:
    return Inbox(DeliveryState(gates=GatesState(pending_decision=asked)))


def question(kind: QuestionKind, *choices: str) -> PendingDecision:
    what = Question(text="Which?", kind=kind, choices=choices)
    return PendingDecision(
        gate=Gate.QUESTION, target="q", summary="Which?", since=SINCE, question=what, options=("answer",)
    )


OFS = st.sampled_from(["", "abcd1234", "beef", "2222", "1"])
SAID = st.fixed_dictionaries(
    {},
    optional={
        "of": OFS,
        "gate": st.sampled_from(["plan", "budget", "pull_request", "nonsense"]),
        "note": st.sampled_from(["", "no", "x" * 9000]),
        "answer": st.sampled_from(["", "yes", "A"]),
        "plan": st.sampled_from(["f" * 64, "short"]),
        "usd": st.sampled_from([0, 5, -1, 1e9]),
        "id": st.sampled_from(["", "a", "b"]),
        "unknown": st.just(1),
    },
)
SENT = st.tuples(st.sampled_from(["update", "signal", "next"]), st.sampled_from([*DECISION_MODELS, "nonsense"]), SAID)


@given(st.lists(SENT, max_size=25))
@settings(max_examples=examples(300), deadline=None)
def test_any_sequence_of_messages_counts_each_gate_once_and_for_what_it_names(sent: list[Any]) -> None:
    """`next`: the delivery goes on to another gate, as far as it was decided."""
    gates = [
        PendingDecision(
            gate=Gate.PLAN, target=of, summary="plan", since=SINCE, options=("approve", "reject", "edit_plan")
        )
        for of in ("abcd1234", "beef", "2222")
    ]
    state = DeliveryState(gates=GatesState(pending_decision=gates.pop(0)))
    inbox, counted = Inbox(state), dict[str, DecisionRecord]()
    for way, name, said in sent:
        before = state.model_copy()
        if way == "next":
            if state.gates.pending_decision is not None and state.gates.pending_decision.key in state.gates.decided:
                state.gates.pending_decision = gates.pop(0) if gates else None
        elif way == "signal":
            inbox.receive_decision({"update": name, "said": said})
        elif name in DECISION_MODELS:
            try:
                inbox.check_decision(name, said)
            except NotCounted:
                assert state == before, "what is refused leaves no trace"
            else:
                assert inbox.apply_decision(name, said), "what was let in is answered"
        for key, made in counted.items():
            assert state.gates.decided[key] == made, "what is decided stays decided"
        for key in state.gates.decided.keys() - counted.keys():
            asked = state.gates.pending_decision
            if key.startswith("added:"):
                continue
            assert asked is not None
            assert key == asked.key
            assert said.get("of", "") in ("", asked.target)
            assert said.get("gate", asked.gate) == asked.gate
            assert way == "update" or said["of"], "a signal that names nothing decides nothing"
        counted = dict(state.gates.decided)
    assert len(state.notes) <= NOTES_KEPT


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.sampled_from([1, 5])), max_size=12))
def test_the_same_addition_is_counted_once_and_others_each_time(added: list[tuple[str, int]]) -> None:
    inbox, kept = asking(None), dict[str, int]()
    unnamed = sum(usd for id, usd in added if not id)
    for id, usd in added:
        inbox.apply_decision("add_budget", {"id": id, "usd": usd})
        if id:
            kept.setdefault(id, usd)
    assert inbox.state.budget.extra_usd == unnamed + sum(kept.values())


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a", "b", "said-1", "said-2", "said-3"]), st.text("xy", min_size=1)), max_size=9
    )
)
def test_words_are_kept_in_order_and_none_is_lost_to_another_ones_id(words: list[tuple[str, str]]) -> None:
    inbox, expected, ids = asking(None), list[str](), set[str]()
    for id, text in words:
        inbox.receive_message({"text": text, "id": id} if id else {"text": text})
        if id not in ids or not id:
            expected.append(text)
        ids.add(id)
    assert [said.text for said in inbox.state.messages.pending] == expected
    assert len({said.id for said in inbox.state.messages.pending}) == len(expected)


def test_words_and_their_ids_are_bounded_and_what_did_not_fit_is_noted() -> None:
    inbox = asking(None)
    for number in range(100):
        inbox.receive_message({"text": f"{number:04}" * 1000, "id": str(number)})
    assert len(inbox.state.messages.pending) == UNREAD_BYTES_KEPT // 4000
    assert inbox.state.notes[0].startswith(
        f"words did not fit behind {UNREAD_BYTES_KEPT // 4000} that no turn has read"
    )
    assert len(inbox.state.notes) == NOTES_KEPT
    inbox.state.messages.pending = ()
    for number in range(MESSAGE_IDS_KEPT + 50):
        inbox.receive_message({"text": "x", "id": f"n{number}"})
    assert len(inbox.state.messages.ids) == MESSAGE_IDS_KEPT
    inbox.receive_message({"text": "x" * 9000})
    assert len(inbox.state.messages.pending) == MESSAGE_IDS_KEPT + 50


def test_an_unbound_decision_cannot_undo_the_one_that_came_just_before_it() -> None:
    inbox = asking()
    assert inbox.apply_decision("reject", {"note": "no"}) == "rejected: plan abcd1234"
    assert inbox.apply_decision("approve", {}) == "counted before: rejected"
    assert inbox.apply_decision("approve", {"of": "abcd1234"}) == "counted before: rejected"
    record_decision(inbox.state, PLAN, DecisionRecord(verdict=GateVerdict.EXPIRED))
    assert inbox.state.gates.decided[PLAN.key].verdict is GateVerdict.REJECTED


def test_who_comes_second_is_told_by_whom_and_when_it_was_decided() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    inbox = Inbox(DeliveryState(gates=GatesState(pending_decision=PLAN)), at)
    inbox.apply_decision("reject", {"note": "no", "by": "Ada\nL"})
    inbox.apply_decision("add_budget", {"usd": 5, "id": "five", "by": "Grace"})
    later = Inbox(inbox.state, at + timedelta(hours=1))
    assert later.apply_decision("approve", {}) == "counted before: rejected by Ada L, 2026-01-02 03:04:05 UTC"
    again = later.apply_decision("add_budget", {"usd": 5, "id": "five"})
    assert again == "counted before: approved by Grace, 2026-01-02 03:04:05 UTC"


@pytest.mark.parametrize(
    ("asked", "name", "said", "words"),
    [
        (PLAN, "approve", {"of": "beef"}, "it waits for plan abcd1234, not for beef: approve the plan"),
        (PLAN, "approve", {"gate": "budget"}, "it waits for plan abcd1234, not for budget"),
        (PLAN, "answer", {"answer": "x"}, 'answer does not decide this (approve the plan): approve {"of": "abcd1234"}'),
        (PLAN, "reject", {}, "note: required field is missing"),
        (PLAN, "approve", {"nte": "x"}, "nte: unknown field (did you mean note?)"),
        (PLAN, "approve", [1], "expected one JSON object, got a list"),
        (PLAN, "approve", {"note": "x" * 9000}, "note: is 9000 bytes, at most 8192 fit"),
        (BUDGET, "approve", {}, "approve does not decide this ($5 spent): add_budget"),
        (BUDGET, "add_budget", {"usd": -5}, "usd: "),
        (BUDGET, "add_budget", {"usd": float("nan")}, "usd: "),
        (BUDGET, "add_budget", {}, "say how much more"),
        (BUDGET, "add_budget", {"time": "soon"}, "time: "),
        (PRICE, "add_budget", {"usd": 5, "of": "1"}, "add_budget does not decide this"),
        (question(QuestionKind.YES_NO), "answer", {"answer": "maybe"}, "'maybe' is neither yes nor no"),
        (question(QuestionKind.CHOICE, "A", "B"), "answer", {"answer": "C"}, "'C' is none of A / B"),
    ],
)
def test_what_cannot_count_is_refused_in_words_its_sender_can_use(
    asked: PendingDecision, name: str, said: Any, words: str
) -> None:
    inbox = asking(asked)
    for take in (inbox.check_decision, inbox.apply_decision):
        if name == "add_budget" and said == {} and take == inbox.apply_decision:
            continue  # the validator stands before it
        with pytest.raises(NotCounted) as refusal:
            take(name, said)
        assert words in refusal.value.what
    assert inbox.state.gates.decided == {}
    assert inbox.state.budget.extra_usd == 0


@pytest.mark.parametrize(("given", "kind"), [(" YES ", QuestionKind.YES_NO), ("b", QuestionKind.CHOICE), ("x", "text")])
def test_an_answer_of_the_right_kind_counts_however_it_is_spelled(given: str, kind: QuestionKind) -> None:
    inbox = asking(question(kind, "A", "B"))
    inbox.check_decision("answer", {"answer": given})
    assert inbox.apply_decision("answer", {"answer": given}) == "answered: question q"
    assert inbox.state.gates.decided["question:q"].note == given


def test_what_nothing_waits_for_is_told_what_it_is_doing() -> None:
    state = DeliveryState(steps=[StepRecord(step="fix_tests")])
    for change, words in (
        ({}, "nothing waits for a decision: it is at fix tests"),
        ({"hold_reason": "held: lunch"}, "nothing waits for a decision: it is at held: lunch"),
        ({"status": Status.NOT_DELIVERED}, "nothing waits for a decision: it has ended (not delivered)"),
    ):
        state = with_fields(state, **change)
        with pytest.raises(NotCounted) as refusal:
            Inbox(state).check_decision("approve", {})
        assert refusal.value.what == words


def test_money_is_no_approval_of_a_price_nobody_knows() -> None:
    inbox = asking(PRICE)
    assert inbox.apply_decision("add_budget", {"usd": 5}) == "added $5"
    assert inbox.state.gates.decided == {}
    assert inbox.apply_decision("approve", {}) == "approved: budget 1"


def test_a_signal_that_names_nothing_is_noted_and_one_with_an_id_adds_once() -> None:
    inbox = asking(None)
    inbox.receive_decision({"update": "add_budget", "said": {"usd": 5}})
    assert inbox.state.budget.extra_usd == 0
    for _ in range(2):
        inbox.receive_decision({"update": "add_budget", "said": {"usd": 5, "tokens": 10, "time": "1h", "id": "x"}})
    assert (inbox.state.budget.extra_usd, inbox.state.budget.extra_tokens, inbox.state.budget.extra_time_s) == (
        5,
        10,
        3600,
    )
    inbox.receive_decision("nonsense")
    inbox.receive_decision({"update": "aprove", "said": {"of": "abcd1234"}})
    inbox.receive_message("nonsense")
    assert len(inbox.state.notes) == 4
    assert inbox.state.notes[2] == "a decision did not count: unknown decision 'aprove'"


def test_a_signal_that_comes_after_another_persons_decision_is_noted_and_the_same_again_is_not() -> None:
    inbox = asking(PLAN)
    of = inbox.state.gates.pending_decision.target if inbox.state.gates.pending_decision else ""
    assert inbox.apply_decision("approve", {"of": of, "by": "Ada"})
    for _ in range(2):
        inbox.receive_decision({"update": "approve", "said": {"of": of, "by": "Ada"}})
    assert inbox.state.notes == ()
    inbox.receive_decision({"update": "reject", "said": {"of": of, "note": "no", "by": "Ben\n# Ada"}})
    assert inbox.state.notes == ("rejected by Ben # Ada came too late: approved by Ada",)


def test_decisions_are_remembered_up_to_a_bound() -> None:
    state = DeliveryState()
    for number in range(DECISIONS_KEPT + 10):
        record_decision(
            state, PLAN.model_copy(update={"target": str(number)}), DecisionRecord(verdict=GateVerdict.APPROVED)
        )
    assert len(state.gates.decided) == DECISIONS_KEPT
    assert f"plan:{DECISIONS_KEPT + 9}" in state.gates.decided


@pytest.mark.parametrize("said", [None, {}, {"note": ""}, {"nonsense": 1}, "stop", {"note": "x" * 900}])
def test_whoever_wants_it_held_gets_that_however_it_was_said(said: Any) -> None:
    inbox = asking(None)
    inbox.apply_hold(said)
    assert inbox.state.gates.hold_reason == "held by a person: resume lets it go on"
    inbox.apply_hold({"note": "lunch"})
    assert inbox.state.gates.hold_reason == "held: lunch"
    inbox.apply_hold({"note": "lunch", "by": "Ada"})
    assert inbox.state.gates.hold_reason == "held by Ada: lunch"
    inbox.apply_hold({"by": "Ada"})
    assert inbox.state.gates.hold_reason == "held by Ada: resume lets it go on"
    inbox.apply_resume()
    inbox.apply_resume()
    assert inbox.state.gates.hold_reason == ""


@pytest.mark.parametrize(
    ("limit", "more", "typed"),
    [
        ("usd", "usd", "--add 5"),
        ("tokens", "tokens", "--tokens 500000"),
        ("time", "time", "--time 1h"),
        ("", "usd", "--add 5"),
    ],
)
def test_what_is_offered_to_be_added_is_what_has_run_out(limit: str, more: str, typed: str) -> None:
    asked = PendingDecision(
        gate=Gate.BUDGET, target="1", summary="w", since=SINCE, options=("add_budget",), limit=limit
    )
    assert more in json.loads(asked.example_updates()[0][1])
    commands = [commands_for_decision(asked, "d-1")[0], decision_options(asked, "d-1")[0].command]
    assert commands == [f"perdure budget d-1 {typed}"] * 2


@pytest.mark.parametrize("amount", [{"usd": True}, {"usd": "5"}, {"tokens": "5"}])
def test_an_amount_is_a_number(amount: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="write a number"):
        parse_input(AddBudget, amount)


@pytest.mark.parametrize("usd", [0.001, 1e-300])
def test_an_amount_that_no_budget_can_have_is_not_added(usd: float) -> None:
    with pytest.raises(InvalidRequest, match=r"the least is 0\.01"):
        parse_input(AddBudget, {"usd": usd})
    assert parse_input(AddBudget, {"usd": 0, "tokens": 5}).tokens == 5


TREE = "f" * 40


def state(**facts: object) -> DeliveryState:
    verdict = Red(status=TestsStatus.RED, tree=TREE, summary="unit: exit code 1", undecidable=True)
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
    told = Red(status=TestsStatus.RED, tree=TREE, summary="1 of 3 fail: test_sub")
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
