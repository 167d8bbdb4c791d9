"""One step more of a model's effort, for the last fix that is allowed."""

from __future__ import annotations

from typing import get_args

from perdure.models.config import Effort, StepsSettings
from perdure.models.steps import FIXES

OF_ITSELF = {
    "claude-fable-5-1": "high",
    "claude-opus-5-5": "medium",
    "claude-opus-5": "high",
    "claude-sonnet-5-5": "high",
    "claude-haiku-5-5": "medium",
}
"""The effort of a model that is asked without one, by the published pages of the models (2026-11-23)."""

_EFFORTS: tuple[str, ...] = get_args(Effort)


def harder(steps: StepsSettings) -> dict[str, str]:
    """The effort above the one each fix is asked with, by step; none where that is the highest, or nobody knows it."""
    found = {}
    for step in FIXES:
        settings = getattr(steps, step)
        now = settings.effort or OF_ITSELF.get(settings.model)
        if now is not None and now != _EFFORTS[-1]:
            found[str(step)] = _EFFORTS[_EFFORTS.index(now) + 1]
    return found
