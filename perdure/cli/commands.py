"""Typer as it is used here: flags without a type in their help, and a page of its own for advanced commands."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_name
from typer.models import CommandInfo

START = "Start here"
LOOK = "Look"
DECIDE = "Decide"
STEER = "Steer"
HOST = "This host"
ADVANCED = "Advanced"
"""Shown by `--help-advanced` alone: what a person at work on deliveries does not type."""


ADVANCED_PAGE = "perdure.advanced"
"""In a context's `meta`: its help is about the advanced commands."""

_MEANT = {"status": "show", "ls": "list", "log": "logs", "start": "deliver", "stop": "cancel"}
"""Words that people try first, too unlike ours to be found by their letters."""


_BELOW_ZERO = re.compile(r"-\d.*")


def _without_types(params: list[Any]) -> list[Any]:
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """With `-5` as a number where an argument may be one below zero: an unknown option anywhere else."""
        numbers = [getattr(one, "min", None) for one in self.params if one.param_type_name == "argument"]
        if any((least or 0) < 0 for least in numbers) and any(map(_BELOW_ZERO.fullmatch, args)):
            ctx.ignore_unknown_options = True  # such a one then stands among the arguments, and is one too many
        return super().parse_args(ctx, args)


class Group(TyperGroup):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """For help: those of the page that was asked for. For completion (which is `resilient_parsing`): all."""
        if ctx.resilient_parsing:
            return super().list_commands(ctx)
        wanted = bool(ctx.meta.get(ADVANCED_PAGE))
        return [
            name
            for name, command in self.commands.items()
            if (getattr(command, "rich_help_panel", None) == ADVANCED) == wanted
        ]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if (meant := _MEANT.get(args[0])) in self.commands:
                error.message = f"No such command {args[0]!r}. Did you mean {meant!r}?"
            raise


class Commands(typer.Typer):
    """A group of commands."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, cls=Command, **options)

    def needed(self, arguments: Sequence[str]) -> Commands:
        """The same with nothing but the command that comes first, a group of them too, or with all where none does.

        Before it begins, Typer looks at every parameter of every command: that takes longer than most commands do.
        """
        first = list(arguments[:1])
        found = [info for info in self.registered_commands if [_name(info)] == first]
        groups = [info for info in self.registered_groups if [info.name] == first]
        if not (found or groups):
            return self
        alone = copy.copy(self)
        alone.registered_commands, alone.registered_groups = found, groups
        return alone


def _name(info: CommandInfo) -> str:
    return info.name or get_command_name(info.callback.__name__ if info.callback else "")
