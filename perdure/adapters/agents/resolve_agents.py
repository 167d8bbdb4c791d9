"""The check of the agents that a delivery's settings name: known on this host, able to carry out their steps,
installed; which model and effort a step goes on with: the second model, and one level more of effort for the last fix
that is allowed; and which models have no known price. Used by the activities that prepare or fork a delivery, and by
the built-in agent's turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from perdure.adapters.agents.presets import check_program, read_preset
from perdure.adapters.agents.prices import listed_price
from perdure.adapters.repository.config import DEFAULT, EffectiveConfig
from perdure.models.config.preset import Ability, Preset
from perdure.models.config.repository import BUILT_IN, Effort, RepositoryConfig, StepSettings, StepsSettings
from perdure.models.delivery.steps import AGENTIC, FIXES, STEPS
from perdure.models.delivery.turn import Contract
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import DEFAULTS
from perdure.models.phases import Phase, Step

_ABILITY_LABELS = {
    Ability.ANSWERS: "structured answers",
    Ability.READS_ONLY: "reading only",
    Ability.RESUME: "resuming its session, without which a death loses its work",
}


def needed_abilities(step: Step) -> tuple[Ability, ...]:
    """Return the abilities that a step needs of its agent: to resume its session in any case, structured answers where
    the step has one, and reading only where it writes no files."""
    spec = STEPS[step]
    return (
        Ability.RESUME,
        *((Ability.ANSWERS,) if spec.answer is not None else ()),
        *((Ability.READS_ONLY,) if not spec.writes else ()),
    )


def resolve_agents(
    config: RepositoryConfig, origins: Mapping[str, str], own_directory: Path | None = None
) -> EffectiveConfig:
    """Check the agents that the settings name, and return the settings with each agent's own model where nobody named
    one. With another agent than the built-in one a reply's longest length that nobody set is the general default, not
    the step's.

    origins        by dotted name, where a setting comes from; in the result, `agent NAME` for such a model
    own_directory  of the host's own presets; None: the usual one

    Raises InvalidRequest, with the setting, for a name that this host does not know (and the nearest one), for a preset
    that is wrong, an agent that lacks an ability its step needs, one that is not installed or too old here, and a
    second model that cannot help.
    """
    steps, new_origins = config.steps, dict(origins)
    presets: dict[str, Preset] = {}
    for step in AGENTIC:
        settings = getattr(steps, step)
        if settings.fallback is not None:
            _check_fallback(settings, f"{origins.get(f'steps.{step}.fallback', DEFAULT)}: [steps.{step}] fallback")
        if settings.agent == BUILT_IN:
            continue
        where = f"{origins.get(f'steps.{step}.agent', DEFAULT)}: [steps.{step}] agent"
        if settings.agent not in presets:
            presets[settings.agent] = _load_usable_preset(settings.agent, where, own_directory)
        preset = presets[settings.agent]
        for ability in needed_abilities(step):
            if not preset.supports(ability):
                raise InvalidRequest(
                    f"{settings.agent} lacks {ability}, {_ABILITY_LABELS[ability]}, and {step} needs that",
                    where=where,
                    fix=f'choose another agent for {step}, or "{BUILT_IN}"',
                )
        model_key = f"steps.{step}.model"
        if preset.model and new_origins.get(model_key, DEFAULT) == DEFAULT:
            settings = settings.model_copy(update={"model": preset.model})
            new_origins[model_key] = f"agent {settings.agent}"
        if new_origins.get(f"steps.{step}.max_tokens", DEFAULT) == DEFAULT:  # the step's own default fits our model
            settings = settings.model_copy(update={"max_tokens": DEFAULTS.max_tokens})
        steps = steps.model_copy(update={step: settings})
    return EffectiveConfig(config.model_copy(update={"steps": steps}), new_origins)


def uses_cli_agent(config: RepositoryConfig) -> bool:
    """Return whether a step is carried out by another agent than the built-in one."""
    return any(getattr(config.steps, step).agent != BUILT_IN for step in AGENTIC)


def second_model(config: RepositoryConfig, step: Step) -> str:
    """Return the model that goes on with a step where its own cannot; empty: none. The default of all steps does not
    count where the step works with that model anyway."""
    settings = getattr(config.steps, step)
    name: str = settings.fallback or config.delivery.fallback or ""
    return name if name != settings.model else ""


_STEPS_OF_PHASES = {
    Phase.PLAN: (Step.CLASSIFY, Step.PLAN),
    Phase.BUILD: (Step.IMPLEMENT,),
    Phase.TEST: (Step.FIX_TESTS,),
    Phase.REVIEW: (Step.REVIEW, Step.FIX_REVIEW),
    Phase.SHIP: (Step.FIX_REVIEW,),
}
"""The agentic steps that a delivery may take in each phase."""


def unpriced_models(contract: Contract) -> tuple[str, ...]:
    """Return the models that a delivery may ask in its phases, second ones too, whose price is not in the table,
    sorted."""
    config, landing = contract.config, contract.landing
    steps = [step for phase in config.delivery.phases for step in _STEPS_OF_PHASES.get(Phase(phase), ())]
    steps += [Step.DOCUMENT] if config.delivery.document else []
    steps += [Step.DECOMPOSE if landing.decompose else Step.FIX_LANDING] if landing is not None else []
    models = {model for step in steps for model in (getattr(config.steps, step).model, second_model(config, step))}
    return tuple(sorted(model for model in models if model and listed_price(model) is None))


def _check_fallback(settings: StepSettings, where: str) -> None:
    """Raise InvalidRequest where a step's second model is its own one, or its agent is not the built-in one.

    Only for settings with a second model: without one, any agent but the built-in one is refused too.
    """
    if settings.fallback == settings.model:
        what = f"{settings.fallback} is the step's own model: where that cannot go on, it cannot either"
        raise InvalidRequest(what, where=where, fix="name another model, or leave it out")
    if settings.agent != BUILT_IN:
        what = f"{settings.agent} goes on with no second model: only the built-in agent does"
        raise InvalidRequest(what, where=where, fix=f'leave it out, or choose the agent "{BUILT_IN}"')


def _load_usable_preset(name: str, where: str, own_directory: Path | None) -> Preset:
    """Return the preset of this name. Raises InvalidRequest where there is none, it is wrong, or its program cannot be
    used here."""
    try:
        preset = read_preset(name, own_directory).preset
    except BadInput as error:
        raise InvalidRequest(error.what, where=error.where or where, fix=error.fix) from None
    check = check_program(preset)
    if check.problem:
        raise InvalidRequest(f"{preset.title}: {check.problem}", where=where, fix=check.fix)
    return preset


DEFAULT_EFFORTS = {
    "claude-fable-5-1": "high",
    "claude-opus-5-5": "medium",
    "claude-opus-5": "high",
    "claude-sonnet-5-5": "high",
    "claude-haiku-5-5": "medium",
}
"""The effort of a model that is asked without one, by the published pages of the models (2026-11-23)."""

_EFFORTS: tuple[str, ...] = get_args(Effort)


def next_efforts(steps: StepsSettings) -> dict[str, str]:
    """Return for each fixing step, by its name, the effort one level above the one it is made with; steps whose effort
    is the highest already, or not known, are left out."""
    efforts = {}
    for step in FIXES:
        settings = getattr(steps, step)
        effort = settings.effort or DEFAULT_EFFORTS.get(settings.model)
        if effort is not None and effort != _EFFORTS[-1]:
            efforts[str(step)] = _EFFORTS[_EFFORTS.index(effort) + 1]
    return efforts
