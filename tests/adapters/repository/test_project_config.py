"""perdure.toml, variables and the user's file: what is refused, and which of several counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure.adapters.git.command import Git
from perdure.adapters.repository.config import (
    LOWERED,
    EffectiveConfig,
    decode_config,
    fill_in_detected,
    load_repository_config,
    merge_config,
    read_committed_config,
)
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.adapters.repository.host import load_host_config, unknown_variables, user_file_name
from perdure.cli.request.repository import read_working_tree_config
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import Limits, RepositoryConfig, SandboxGrade, TestCommand
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.duration import parse_duration
from perdure.models.errors import BadInput
from perdure.models.phases import Phase
from tests.repositories import git, make_origin
from tests.sandboxes import NO_FILE


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


def repository(text: str = "") -> RepositoryConfig:
    return load_repository_config("version = 1\n" + text, "perdure.toml")


def merged(
    text: str = "", *, env: dict[str, str] | None = None, user: str = "", tmp: Path | None = None, **asked: Any
) -> EffectiveConfig:
    path = NO_FILE
    if tmp is not None:
        path = tmp / "config.toml"
        path.write_text(user)
    env = env or {}
    host = load_host_config(env, path)
    return merge_config(host=host, env=env, repository=repository(text), **asked)


def test_without_any_source_the_defaults_count() -> None:
    result = merged()
    assert result.config == RepositoryConfig(version=1)
    assert set(result.origins.values()) == {"default"}


def test_stronger_sources_win_and_are_named(tmp_path: Path) -> None:
    user = "[limits]\nbudget_usd = 20.0\ntime = '3h'\nreview_fixes = 2\n[steps.plan]\nmodel = 'user-plan'\n"
    text = "[limits]\nbudget_usd = 9.0\ntime = '1h'\n[steps.implement]\nmodel = 'repo-implement'\n"
    request = DeliveryRequest(repository="r", request="x", phases=(Phase.PLAN,), labels=("team-a",))
    result = merged(
        text,
        user=user,
        tmp=tmp_path,
        env={"PERDURE_BUDGET_USD": "7"},
        request=request,
        flags={"limits.time": "30m"},
    )
    limits = result.config.limits
    assert (limits.budget_usd, limits.time, limits.review_fixes) == (7.0, "30m", 2)
    assert result.config.delivery.phases == (Phase.PLAN,)
    assert result.config.ship.labels == ("perdure", "team-a")
    assert result.config.steps.plan.model == "user-plan"
    assert result.config.steps.plan.effort == "high", "setting one key of a step keeps the others"
    origins = result.origins
    assert origins["limits.budget_usd"] == "PERDURE_BUDGET_USD"
    assert origins["limits.time"] == "flag"
    assert origins["limits.review_fixes"] == user_file_name()
    assert origins["limits.test_fixes"] == "default"
    assert origins["delivery.phases"] == "request"
    assert origins["steps.implement.model"] == "perdure.toml on main"


def test_a_file_given_with_the_request_replaces_the_base_branchs() -> None:
    result = merged("[ship]\ndraft = true\n", config=repository("[git]\nsign_off = true\n"))
    assert result.config.ship.draft is False
    assert result.config.git.sign_off is True
    assert result.origins["git.sign_off"] == "--config"


def test_one_model_for_every_step_comes_from_variable_or_request() -> None:
    request = DeliveryRequest(repository="r", request="x", model="asked")
    assert merged(env={"PERDURE_MODEL": "set"}).config.steps.review.model == "set"
    result = merged(env={"PERDURE_MODEL": "set"}, request=request)
    assert {step["model"] for step in result.config.steps.model_dump().values()} == {"asked"}
    assert result.origins["steps.classify.model"] == "request"


def test_a_repository_cannot_raise_the_limits_of_a_host_nobody_configured() -> None:
    result = merged("[limits]\nbudget_usd = 5000\ntime = '300h'\ntest_fixes = 10\n")
    unconfigured = HostConfig().limits
    assert result.config.limits.budget_usd == unconfigured.budget_usd
    assert result.config.limits.time == unconfigured.time
    assert result.config.limits.test_fixes == 10, "its range is limit enough where the owner set none"
    assert result.origins["limits.time"] == "perdure.toml on main" + LOWERED


def test_the_owners_test_fixes_are_a_limit_once_set(tmp_path: Path) -> None:
    result = merged("[limits]\ntest_fixes = 10\nbudget_usd = 50\n", user="[limits]\ntest_fixes = 1\n", tmp=tmp_path)
    assert result.config.limits.test_fixes == 1
    assert result.config.limits.budget_usd == 50, "setting one limit leaves the others as they were"


hours = st.integers(1, 400).map(lambda h: f"{h}h")


limits = st.fixed_dictionaries(
    {},
    optional={
        "budget_usd": st.floats(0.01, 1000),
        "time": hours,
        "test_fixes": st.integers(0, 10),
        "review_fixes": st.integers(0, 10),
        "turns_per_step": st.integers(1, 500),
        "tokens": st.integers(1, 10**9),
    },
)


@given(ours=limits, theirs=limits, flags=limits)
def test_no_source_ever_gets_more_than_the_host_allows(
    ours: dict[str, object], theirs: dict[str, object], flags: dict[str, object]
) -> None:
    host = HostConfig.model_validate({"limits": {**HostConfig().limits.model_dump(), **ours}})
    result = merge_config(
        host=host,
        env={},
        repository=RepositoryConfig.model_validate({"version": 1, "limits": theirs}),
        flags={f"limits.{name}": value for name, value in flags.items()},
    )
    for name in Limits.model_fields:
        got, highest = getattr(result.config.limits, name), getattr(host.limits, name)
        asked = flags.get(name, theirs.get(name, highest))
        if name == "time":
            assert parse_duration(got) == min(parse_duration(str(asked)), parse_duration(highest))
        elif highest is None:
            assert got == asked
        else:
            assert got == min(asked, highest)
        assert result.origins[f"limits.{name}"].endswith(LOWERED) == (got != asked)


def test_detected_commands_fill_only_what_nobody_wrote() -> None:
    found = DetectedCommands(("npm ci",), (TestCommand(name="npm test", command="npm test"),), ("npm",))
    result = fill_in_detected(merged("[setup]\ncommands = []\n"), found)
    assert result.config.setup.commands == ()
    assert result.config.test == found.tests
    assert result.origins["test"] == "detected"
    assert result.origins["setup.commands"] == "perdure.toml on main"


def test_gates_of_the_request_come_beside_those_of_the_repository() -> None:
    asked = DeliveryRequest(repository="/r", request="x", gates=("pull_request", "plan"))
    config = load_repository_config("version = 1\n[gates]\nbefore = ['plan']\nexpire = '72h'\n", "perdure.toml")
    both = merge_config(host=HostConfig(), env={}, repository=config, request=asked)
    assert both.config.gates.before == ("plan", "pull_request")
    assert both.config.gates.expire == "72h"
    assert both.origins["gates.before"] == "perdure.toml on main and request"
    unasked = DeliveryRequest(repository="/r", request="x")
    alone = merge_config(host=HostConfig(), env={}, repository=config, request=unasked)
    assert (alone.config.gates.before, alone.origins["gates.before"]) == (("plan",), "perdure.toml on main")


def test_a_request_asks_for_tokens_up_to_the_hosts_limit_and_for_no_questions(tmp_path: Path) -> None:
    asked = DeliveryRequest(repository="/r", request="x", tokens=900, questions=False)
    free = merge_config(host=HostConfig(), env={}, request=asked)
    assert (free.config.limits.tokens, free.config.delivery.questions) == (900, False)
    host = load_host_config({"PERDURE_TOKENS": "500"}, tmp_path / "none.toml")
    held = merge_config(host=host, env={"PERDURE_TOKENS": "500"}, request=asked)
    assert held.config.limits.tokens == 500
    assert held.origins["limits.tokens"] == "request" + LOWERED
    unasked = merge_config(host=host, env={"PERDURE_TOKENS": "500"})
    assert (unasked.config.limits.tokens, unasked.origins["limits.tokens"]) == (500, "PERDURE_TOKENS")
    assert merge_config(host=HostConfig(), env={}).config.limits.tokens is None


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_settings_with_a_byte_order_mark_are_read(tmp_path: Path, encoding: str) -> None:
    text = 'version = 1\n[ship]\nlabels = ["Ärger"]\n'
    assert decode_config(text.encode(encoding), [], "here") == text
    (tmp_path / "config.toml").write_bytes("slots = 3\n".encode(encoding))
    assert load_host_config({}, tmp_path / "config.toml").slots == 3


def test_what_cannot_be_read_as_a_file_is_refused_and_never_taken_for_another_name() -> None:
    """In a partial clone, and where a directory has the name: settings must not be dropped without a word."""
    with pytest.raises(BadInput, match="cannot be read as a file") as refused:
        decode_config(None, ["Perdure.toml", "perdure.toml"], "here")
    assert "git mv" not in refused.value.fix


def test_settings_in_latin_1_and_a_name_in_capitals_are_refused_with_what_helps(tmp_path: Path) -> None:
    make_origin(tmp_path / "origin")
    checkout = tmp_path / "origin-seed"
    committed = Git(git_dir=checkout / ".git")
    for name, content, what, fix in [
        ("perdure.toml", "version = 1\n# Ä".encode("latin-1"), "line 2 has the byte 0xc4; save it as UTF-8", "UTF-8"),
        ("Perdure.TOML", b"version = 1", "Perdure.TOML is not read", "git mv Perdure.TOML perdure.toml"),
    ]:
        (checkout / name).write_bytes(content)
        git(checkout, "add", "-A")
        git(checkout, "commit", "-q", "-m", name)
        for read in (lambda: read_committed_config(committed, "HEAD"), lambda: read_working_tree_config(checkout)):
            with pytest.raises(BadInput) as error:
                read()
            assert what in error.value.what
            assert fix in error.value.fix
        git(checkout, "rm", "-q", name)
    assert read_committed_config(committed, "1" * 40) is None
