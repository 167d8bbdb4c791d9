"""Presets are found by name, and what is wrong with one is told by file, line and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.agents.presets import SHIPPED, preset_names, read_preset
from perdure.models.config.preset import Ability, fill_placeholders, find_version, is_older
from perdure.models.errors import BadInput

SMALL = 'title = "Small"\ncommand = ["small"]\nwire = "anthropic"\n'


@pytest.mark.parametrize("name", sorted(path.stem for path in SHIPPED.glob("*.toml")))
def test_a_shipped_preset_can_be_read_and_says_how_to_get_the_agent(name: str, tmp_path: Path) -> None:
    found = read_preset(name, tmp_path)
    assert found.shipped
    assert found.preset.install
    assert found.preset.model
    assert found.preset.abilities.has(Ability.RESUME) or found.preset.output == "acp"


def test_claude_code_and_codex_ship(tmp_path: Path) -> None:
    assert {"claude-code", "codex"} <= set(preset_names(tmp_path / "absent"))


def test_a_hosts_own_preset_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "codex.toml").write_text(SMALL)
    (tmp_path / "mine.toml").write_text(SMALL)
    assert read_preset("codex", tmp_path).preset.title == "Small"
    assert not read_preset("mine", tmp_path).shipped


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        (SMALL + "agrs = []\n", ":4 agrs", "unknown key agrs (did you mean args?)"),
        (SMALL.replace("anthropic", "antropic"), ":3 wire", "did you mean anthropic?"),
        (SMALL + "network = true\n", ":4 network", "an agent has no network"),
        (SMALL + 'args = ["{modell}"]\n', "", "args: {modell} means nothing, did you mean {model}?"),
        (SMALL + 'node = "twenty"\n', ":4 node", "is no version"),
        (SMALL + 'sessions = ["../other"]\n', ":4 sessions", "is no path below the agent's home"),
        (SMALL + "[abilities]\nresume = true\n", "", "abilities.resume needs"),
        (SMALL.replace('["small"]', "[]"), ":2 command", "at least 1 item"),
        (SMALL.replace('"small"', '""'), ":2 command", "names no program"),
        ("title = \n", ":1", "not valid TOML"),
    ],
)
def test_a_wrong_preset_is_told_by_line_and_key(tmp_path: Path, text: str, where: str, what: str) -> None:
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadInput) as caught:
        read_preset("mine", tmp_path)
    assert str(caught.value.where).startswith(f"{tmp_path}/mine.toml{where}")
    assert what in caught.value.what


def test_an_unknown_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'clade-code' on this host \(did you mean claude-code\?\)"):
        read_preset("clade-code", tmp_path)


def test_a_file_cannot_take_the_built_in_agents_name(tmp_path: Path) -> None:
    (tmp_path / "built-in.toml").write_text(SMALL)
    with pytest.raises(BadInput, match="cannot be the name"):
        read_preset("built-in", tmp_path)


@given(st.text(), st.text())
def test_places_are_filled_once_and_other_braces_stay(model: str, other: str) -> None:
    assert fill_placeholders('{model} {"a": 1} {unknown}', {"model": model}) == model + ' {"a": 1} {unknown}'
    assert fill_placeholders("{model}{home}", {"model": "{home}", "home": other}) == "{home}" + other


@given(st.lists(st.integers(0, 999), min_size=1, max_size=4), st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_versions_are_compared_as_numbers(one: list[int], two: list[int]) -> None:
    padded = [numbers + [0] * (4 - len(numbers)) for numbers in (one, two)]
    assert is_older(".".join(map(str, one)), ".".join(map(str, two))) == (padded[0] < padded[1])


def test_a_version_is_found_in_what_is_printed() -> None:
    assert find_version("2.1.330 (Claude Code)") == "2.1.330"
    assert find_version("codex-cli 0.169.0") == "0.169.0"
    assert find_version("v22") == "22"
    assert find_version("unknown") == ""
