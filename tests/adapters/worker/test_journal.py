"""What died is told from what ended, whatever order the lines came in and wherever the last one was torn."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.adapters.system.files import read_json_lines
from perdure.adapters.worker.journal import ADOPTED, CUT_OFF, DONE, Journal
from perdure.models.delivery.result import Receipt
from perdure.models.delivery.work import EscalationSettings
from tests.examples import examples

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
