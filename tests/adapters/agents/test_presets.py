"""Agents are found by name and checked before anything is paid for: what is wrong is told by file, line and key."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from preset_fixtures import preset, program

from perdure.adapters.agents import presets
from perdure.adapters.agents.presets import SHIPPED, check_program, preset_names, read_preset
from perdure.adapters.agents.resolve_agents import resolve_agents, second_model
from perdure.adapters.repository.config import EffectiveConfig, load_repository_config, merge_config
from perdure.adapters.repository.host import load_host_config
from perdure.models.config.preset import Ability, Preset, VersionCheck, fill_placeholders, find_version, is_older
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.phases import Step
from tests.sandboxes import NO_FILE
from tests.waiting import patient

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


def told(tmp_path: Path, script: str | None, *, least: str = "2.1", node: str = "", its_node: str = "") -> str:
    """The problem seen with a program that is this script, on a PATH of its own."""
    for name, text in (("agent", script), ("node", f"echo {its_node}" if its_node else None)):
        if text is not None:
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
    preset = Preset(title="Agent", command=("agent",), wire="anthropic", node=node, version=VersionCheck(least=least))
    return check_program(preset, str(tmp_path)).problem


@pytest.mark.parametrize(
    ("script", "options", "problem"),
    [
        ("echo 2.1.330 '(Agent)'", {}, ""),
        ("echo agent", {"least": ""}, ""),
        (None, {}, "agent is not installed, or not on PATH"),
        ("echo 2.0.9", {}, "2.0.9 is too old, 2.1 is needed"),
        ("echo hello", {}, "no version in what it says: 'hello'"),
        ("exit 3", {}, "it does not say its version: exit code 3"),
        ("echo 2.1", {"node": "22"}, "it needs Node 22 or newer, and there is no node on PATH"),
        ("echo 2.1", {"node": "22", "its_node": "v20.20.2"}, "it needs Node 22 or newer, 20.20.2 is here"),
        ("echo 2.1", {"node": "22", "its_node": "v22.0.1"}, ""),
    ],
)
def test_what_is_wrong_with_a_program_is_said(
    tmp_path: Path, script: str | None, options: dict[str, str], problem: str
) -> None:
    assert told(tmp_path, script, **options) == problem


def test_it_sees_no_secret_and_no_home_of_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert told(tmp_path, f'echo "$HOME $ANTHROPIC_API_KEY" > {tmp_path}/seen; echo 2.1') == ""
    home, *rest = (tmp_path / "seen").read_text().split()
    assert rest == []
    assert not Path(home).exists()


def test_a_program_that_never_answers_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presets, "VERSION_S", 1.0)
    assert told(tmp_path, f"PATH=/usr/bin:/bin; sleep 97 & echo $! > {tmp_path}/child; wait") == (
        "it does not say its version: nothing within 1 s"
    )
    child, until = int((tmp_path / "child").read_text()), time.monotonic() + patient(30)
    while psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def settings(text: str = "", env: dict[str, str] | None = None, asked: str | None = None) -> EffectiveConfig:
    request = DeliveryRequest(repository="r", request="x", agent=asked)
    return merge_config(
        host=load_host_config(env or {}, NO_FILE),
        env=env or {},
        repository=load_repository_config("version = 1\n" + text, "perdure.toml"),
        request=request,
    )


def refused(counts: EffectiveConfig, own: Path) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        resolve_agents(counts.config, counts.origins, own)
    return caught.value


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Presets of a host on whose PATH is the program `whole`, and nothing else of ours."""
    programs = tmp_path / "bin"
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    program(programs, "whole", "echo whole 2.1.0")
    directory = tmp_path / "agents"
    directory.mkdir()
    return directory


def test_without_a_choice_the_built_in_agent_works_and_no_preset_is_read(own: Path) -> None:
    (own / "codex.toml").write_text("no preset")
    counts = settings()
    assert resolve_agents(counts.config, counts.origins, own).config == counts.config


def test_flag_variable_and_file_choose_an_agent_the_flag_first(own: Path) -> None:
    text = '[steps.implement]\nagent = "a"\n'
    assert settings(text).config.steps.implement.agent == "a"
    assert settings(text, {"PERDURE_AGENT": "b"}).config.steps.implement.agent == "b"
    assert settings(text, {"PERDURE_AGENT": "b"}, "c").config.steps.review.agent == "c"


def test_an_unknown_agent_is_answered_with_the_nearest_name_and_the_setting(own: Path) -> None:
    error = refused(settings('[steps.implement]\nagent = "clade-code"\n'), own)
    assert "'clade-code' on this host (did you mean claude-code?)" in error.what
    assert error.where == "perdure.toml on main: [steps.implement] agent"


@pytest.mark.parametrize("name", ["../codex", "/bin/sh", "codex.toml", ""])
def test_a_repository_names_nothing_but_what_the_host_has(own: Path, name: str) -> None:
    counts = settings()
    steps = counts.config.steps
    named = steps.model_copy(update={"plan": steps.plan.model_copy(update={"agent": name})})
    assert (
        "no agent is called"
        in refused(EffectiveConfig(counts.config.model_copy(update={"steps": named}), {}), own).what
    )


@pytest.mark.parametrize(
    ("lacks", "step", "word"),
    [
        ('answers = "none"', "plan", "structured answers"),
        ("reads_only = false", "review", "reading only"),
        ("resume = false", "implement", "resuming"),
    ],
)
def test_an_agent_that_cannot_do_what_its_step_needs_is_refused_by_the_abilitys_name(
    own: Path, lacks: str, step: str, word: str
) -> None:
    preset(own, "mine", "whole", lacks)
    error = refused(settings(f'[steps.{step}]\nagent = "mine"\n'), own)
    assert error.what.startswith(f"mine lacks {lacks.partition(' ')[0]}, {word}")
    assert error.what.endswith(f"{step} needs that")


def test_an_agent_that_only_writes_may_build(own: Path) -> None:
    preset(own, "mine", "whole", 'answers = "none"')
    counts = settings('[steps.implement]\nagent = "mine"\n')
    assert resolve_agents(counts.config, counts.origins, own).config.steps.implement.agent == "mine"


def test_an_agents_own_model_counts_where_nobody_named_one(own: Path) -> None:
    preset(own, "mine", "whole")
    text = '[steps.implement]\nagent = "mine"\n[steps.plan]\nagent = "mine"\nmodel = "theirs"\n'
    counts = settings(text)
    found = resolve_agents(counts.config, counts.origins, own)
    assert found.config.steps.implement.model == "its-own"
    assert found.origins["steps.implement.model"] == "agent mine"
    assert found.config.steps.plan.model == "theirs"


def test_replies_of_an_agent_are_as_long_as_somebody_says_and_not_as_ours_for_a_small_model(own: Path) -> None:
    preset(own, "mine", "whole")
    counts = settings("[steps.implement]\nmax_tokens = 9000\n", asked="mine")
    found = resolve_agents(counts.config, counts.origins, own).config.steps
    assert (found.implement.max_tokens, found.classify.max_tokens) == (9000, 16_000)
    assert counts.config.steps.classify.max_tokens < 16_000


def test_an_agent_that_is_not_installed_is_refused_with_how_to_get_it(own: Path) -> None:
    preset(own, "mine", "absent-program")
    error = refused(settings('[steps.implement]\nagent = "mine"\n'), own)
    assert error.what == "Mine: absent-program is not installed, or not on PATH"
    assert error.fix == "get it"


def test_an_agent_of_the_agent_client_protocol_need_not_go_on_with_its_session(own: Path) -> None:
    preset(own, "mine", "whole", "resume = false", output='"acp"')
    counts = settings('[steps.implement]\nagent = "mine"\n')
    assert resolve_agents(counts.config, counts.origins, own).config.steps.implement.agent == "mine"


def test_a_second_model_that_is_the_first_one_is_refused_with_the_setting(own: Path) -> None:
    error = refused(settings('[steps.plan]\nmodel = "a"\nfallback = "a"\n'), own)
    assert error.what.startswith("a is the step's own model")
    assert error.where == "perdure.toml on main: [steps.plan] fallback"
    assert "\n" not in error.what


def test_only_the_built_in_agent_goes_on_with_a_second_model(own: Path) -> None:
    preset(own, "mine", "whole")
    error = refused(settings('[steps.implement]\nagent = "mine"\nfallback = "a"\n'), own)
    assert error.what == "mine goes on with no second model: only the built-in agent does"


def test_the_second_model_of_all_steps_is_none_for_those_that_work_with_it_or_name_their_own(own: Path) -> None:
    text = '[delivery]\nfallback = "a"\n[steps.plan]\nmodel = "a"\n[steps.review]\nfallback = "b"\n'
    config = settings(text).config
    resolve_agents(config, {}, own)
    found = {step: second_model(config, step) for step in (Step.PLAN, Step.REVIEW, Step.IMPLEMENT)}
    assert found == {Step.PLAN: "", Step.REVIEW: "b", Step.IMPLEMENT: "a"}
    assert second_model(settings().config, Step.PLAN) == ""
