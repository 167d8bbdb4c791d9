"""Options of gates, labels, tokens and times: what they ask for, and what is refused before anything starts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from perdure.cli.commands.start import DeliverOptions
from perdure.cli.look.schedules import schedule_rows
from perdure.cli.request.validation import check_gates, check_request, parse_gates, parse_labels
from perdure.client import ScheduleInfo
from perdure.client.schedules import next_start
from perdure.models.delivery.request import LABEL_CHARS, LABELS_MOST, parse_request
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.phases import Phase
from tests.cli.conftest import Cli

KEY = {"ANTHROPIC_API_KEY": "not-a-key"}


def test_gates_are_named_in_any_order_and_by_their_short_name() -> None:
    assert parse_gates("pr, plan") == ("plan", "pull_request")
    assert parse_gates("pull-request") == ("pull_request",)


@pytest.mark.parametrize(
    ("text", "what", "fix"), [("plans", "no gate 'plans'", "--gate plan"), (" , ", "no gate", "--gate plan")]
)
def test_a_gate_that_there_is_none_of_is_refused_with_the_nearest(text: str, what: str, fix: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_gates(text)
    assert what in refusal.value.what
    assert fix in refusal.value.fix


def test_labels_are_taken_as_they_are_named_each_once() -> None:
    assert parse_labels((" team-a", "área, B", "team-a")) == ("team-a", "área, B")
    assert parse_labels(("x" * LABEL_CHARS,)) == ("x" * LABEL_CHARS,)


@pytest.mark.parametrize("given", [(" ",), ("x" * (LABEL_CHARS + 1),), tuple(map(str, range(LABELS_MOST + 1)))])
def test_what_no_forge_takes_for_a_label_is_refused_as_the_workflow_would(given: tuple[str, ...]) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_labels(given)
    assert (refusal.value.where, bool(refusal.value.fix)) == ("--label", True)
    with pytest.raises(InvalidRequest, match="labels"):
        parse_request({"repository": "/r", "request": "x", "labels": [name.strip() for name in given]})


def test_a_gate_that_no_selected_phase_comes_to_is_refused() -> None:
    check_gates(("plan", "pull_request"), tuple(Phase), push=False)
    check_gates(("pull_request",), (Phase.BUILD,), push=True)
    for gate, phases in (("plan", (Phase.BUILD, Phase.SHIP)), ("pull_request", (Phase.PLAN, Phase.BUILD))):
        with pytest.raises(BadInput, match=f"nothing would wait at {gate}: phase (plan|ship) is not selected"):
            check_gates((gate,), phases, push=False)


def test_gates_named_one_by_one_all_count(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(cli.cwd)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    wanted = check_request(DeliverOptions(text="Add sub", gate=["pull_request", "plan"]), KEY).request
    assert wanted.gates == ("plan", "pull_request")


def test_the_request_says_what_was_asked_for_and_nothing_when_nothing_was(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(cli.cwd)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    wanted = check_request(
        DeliverOptions(text="Add sub", gate=["plan"], label=["a"], tokens=5, no_questions=True), KEY
    ).request
    assert (wanted.gates, wanted.labels, wanted.tokens, wanted.questions) == (("plan",), ("a",), 5, False)
    plain = check_request(DeliverOptions(text="Add sub"), KEY).request.model_dump(mode="json", exclude_defaults=True)
    assert not {"gates", "labels", "tokens", "questions"} & plain.keys()


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        (("run", "plan", "--request", "x"), ("--gate", "plans"), "did you mean --gate plan?"),
        (("deliver", "x"), ("--label", "team-a", "--label", ""), "'' cannot be a label"),
    ],
)
def test_the_command_refuses_it_before_it_starts_anything(
    cli: Cli, command: tuple[str, ...], option: tuple[str, ...], words: str
) -> None:
    ran = cli(*command, *option)
    assert (ran.code, words in ran.err) == (2, True), ran.err
    assert not cli.home.exists()


NIGHT = "version: 1\nitems:\n  - {id: api, request: Add it}\n"


@pytest.mark.parametrize(
    ("args", "what", "where"),
    [
        (("--at", "tonight"), "is no time", "--at"),
        (("--at", "2020-01-01 23:00"), "2020-01-01 23:00 UTC is past: it is", "--at"),
        (("--at", "23:00 Europe/Berln"), "no time zone Europe/Berln (did you mean Europe/Berlin?)", "--at"),
        (("--every", "wekdays 23:00"), "'wekdays' is no day (did you mean weekdays?)", "--every"),
        (("--every", "weekdays 23:00 Mars"), "no time zone Mars", "--every"),
        (("--every", "weekdays 23:00", "--at", "23:00"), "once and again and again", "--at and --every"),
    ],
)
@pytest.mark.parametrize(
    "command", [("deliver", "Add sub"), ("run", "test", "--branch", "topic"), ("backlog", "start", "night.yaml")]
)
def test_a_time_that_cannot_be_is_refused_before_anything_is_started(
    cli: Cli, command: tuple[str, ...], args: tuple[str, ...], what: str, where: str
) -> None:
    (cli.cwd / "night.yaml").write_text(NIGHT)
    ran = cli(*command, *args)
    assert (ran.code, ran.out) == (2, "")
    assert what in ran.err
    assert f"where: {where}" in ran.err
    assert not (cli.home / "server").exists()


def test_what_was_missed_is_said() -> None:
    one = ScheduleInfo(
        id="night",
        what="backlog",
        when="weekdays 23:00 UTC",
        about="2 items: api, page",
        next=datetime(2026, 11, 24, 23, tzinfo=UTC),
        paused=False,
        note="",
        last="",
        outcome="",
        started=0,
        skipped=0,
        missed=2,
    )
    _, line, missed = schedule_rows([one], None, datetime(2026, 11, 24, 21, 48, tzinfo=UTC))
    assert "2026-11-24 23:00 UTC, in 1h 12m" in line
    assert missed == "! night: 2 times missed, Temporal was down for an hour or more"


def test_a_time_that_was_missed_is_not_what_begins_next() -> None:
    missed, tomorrow = datetime(2026, 11, 22, 23, tzinfo=UTC), datetime(2026, 11, 23, 23, tzinfo=UTC)
    morning = datetime(2026, 11, 23, 7, tzinfo=UTC)
    assert next_start([missed, tomorrow], morning) == tomorrow
    assert next_start([missed], morning) is None, "one time alone is over then"
    assert next_start([missed], missed) == missed, "it is made up for"
