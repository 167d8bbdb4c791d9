"""A backlog that is handed in again under its id: which settings are ignored then, and which issues it does not
have."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from perdure.cli.formatting import money
from perdure.models.backlog import BacklogRequest
from perdure.models.rules.backlog import ignored_fields
from perdure.text import one_line

_OPTION_NAMES = {"budget_usd": "budget", "gates": "gate", "labels": "label", "after_red": "after-red"}
"""By field, the name of the option that sets it, where the two differ."""


def ignored_settings_line(existing: BacklogRequest, resubmitted: BacklogRequest) -> str:
    """Return one line that names the settings in which the resubmitted request differs from the existing one.

    `parallel 8 (it has 2), config did not count`: the backlog keeps what it was started with. Empty: nothing differs.
    """
    parts = [
        name
        if name == "config"
        else f"{_OPTION_NAMES.get(name, name)} {_field_text(name, resubmitted)} (it has {_field_text(name, existing)})"
        for name in ignored_fields(existing, resubmitted)
    ]
    return f"{', '.join(parts)} did not count" if parts else ""


def missing_issues_line(id: str, issues: Sequence[int], *, running: bool, repo: str = "") -> str:
    """Return one line that names open issues which the backlog does not have, and the command that adds them.

    Where the backlog has ended it is the command that delivers them by themselves. `repo`: the repository as it was
    typed. Empty: no issue is missing.
    """
    if not issues:
        return ""
    numbers = " ".join(map(str, issues))
    issue_argument = numbers if len(issues) == 1 else "$issue"
    command = f"perdure backlog add {shlex.quote(id)} --issue {issue_argument}"
    if not running:
        repo_option = f" --repo {shlex.quote(repo)}" if repo else ""
        command = f"perdure deliver --issue {issue_argument}{repo_option}{' --detach' if len(issues) > 1 else ''}"
    ended_note = "" if running else ", and it has ended"
    if len(issues) == 1:
        return f"issue {numbers} has come since{ended_note}: {command}"
    return (
        f"issues {', '.join(map(str, issues))} have come since{ended_note}: for issue in {numbers}; do {command}; done"
    )


def _field_text(name: str, request: BacklogRequest) -> str:
    """Return a field of the request as text for a person, at most 60 characters: `none`, `yes`, `$5.00`,
    `plan+pull_request`."""
    value: Any = getattr(request, name)
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return one_line("+".join(value), 60)
    return money(value) if name == "budget_usd" else one_line(str(value), 60)
