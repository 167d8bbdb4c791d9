"""Budgets that deliveries share, as the host's owner writes them down."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.repository.host import load_host_config
from perdure.models.errors import BadInput

TWO = """\
[[treasury]]
label = "team-a"
usd_per_day = 20

[[treasury]]
repository = "https://github.com/acme/*"
usd_per_day = 200.0
"""


def test_budgets_are_read_from_the_user_file_and_have_names(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(TWO)
    host = load_host_config({}, tmp_path / "config.toml")
    assert {rule.name: rule.usd_per_day for rule in host.treasury} == {
        "label:team-a": 20,
        "repository:https://github.com/acme/*": 200,
    }
    assert load_host_config({}, tmp_path / "none.toml").treasury == ()


def test_the_example_of_the_guide_is_read_as_it_stands(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "budget.md").read_text(encoding="utf-8")
    (tmp_path / "config.toml").write_text(guide.split("```toml\n")[1].split("```")[0])
    host = load_host_config({}, tmp_path / "config.toml")
    assert [rule.name for rule in host.treasury] == ["label:team-a", "repository:https://github.com/acme/*"]


def test_a_file_that_is_named_replaces_those_of_the_user_file(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("slots = 3\n" + TWO)
    (tmp_path / "budgets.toml").write_text('[[treasury]]\nlabel = "b"\nusd_per_day = 1\n')
    host = load_host_config({"PERDURE_TREASURY": str(tmp_path / "budgets.toml")}, tmp_path / "config.toml")
    assert [rule.name for rule in host.treasury] == ["label:b"]
    assert host.slots == 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('[[treasury]]\nlabel = "a"\n', "usd_per_day is missing"),
        ('[[treasury]]\nlabel = "a"\nusd_per_day = -5\n', "usd_per_day is -5"),
        ('[[treasury]]\nlabel = "a"\nrepository = "/r"\nusd_per_day = 5\n', "name one of them"),
        ('[[treasury]]\nlable = "a"\nusd_per_day = 5\n', "did you mean label?"),
        ('[[treasury]]\nlabel = "a"\nusd_per_day = true\n', "say how many dollars"),
        ('[[treasury]]\nlabel = "a"\nusd_per_day = inf\n', "finite"),
        ('[treasury]\nlabel = "a"\nusd_per_day = 5\n', "write [[treasury]], in two brackets"),
        (TWO + '[[treasury]]\nlabel = "team-a"\nusd_per_day = 30\n', "label team-a has two budgets"),
        ("slots = 3\n", "unknown key slots"),
    ],
)
def test_a_budget_that_cannot_be_is_refused_with_file_line_and_key(tmp_path: Path, text: str, what: str) -> None:
    named = tmp_path / "budgets.toml"
    named.write_text(text)
    with pytest.raises(BadInput) as refusal:
        load_host_config({"PERDURE_TREASURY": str(named)}, tmp_path / "config.toml")
    assert what in refusal.value.what
    assert str(named) in refusal.value.where


def test_a_named_file_that_is_not_there_is_no_budget_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        load_host_config({"PERDURE_TREASURY": str(tmp_path / "gone.toml")}, tmp_path / "config.toml")
    assert refusal.value.what == "the file of budgets cannot be read: No such file or directory"
