"""perdure.toml, variables and the user's file: what is refused, with which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.adapters.repository.config import load_repository_config
from perdure.adapters.repository.host import load_host_config, unknown_variables
from perdure.models.config.repository import SandboxGrade, parse_duration
from perdure.models.errors import BadInput
from tests.command_fixtures import NO_FILE


def refusal(text: str) -> BadInput:
    with pytest.raises(BadInput) as caught:
        load_repository_config(text, "perdure.toml")
    return caught.value


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("", "perdure.toml:1 version", "version is missing"),
        ("version = 2", "perdure.toml:1 version", "version: should be 1, not 2"),
        ("version = 1\n\n[limts]\ntime = '1h'", "perdure.toml:3 [limts]", "unknown key limts (did you mean limits?)"),
        ("version = 1\nname = \n", "perdure.toml:2", "not valid TOML: Invalid value"),
        ('version = 1\nname = """\nnever closed\n', "perdure.toml:3", "not valid TOML"),
        ("version = 1\n[limits]\ntest_fixes = 11", "perdure.toml:3 [limits] test_fixes", "11, allowed is 0 to 10"),
        ("version = 1\nlimits = {test_fixes = -1}", "perdure.toml:2 [limits] test_fixes", "allowed is 0 to 10"),
        ("version = 1\nlimits.budget_usd = 0", "perdure.toml:2 [limits] budget_usd", "allowed is more than 0"),
        ("version = 1\nlimits.budget_usd = true", "perdure.toml:2 [limits] budget_usd", "write a number"),
        ("version = 1\nlimits.tokens = -5", "perdure.toml:2 [limits] tokens", "tokens is -5, allowed is 1 or more"),
        ("version = 1\n[limits]\nbudget_usd = nan", "perdure.toml:3 [limits] budget_usd", "finite"),
        ("version = 1\n[steps.plan]\nmodl = 'x'", "perdure.toml:3 [steps.plan] modl", "did you mean model?"),
        ("version = 1\n[setup]\ncopy_file = ['x']", "perdure.toml:3 [setup] copy_file", "did you mean copy?"),
        ("version = 1\n[delivery]\nphases = [\n'plan',\n'biuld']", "perdure.toml:3 [delivery] phases", "not 'biuld'"),
        ("[setup]\ncommands = [\n" + "'',\n" * 5000 + "]\nx = 1", "perdure.toml:5004 [setup] x", "unknown key x"),
        ("version = 1\ngates = 3", "perdure.toml:2 gates", "should be a table"),
        ("version = 1\n[test]\ncommand = 'x'", "perdure.toml:2 [test]", "there may be several"),
        ("version = 1\n[[test]]\ncommand = ' '", 'perdure.toml:3 [[test]] "#1" command', "is blank: write a command"),
        (
            "version = 1\n[[test]]\ncommand = 'x'\ndirectory = '../up'",
            'perdure.toml:4 [[test]] "#1" directory',
            "its top",
        ),
    ],
)
def test_a_bad_file_is_refused_with_line_and_key(text: str, where: str, what: str) -> None:
    error = refusal(text)
    assert error.where == where
    assert what in error.what
    assert error.fix
    assert error.exit_code == 2


def test_the_line_is_right_behind_strings_that_look_like_toml() -> None:
    text = '''version = 1  # [[test]]
[[test]]
name = "unit"
command = """
[limits]
timeout = "1x"
"""
timeout = "1h30m"

[[test]]
name = "lint"
command = "ruff"
timeout = "soon"
'''
    assert refusal(text).where == 'perdure.toml:13 [[test]] "lint" timeout'


def test_a_missing_key_points_at_its_table() -> None:
    assert refusal('version = 1\n\n[[test]]\nname = "unit"\n').where == 'perdure.toml:3 [[test]] "unit" command'


def test_a_test_table_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(BadInput) as caught:
        load_repository_config("version = 1\n[test]\ncommand = 'x'", "perdure.toml")
    assert caught.value.fix == "write [[test]], not [test]"


def test_a_test_command_without_a_name_is_called_by_its_words() -> None:
    one = "[[test]]\ncommand = 'uv run pytest -q'\n"
    config = load_repository_config(f"version = 1\n{one}{one}directory = './web/'", "perdure.toml")
    assert [(test.name, test.directory) for test in config.test or ()] == [
        ("uv run pytest -q", ""),
        ("./web/: uv run pytest -q", "web"),
    ]


def test_two_test_commands_of_one_name_are_refused() -> None:
    one = '[[test]]\nname = "unit"\ncommand = "pytest"\n'
    assert refusal(f"version = 1\n{one}{one}").where == 'perdure.toml:5 [[test]] "unit"'


@pytest.mark.parametrize("text", ["sandbox = 'off'", "slots = 3", "[ports]\nbackend = [9100, 9110]"])
def test_a_repository_cannot_set_what_the_host_decides(text: str) -> None:
    assert "host's owner" in refusal(f"version = 1\n{text}").what


@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_durations_add_up(h: int, m: int, s: int) -> None:
    assert parse_duration(f"{h}h{m}m{s}s") == h * 3600 + m * 60 + s


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_a_named_mistake(text: str) -> None:
    try:
        length, said = parse_duration(text), "a duration"
    except ValueError as error:
        length, said = 1.0, str(error)
    assert length > 0
    assert "duration" in said


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PERDURE_SANDBOX", "on"),
        ("PERDURE_PORTS_BACKEND", "many"),
        ("PERDURE_PORTS_FRONTEND", "9214-9200"),
        ("PERDURE_PORTS_BACKEND", "80-90"),
        ("PERDURE_SLOTS", "0"),
        ("PERDURE_BUDGET_USD", "nan"),
        ("PERDURE_BUDGET_USD", "five"),
        ("PERDURE_TIME", "long"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_host_config({name: value}, NO_FILE)
    assert name in caught.value.where
    assert value in caught.value.what


def test_overlapping_ranges_from_two_variables_are_refused_and_disjoint_ones_are_not() -> None:
    with pytest.raises(BadInput, match="overlap"):
        load_host_config({"PERDURE_PORTS_BACKEND": "9200-9201"}, NO_FILE)
    both = {"PERDURE_PORTS_BACKEND": "9200-9201", "PERDURE_PORTS_FRONTEND": "9100-9101", "PERDURE_SANDBOX": "reduced"}
    host = load_host_config(both, NO_FILE)
    assert host.ports.backend == (9200, 9201)
    assert host.sandbox is SandboxGrade.REDUCED


def test_a_mistake_in_the_user_file_has_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[limits]\nbudgetusd = 3\n")
    with pytest.raises(BadInput, match="did you mean budget_usd"):
        load_host_config({}, path)


def test_unknown_variables_are_listed_with_the_nearest_name() -> None:
    env = {"PERDURE_SANBOX": "off", "PERDURE_HOME": "/x", "PERDURE_SLOTS": "3", "OTHER": "1", "PERDURE_ZZZZZZZZ": ""}
    assert unknown_variables(env) == ["PERDURE_SANBOX (did you mean PERDURE_SANDBOX?)", "PERDURE_ZZZZZZZZ"]


def test_every_variable_the_code_reads_is_known() -> None:
    package = Path(perdure.__file__).parent
    read = {name for path in package.rglob("*.py") for name in re.findall(r"\"(PERDURE_[A-Z_]+)\"", path.read_text())}
    assert unknown_variables(dict.fromkeys(read, "")) == [], "add it to host.VARIABLES or host.OTHER_VARIABLES"
