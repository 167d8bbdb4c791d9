"""One step more of a model's effort, for the last fix that is allowed."""

from __future__ import annotations

from typing import get_args

from perdure.models.config import Effort, StepsSettings
from perdure.models.steps import FIXES

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
    """Return the effort above the one that each fix is made with, by step; without steps whose effort is the highest
    already, or not known."""
    efforts = {}
    for step in FIXES:
        settings = getattr(steps, step)
        effort = settings.effort or DEFAULT_EFFORTS.get(settings.model)
        if effort is not None and effort != _EFFORTS[-1]:
            efforts[str(step)] = _EFFORTS[_EFFORTS.index(effort) + 1]
    return efforts
