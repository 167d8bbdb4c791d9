"""A backlog handed in that was there already: what of it does not count there, and what has come since."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
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


def since_then(id: str, issues: Sequence[int], *, running: bool, repo: str = "") -> str:
    """Name the issues that it has not, and the command that adds them; where it has ended, the one that builds them.
    `repo`: the repository as it was typed. Empty: it has all."""
    if not issues:
        return ""
    numbers = " ".join(map(str, issues))
    each = numbers if len(issues) == 1 else "$issue"
    typed = f"perdure backlog add {shlex.quote(id)} --issue {each}"
    if not running:
        at = f" --repo {shlex.quote(repo)}" if repo else ""
        typed = f"perdure deliver --issue {each}{at}{' --detach' if len(issues) > 1 else ''}"
    ended = "" if running else ", and it has ended"
    if len(issues) == 1:
        return f"issue {numbers} has come since{ended}: {typed}"
    return f"issues {', '.join(map(str, issues))} have come since{ended}: for issue in {numbers}; do {typed}; done"


def _said(name: str, request: BacklogRequest) -> str:
    value: Any = getattr(request, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return one_line("+".join(value), 60)
    return money(value) if name == "budget_usd" else one_line(str(value), 60)
