"""Money is counted once, never forgotten, and never taken for zero."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.worker.journal import SpendLog
from perdure.models.budget.ledger import Spend, Usage


def usage(cost: float | None) -> Usage:
    return Usage(input_tokens=10, output_tokens=1, cost_usd=cost)


def test_a_request_without_a_settlement_counts_at_its_upper_bound_and_is_shown_apart(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    assert log.total_spend() == Spend()
    log.record_intent("1", "reply", 0.5)
    assert log.total_spend() == Spend(at_risk_usd=0.5)
    assert log.count_repeats() == (0, 1)
    log.record_intent("2", "reply", 0.5)
    log.record_settlement("2", usage(0.2))
    assert log.total_spend() == Spend(usd=0.2, at_risk_usd=0.5, tokens=11)
    log.record_refusal("1")
    assert log.total_spend() == Spend(usd=0.2, tokens=11)
    assert log.count_repeats() == (0, 0)
    assert log.is_settled("2")
    assert not log.is_settled("1")


def test_the_same_reply_received_by_two_requests_was_paid_twice(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    for request in ("1", "2"):
        log.record_intent(request, "reply", 1.0)
        log.record_settlement(request, usage(0.1))
    log.record_settlement("unheard of", usage(0.1))
    assert log.count_repeats() == (1, 0)
    assert log.total_spend() == Spend(usd=0.3, tokens=33)


def test_the_same_bytes_are_paid_twice_whatever_name_and_run_they_are_asked_under(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    for request, asked in (("1", "the same"), ("2", "the same"), ("3", "other")):
        log.record_intent(request, f"reply {request}", 1.0, request_digest=asked, run_id=f"run {request}")
        log.record_settlement(request, usage(0.1))
    assert log.count_repeats() == (1, 0)


def test_replies_that_broke_off_are_counted_for_each_run(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    for request in ("1", "2"):
        log.record_intent(request, "reply", 1.0, run_id="first")
    assert (log.count_cut_off("reply", "first"), log.count_cut_off("reply", "its retry")) == (2, 0)
    log.record_refusal("1")
    assert log.count_cut_off("reply", "first") == 1


def test_one_reply_settled_by_two_attempts_was_paid_once(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    log.record_intent("1", "reply", 1.0)
    log.record_settlement("1", usage(0.1))
    log.record_settlement("1", usage(0.1))
    assert log.total_spend() == Spend(usd=0.1, tokens=11)
    assert log.count_repeats() == (0, 0)


def test_an_unknown_price_is_unknown_and_hides_none_that_is_known(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    log.record_intent("1", "a", None)
    assert log.total_spend() == Spend(usd=None), "a request that may be billed at nobody knows what is not free"
    log.record_settlement("1", usage(None))
    log.record_intent("2", "b", 0.7)
    log.record_settlement("2", usage(0.4))
    assert log.total_spend() == Spend(usd=None, known_usd=0.4, tokens=22)


def test_tokens_count_like_dollars_and_lines_of_an_older_version_have_none(tmp_path: Path) -> None:
    log = SpendLog(tmp_path)
    log.record_intent("1", "a", 0.5, 900)
    assert log.total_spend() == Spend(at_risk_usd=0.5, at_risk_tokens=900)
    log.record_settlement("1", Usage(input_tokens=1, cache_read_tokens=20, cache_write_tokens=300, output_tokens=4000))
    log.record_intent("2", "b", None, 70)
    assert log.total_spend() == Spend(usd=None, tokens=4321, at_risk_tokens=70), "no price is needed to count them"
    log.record_refusal("2")
    with (tmp_path / "spend.jsonl").open("a") as file:
        file.write('{"intent": "3", "reply": "c", "upper_usd": 0.25}\n')
        file.write('{"settled": "4", "usage": {"cost_usd": 0.5}}\n')
    assert log.total_spend() == Spend(usd=0.5, at_risk_usd=0.25, tokens=4321)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
        st.sampled_from(["open", "void", "settled", "settled twice"]),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
    ),
    max_size=10,
)


@settings(max_examples=40, deadline=None)
@given(EVENTS, st.randoms(use_true_random=False), st.integers(1, 60))
def test_the_log_folds_any_interleaving_and_any_torn_end(events, random, cut) -> None:  # type: ignore[no-untyped-def]
    with tempfile.TemporaryDirectory() as place:
        log = SpendLog(Path(place))
        steps = {"open": 1, "void": 2, "settled": 2, "settled twice": 3}
        todo = [[(number, *event)] * steps[event[2]] for number, event in enumerate(events)]
        begun: set[int] = set()
        while any(todo):
            number, reply, upper, end, cost = random.choice([line for line in todo if line]).pop()
            if number not in begun:
                log.record_intent(str(number), reply, upper)
                begun.add(number)
            elif end == "void":
                log.record_refusal(str(number))
            else:
                log.record_settlement(str(number), usage(cost))
        settled = [(reply, cost) for reply, _, end, cost in events if end.startswith("settled")]
        pending = [upper for _, upper, end, _ in events if end == "open"]
        total = log.total_spend()
        known = sum(cost or 0 for _, cost in settled)
        unknown = any(cost is None for _, cost in settled) or None in pending
        assert (total.usd is None) == unknown
        assert (total.known_usd if unknown else total.usd) == known
        assert total.at_risk_usd == sum(upper or 0 for upper in pending)
        assert log.count_repeats() == (len(settled) - len({reply for reply, _ in settled}), len(pending))

        path = Path(place) / "spend.jsonl"
        if path.exists() and total.usd is not None:
            path.write_bytes(path.read_bytes()[:-cut])
            torn = SpendLog(Path(place)).total_spend()
            assert torn.usd is None or torn.usd <= total.usd, "a torn line made money up"


@pytest.mark.parametrize("request_id", ["x", 'quote"\n'])
def test_what_is_intended_by_one_process_is_seen_by_the_next(tmp_path: Path, request_id: str) -> None:
    SpendLog(tmp_path).record_intent(request_id, "reply", 0.25)
    assert SpendLog(tmp_path).total_spend().at_risk_usd == 0.25


def test_what_tasks_paid_is_taken_in_once_however_often_that_is_done(tmp_path: Path) -> None:
    whole, task = SpendLog(tmp_path / "whole"), SpendLog(tmp_path / "task")
    for directory in ("whole", "task"):
        (tmp_path / directory).mkdir(exist_ok=True)
    whole.record_intent("a", "a", 1.0)
    whole.record_settlement("a", Usage(output_tokens=10, cost_usd=0.5))
    task.record_intent("b", "b", 1.0)
    task.record_settlement("b", Usage(output_tokens=20, cost_usd=0.25))
    task.record_intent("cut", "cut", 0.1, 5)
    for _ in range(2):
        whole.include_log(task)
    total = whole.total_spend()
    assert (total.usd, total.at_risk_usd, total.tokens, total.at_risk_tokens) == (0.75, 0.1, 30, 5)
    assert whole.count_repeats() == (0, 1)
