"""Typer looks at one command before it begins, not at all of them."""

from __future__ import annotations

import pytest
from typer.main import get_command

from perdure.cli.app import app


def test_a_command_that_comes_first_is_looked_at_alone() -> None:
    alone = get_command(app.needed(["show", "x", "--json"]))
    assert list(getattr(alone, "commands", ())) == ["show"]
    assert [param.name for param in alone.params] == [param.name for param in get_command(app).params]


def test_a_group_that_comes_first_is_looked_at_alone() -> None:
    alone = get_command(app.needed(["backlog", "status", "night"]))
    assert list(getattr(alone, "commands", ())) == ["backlog"]
    group = getattr(alone, "commands", {})["backlog"]
    assert list(group.commands) == [
        *("start", "status", "graph", "report", "add", "edit", "skip", "retry", "prioritise", "follow"),
        *("hold", "resume", "cancel"),
    ]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["shwo"], ["--version", "show"]])
def test_before_help_and_words_that_are_no_command_all_of_them_are(arguments: list[str]) -> None:
    assert app.needed(arguments) is app
