"""An agent is refused before anything is paid for, with what it lacks and where it was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.agents.resolve_agents import resolve_agents, second_model
from perdure.adapters.repository.config import EffectiveConfig, load_repository_config, merge_config
from perdure.adapters.repository.host import load_host_config
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.errors import InvalidRequest
from perdure.models.phases import Step
from tests.adapters.agents.preset_fixtures import preset, program
from tests.command_fixtures import NO_FILE


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
