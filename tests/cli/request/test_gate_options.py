"""`--gate`, `--label`, `--tokens`, `--no-questions`: what they ask for, and what they refuse before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli.commands.start import DeliverOptions
from perdure.cli.request.validation import check_gates, check_request, parse_gates, parse_labels
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
