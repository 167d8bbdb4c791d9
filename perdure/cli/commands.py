"""Perdure's variants of Typer's classes: flags show no type in their help, and advanced commands have a help page of
their own."""

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
"""The panel that only `--help-advanced` shows: what a person at work on deliveries does not type."""


ADVANCED_PAGE = "perdure.advanced"
"""Key in a context's `meta`: set where the help is to list the advanced commands."""

_SYNONYMS = {"status": "show", "ls": "list", "log": "logs", "start": "deliver", "stop": "cancel"}
"""Words that people try first, and the command they mean: too unlike it for a search by similar letters."""


_NEGATIVE_NUMBER = re.compile(r"-\d.*")


def _hide_flag_types(params: list[Any]) -> list[Any]:
    """Remove the type from the help of every flag, in place, and return the parameters."""
    for param in params:
        if isinstance(param, TyperOption) and param.is_flag and param.metavar is None:
            param.metavar = ""
    return params


class PerdureCommand(TyperCommand):
    """A command whose help shows no type for a flag, and which accepts `-5` as an argument."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; accept `-5` as a number where an argument of this command may be below zero.

        Anywhere else `-5` is an unknown option, as usual.
        """
        minima = [getattr(param, "min", None) for param in self.params if param.param_type_name == "argument"]
        if any((minimum or 0) < 0 for minimum in minima) and any(map(_NEGATIVE_NUMBER.fullmatch, args)):
            ctx.ignore_unknown_options = (
                True  # any other unknown option then counts as an argument, and is refused as one too many
            )
        return super().parse_args(ctx, args)


class PerdureGroup(TyperGroup):
    """A group of commands whose help lists either the ordinary commands or the advanced ones."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands on the help page that is shown; for shell completion, of all commands.

        ADVANCED_PAGE in the context's `meta` chooses the page. Completion is recognised by `resilient_parsing`.
        """
        if ctx.resilient_parsing:
            return super().list_commands(ctx)
        show_advanced = bool(ctx.meta.get(ADVANCED_PAGE))
        return [
            name
            for name, command in self.commands.items()
            if (getattr(command, "rich_help_panel", None) == ADVANCED) == show_advanced
        ]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name; for an unknown word of _SYNONYMS, name the right command in the
        error."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if (synonym := _SYNONYMS.get(args[0])) in self.commands:
                error.message = f"No such command {args[0]!r}. Did you mean {synonym!r}?"
            raise


class CommandGroup(typer.Typer):
    """A Typer app whose commands and groups are PerdureCommand and PerdureGroup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=PerdureGroup, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, cls=PerdureCommand, **options)

    def narrow_to(self, arguments: Sequence[str]) -> CommandGroup:
        """Return a copy that holds only the command or group which the first argument names; this app itself where it
        names none.

        Before a command begins, Typer looks at every parameter of every command: that takes longer than most commands
        do.
        """
        first = list(arguments[:1])
        matching = [info for info in self.registered_commands if [_command_name(info)] == first]
        groups = [info for info in self.registered_groups if [info.name] == first]
        if not (matching or groups):
            return self
        narrowed = copy.copy(self)
        narrowed.registered_commands, narrowed.registered_groups = matching, groups
        return narrowed


def _command_name(info: CommandInfo) -> str:
    return info.name or get_command_name(info.callback.__name__ if info.callback else "")
