"""`--gate`, `--tokens` and `--no-questions`: what they ask for, and what they refuse before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.cli.intake import Asked, parse_gates, take_in
from perdure.models.errors import BadInput
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


def test_the_request_says_what_was_asked_for_and_nothing_when_nothing_was(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(cli.cwd)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    wanted = take_in(Asked(text="Add sub", gate="plan", tokens=5, questions=False), KEY).request
    assert (wanted.gates, wanted.tokens, wanted.questions) == (("plan",), 5, False)
    plain = take_in(Asked(text="Add sub"), KEY).request.model_dump(mode="json", exclude_defaults=True)
    assert not {"gates", "tokens", "questions"} & plain.keys()


def test_the_command_refuses_a_gate_before_it_starts_anything(cli: Cli) -> None:
    for command in (("deliver", "x"), ("run", "plan", "--request", "x")):
        ran = cli(*command, "--gate", "plans")
        assert ran.code == 2
        assert "did you mean --gate plan?" in ran.err
    assert not cli.home.exists()
