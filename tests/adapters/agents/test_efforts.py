"""The effort of the last fix that is allowed."""

from __future__ import annotations

import pytest

from perdure.adapters.agents.resolve_agents import next_efforts
from perdure.models.config.repository import StepSettings, StepsSettings


@pytest.mark.parametrize(
    ("model", "effort", "last"),
    [
        ("claude-sonnet-5-5", None, "xhigh"),
        ("claude-opus-5-5", None, "high"),
        ("claude-sonnet-5-5", "low", "medium"),
        ("claude-sonnet-5-5", "xhigh", "max"),
        ("claude-sonnet-5-5", "max", None),
        ("a-gateway's", "low", "medium"),
        ("a-gateway's", None, None),
    ],
)
def test_it_is_one_step_above_the_settings_or_the_models_own_and_never_beyond_the_highest(
    model: str, effort: str | None, last: str | None
) -> None:
    settings = StepSettings.model_validate({"model": model, "effort": effort})
    found = next_efforts(StepsSettings(fix_tests=settings))
    assert found.get("fix_tests") == last
    assert "implement" not in found
