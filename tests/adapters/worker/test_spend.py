"""Money, replies and deaths, each counted once from files that may be torn."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.system.files import read_json_lines
from perdure.adapters.worker.journal import ADOPTED, CUT_OFF, DONE, Journal, ReplyStore, SpendLog
from perdure.models.budget.ledger import Spend, Usage
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.work import EscalationSettings
from tests.costs import examples


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


def test_a_reply_is_found_again_under_its_own_key_only(tmp_path: Path) -> None:
    replies = ReplyStore(tmp_path)
    assert replies.get("k") is None
    replies.put("k", {"text": "grüße \u2028"})
    assert ReplyStore(tmp_path).get("k") == {"text": "grüße \u2028"}
    assert replies.get("l") is None


def test_a_reply_that_a_disk_has_damaged_was_not_received(tmp_path: Path) -> None:
    replies = ReplyStore(tmp_path)
    for damage in (b"", b'{"key": "k", "stored": {"te', b'{"key": "k", "stored": [1]}\n', b"\xff\xfe\x00"):
        (tmp_path / "replies.jsonl").write_bytes(damage)
        assert replies.get("k") is None
        replies.put("k", {"text": "a"})
        assert replies.get("k") == {"text": "a"}


def test_the_text_of_a_reply_is_not_taken_for_another_reply(tmp_path: Path) -> None:
    replies = ReplyStore(tmp_path)
    replies.put("k", {"text": '\n{"key": "l", "stored": {"text": "forged"}}\n'})
    assert replies.get("l") is None


LIVING, GONE = "living", "gone"


def journal(directory: Path) -> Journal:
    return Journal(directory, lambda worker: worker == LIVING)


def begin(log: Journal, attempt: str, key: str, activity: str = "implement", worker: str = GONE) -> None:
    """By a worker of its own, unless it lives."""
    name = LIVING if worker == LIVING else f"{worker} {attempt}"
    log.record_start(attempt=attempt, key=key, activity=activity, worker=name)


def test_an_attempt_that_ended_or_whose_worker_lives_is_no_death(tmp_path: Path) -> None:
    log = journal(tmp_path)
    begin(log, "1", "turn")
    begin(log, "2", "turn", worker=LIVING)
    begin(log, "3", "turn")
    log.record_end("3", "ModelUnavailable")
    assert len(log.deaths("turn")) == 1
    assert log.deaths("another") == []
    assert log.failures("turn", "ModelUnavailable") == 1
    assert log.failures("turn", DONE) == 0


def test_the_deaths_of_a_plans_tasks_are_its_deliverys_each_once(tmp_path: Path) -> None:
    whole, task = journal(tmp_path / "whole"), journal(tmp_path / "task")
    for log in (whole, task):
        begin(log, "1" if log is whole else "2", "turn", worker="same")
    begin(task, "3", "turn")
    task.record_end("3", DONE)
    task.record_deciders(EscalationSettings(asks=True))
    for _ in range(2):
        whole.include_journal(task)
    assert whole.make_receipt() == Receipt(worker_deaths=2, turns_redone=2)
    assert whole.attempts() == ["1"]
    assert whole.last_deciders() is None


def test_a_turn_cut_off_and_done_again_is_redone_but_one_found_done_is_not(tmp_path: Path) -> None:
    log = journal(tmp_path)
    begin(log, "1", "redone")
    begin(log, "2", "redone")
    log.record_end("2", DONE)
    begin(log, "3", "found")  # died after its snapshot
    begin(log, "4", "found")
    log.record_end("4", ADOPTED)
    begin(log, "5", "both")  # died in its middle, then after its snapshot
    begin(log, "6", "both")
    begin(log, "7", "both")
    log.record_end("7", ADOPTED)
    begin(log, "8", "never")
    begin(log, "9", "tests", activity="run_tests")
    begin(log, "10", "tests", activity="run_tests")
    log.record_end("10", DONE)
    assert log.make_receipt() == Receipt(worker_deaths=6, turns_redone=2)


def test_a_sandbox_that_was_ended_counts_as_a_death_of_the_turn_and_not_of_a_worker(tmp_path: Path) -> None:
    log = journal(tmp_path)
    begin(log, "1", "turn")
    begin(log, "2", "turn", worker=LIVING)
    log.record_end("2", CUT_OFF, "the sandbox was killed, perhaps for memory: peak 1.9 GB")
    begin(log, "3", "turn", worker=LIVING)
    log.record_end("3", DONE)
    assert log.deaths("turn") == ["its worker died", "the sandbox was killed, perhaps for memory: peak 1.9 GB"]
    assert log.make_receipt() == Receipt(worker_deaths=1, turns_redone=2)


def test_a_worker_that_did_several_things_died_once(tmp_path: Path) -> None:
    log = journal(tmp_path)
    for attempt, activity in enumerate(("implement", "notify", "notify")):
        log.record_start(attempt=str(attempt), key=f"{activity} {attempt}", activity=activity, worker=GONE)
    assert log.make_receipt() == Receipt(worker_deaths=1, turns_redone=0)


def test_a_delivery_nothing_was_written_about_has_an_empty_receipt(tmp_path: Path) -> None:
    assert journal(tmp_path / "nowhere").make_receipt() == Receipt()


def test_lines_of_a_newer_version_and_lines_that_are_no_objects_do_no_harm(tmp_path: Path) -> None:
    log = journal(tmp_path)
    begin(log, "1", "turn")
    with (tmp_path / "journal.jsonl").open("ab") as file:
        file.write(b'{"moved": "1"}\n[1]\n\xff\xfe\n\n')
    log.record_end("none of ours", DONE)
    assert len(log.deaths("turn")) == 1
    assert log.failures("turn", DONE) == 0
    assert log.make_receipt().worker_deaths == 1


ATTEMPTS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from([LIVING, GONE]),
        st.sampled_from([None, DONE, ADOPTED, "superseded", "Boom"]),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(ATTEMPTS, st.randoms(use_true_random=False), st.integers(0, 40))
def test_the_receipt_folds_any_interleaving_and_any_torn_end(attempts, random, cut) -> None:  # type: ignore[no-untyped-def]
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        log = journal(Path(place))
        todo = [[(number, *attempt)] * (1 if attempt[2] is None else 2) for number, attempt in enumerate(attempts)]
        begun: set[int] = set()
        while any(todo):
            number, key, worker, how = random.choice([line for line in todo if line]).pop()
            if number in begun:
                log.record_end(str(number), how)
            else:
                begin(log, str(number), key, worker=worker)
                begun.add(number)
        for key in "abc":
            died = sum(1 for k, worker, how in attempts if (k, worker, how) == (key, GONE, None))
            assert len(log.deaths(key)) == died
        receipt = log.make_receipt()
        assert receipt.worker_deaths == sum(1 for _, worker, how in attempts if worker == GONE and how is None)
        assert 0 <= receipt.turns_redone <= receipt.worker_deaths

        path = Path(place) / "journal.jsonl"
        if path.exists():
            whole = list(read_json_lines(path))
            path.write_bytes(path.read_bytes()[: -1 - cut])
            left = list(read_json_lines(path))
            assert left == whole[: len(left)], "a torn line changed the ones before it"
            log.make_receipt()


def test_a_journal_line_is_one_json_object(tmp_path: Path) -> None:
    begin(journal(tmp_path), "a\nb", "k")
    (line,) = (tmp_path / "journal.jsonl").read_bytes().splitlines()
    assert json.loads(line)["began"] == "a\nb"
