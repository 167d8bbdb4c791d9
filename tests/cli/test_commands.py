"""Typer looks at one command before it begins, not at all of them."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from typer.main import get_command

from perdure.cli.app import app


def test_a_command_that_comes_first_is_looked_at_alone() -> None:
    alone = get_command(app.narrow_to(["show", "x", "--json"]))
    assert list(getattr(alone, "commands", ())) == ["show"]
    assert [param.name for param in alone.params] == [param.name for param in get_command(app).params]


def test_a_group_that_comes_first_is_looked_at_alone() -> None:
    alone = get_command(app.narrow_to(["backlog", "status", "night"]))
    assert list(getattr(alone, "commands", ())) == ["backlog"]
    group = getattr(alone, "commands", {})["backlog"]
    assert list(group.commands) == [
        *("start", "status", "graph", "report", "add", "edit", "skip", "retry", "prioritise", "follow"),
        *("hold", "resume", "cancel"),
    ]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["shwo"], ["--version", "show"]])
def test_before_help_and_words_that_are_no_command_all_of_them_are(arguments: list[str]) -> None:
    assert app.narrow_to(arguments) is app


def prioritise(*arguments: str) -> Any:
    """The priority that these arguments of `perdure backlog prioritise` name."""
    command: Any = get_command(app.narrow_to(["backlog"]))
    context = command.commands["backlog"].commands["prioritise"].make_context("prioritise", list(arguments))
    return context.params["priority"]


def test_a_number_below_zero_is_an_argument_where_one_may_be() -> None:
    assert prioritise("night", "api", "-5") == -5
    assert prioritise("night", "api", "-100", "--json") == -100


@pytest.mark.parametrize("arguments", [("-101",), ("-5.5",), ("5", "--foo"), ("-5", "--foo"), ("--foo", "-5"), ("-x",)])
def test_an_option_that_is_none_stays_refused_beside_such_a_number(arguments: tuple[str, ...]) -> None:
    with pytest.raises(typer.TyperException):
        prioritise("night", "api", *arguments)
