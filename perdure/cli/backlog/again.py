"""A backlog handed in that was there already: what of these words it does not heed."""

from __future__ import annotations

from typing import Any

from perdure.cli.words import money
from perdure.models.backlog import BacklogRequest
from perdure.models.rules.backlog import not_counted
from perdure.text import one_line

_OPTIONS = {"budget_usd": "budget", "gates": "gate", "labels": "label", "after_red": "after-red"}
"""Fields that people know by an option of another name."""


def unheeded(there: BacklogRequest, sent: BacklogRequest) -> str:
    """`parallel 8 (it has 2), config did not count`: where it goes on as it was started. Empty: all is the same."""
    parts = [
        name if name == "config" else f"{_OPTIONS.get(name, name)} {_said(name, sent)} (it has {_said(name, there)})"
        for name in not_counted(there, sent)
    ]
    return f"{', '.join(parts)} did not count" if parts else ""


def _said(name: str, request: BacklogRequest) -> str:
    value: Any = getattr(request, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return one_line("+".join(value), 60)
    return money(value) if name == "budget_usd" else one_line(str(value), 60)
