"""The agents that a delivery's settings name: known here, able to carry out their steps, installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.agents.installed import look
from perdure.adapters.agents.presets import read_preset
from perdure.adapters.repository.config import DEFAULT, Effective
from perdure.models.config import BUILT_IN, RepositoryConfig, StepSettings
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import DEFAULTS
from perdure.models.phases import Step
from perdure.models.preset import Ability, Preset
from perdure.models.steps import AGENTIC, STEPS

_WHY = {
    Ability.ANSWERS: "structured answers",
    Ability.READS_ONLY: "reading only",
    Ability.RESUME: "resuming its session, without which a death loses its work",
}


def needed(step: Step) -> tuple[Ability, ...]:
    """The abilities an agent needs for a step."""
    about = STEPS[step]
    return (
        Ability.RESUME,
        *((Ability.ANSWERS,) if about.answer is not None else ()),
        *((Ability.READS_ONLY,) if not about.writes else ()),
    )


def chosen(config: RepositoryConfig, origins: Mapping[str, str], own: Path | None = None) -> Effective:
    """The settings, with checked agents, and each agent's own model where nobody named one.

    Raises InvalidRequest, with the setting, for a name that this host does not know (and the nearest one), for a preset
    that is wrong, an agent that lacks an ability its step needs, and one that is not installed or too old here.
    """
    steps, told = config.steps, dict(origins)
    looked: dict[str, Preset] = {}
    for step in AGENTIC:
        settings = getattr(steps, step)
        if settings.fallback is not None:
            _check_fallback(settings, f"{origins.get(f'steps.{step}.fallback', DEFAULT)}: [steps.{step}] fallback")
        if settings.agent == BUILT_IN:
            continue
        where = f"{origins.get(f'steps.{step}.agent', DEFAULT)}: [steps.{step}] agent"
        if settings.agent not in looked:
            looked[settings.agent] = _usable(settings.agent, where, own)
        preset = looked[settings.agent]
        for ability in needed(step):
            if not preset.can(ability):
                raise InvalidRequest(
                    f"{settings.agent} lacks {ability}, {_WHY[ability]}, and {step} needs that",
                    where=where,
                    fix=f'choose another agent for {step}, or "{BUILT_IN}"',
                )
        model = f"steps.{step}.model"
        if preset.model and told.get(model, DEFAULT) == DEFAULT:
            settings = settings.model_copy(update={"model": preset.model})
            told[model] = f"agent {settings.agent}"
        if told.get(f"steps.{step}.max_tokens", DEFAULT) == DEFAULT:  # ours are for a model that we chose, too
            settings = settings.model_copy(update={"max_tokens": DEFAULTS.max_tokens})
        steps = steps.model_copy(update={step: settings})
    return Effective(config.model_copy(update={"steps": steps}), told)


def proxied(config: RepositoryConfig) -> bool:
    """True where a step is another agent's than the built-in one's."""
    return any(getattr(config.steps, step).agent != BUILT_IN for step in AGENTIC)


def second_model(config: RepositoryConfig, step: Step) -> str:
    """The model that goes on with a step where its own cannot; empty: none. The default of all steps is none for those
    that work with it anyway."""
    settings = getattr(config.steps, step)
    second: str = settings.fallback or config.delivery.fallback or ""
    return second if second != settings.model else ""


def _check_fallback(settings: StepSettings, where: str) -> None:
    if settings.fallback == settings.model:
        what = f"{settings.fallback} is the step's own model: where that cannot go on, it cannot either"
        raise InvalidRequest(what, where=where, fix="name another model, or leave it out")
    if settings.agent != BUILT_IN:
        what = f"{settings.agent} goes on with no second model: only the built-in agent does"
        raise InvalidRequest(what, where=where, fix=f'leave it out, or choose the agent "{BUILT_IN}"')


def _usable(name: str, where: str, own: Path | None) -> Preset:
    try:
        preset = read_preset(name, own).preset
    except BadInput as error:
        raise InvalidRequest(error.what, where=error.where or where, fix=error.fix) from None
    found = look(preset)
    if found.problem:
        raise InvalidRequest(f"{preset.title}: {found.problem}", where=where, fix=found.fix)
    return preset
