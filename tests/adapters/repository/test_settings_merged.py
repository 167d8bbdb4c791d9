"""Settings of several sources, and the one that counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.repository.config import (
    LOWERED,
    EffectiveConfig,
    fill_in_detected,
    load_repository_config,
    merge_config,
)
from perdure.adapters.repository.detect import DetectedCommands
from perdure.adapters.repository.host import load_host_config, user_file_name
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import Limits, RepositoryConfig, TestCommand, parse_duration
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.phases import Phase
from tests.command_fixtures import NO_FILE


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
