"""Perdure's variants of Typer's classes: a command's work is imported when the command begins, flags show no type in
their help, and advanced commands have a help page of their own. Used by the `perdure` command itself and by the
declarations in `perdure.cli.commands`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from inspect import Signature, signature
from typing import Annotated, Any, ParamSpec, get_origin, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from perdure.cli.commands import ADVANCED, PANELS
from perdure.models.errors import BacklogNamed

ADVANCED_PAGE = "perdure.advanced"
"""Key in a context's `meta`: set where the help is to list the advanced commands."""

_SYNONYMS = {"status": "show", "ls": "list", "log": "logs", "start": "deliver", "stop": "cancel"}
"""Words that people try first, and the command they mean: too unlike it for a search by similar letters."""

_NEGATIVE_NUMBER = re.compile(r"-\d.*")

P = ParamSpec("P")


def runs(
    target: str, backlog: str = "", fixed: Mapping[str, object] | None = None, **settings: Any
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a command of a function that has only parameters and help: it calls `target`, with the parameters by name.

    A parameter `options` stands for the options that are declared in its dataclass.

    target    `module:function`; imported when the command begins, not before
    backlog   likewise: called instead where the id is that of a backlog, with the parameters that it has, and `fixed`
    settings  Typer's settings of the command
    """

    def make_command(declared: Callable[P, None]) -> Callable[P, None]:
        options = get_type_hints(declared)["options"] if "options" in declared.__annotations__ else None

        @wraps(declared)
        def call_target(*arguments: P.args, **parameters: P.kwargs) -> None:
            values: dict[str, Any] = parameters if options is None else {"options": options(**parameters)}
            try:
                import_object(target)(*arguments, **values)
            except BacklogNamed as error:
                if not backlog:
                    raise
                of_backlog = import_object(backlog)
                shared = {name: value for name, value in values.items() if name in signature(of_backlog).parameters}
                of_backlog(**shared | dict(fixed or {}) | {"id": error.where})

        vars(call_target).update(target=target, settings=settings)
        if options is not None:
            vars(call_target)["__signature__"] = _options_signature(options)
        return call_target

    return make_command


def _options_signature(options: type) -> Signature:
    """Return a signature with the fields of a dataclass that are declared as options or arguments of a command."""
    fields = signature(options, eval_str=True)
    return fields.replace(
        parameters=[field for field in fields.parameters.values() if get_origin(field.annotation) is Annotated]
    )


def import_object(target: str) -> Any:
    """Import the object that `module:name` names, and return it."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


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
    """A group of commands that knows which command some unknown words mean."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_flag_types(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name; for an unknown word of _SYNONYMS, name the right command in the
        error."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if (synonym := _SYNONYMS.get(args[0])) in self.commands:
                error.message = f"No such command {args[0]!r}. Did you mean {synonym!r}?"
            raise


class RootGroup(PerdureGroup):
    """The group of all commands; its help lists either the ordinary ones or the advanced ones."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": LazyCommands()})

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands on the help page that is shown; for shell completion, of all commands.

        ADVANCED_PAGE in the context's `meta` chooses the page. Completion is recognised by `resilient_parsing`.
        """
        show_advanced = bool(ctx.meta.get(ADVANCED_PAGE))
        return [
            name
            for name, (panel, _) in _TARGETS.items()
            if ctx.resilient_parsing or (panel == ADVANCED) == show_advanced
        ]


_TARGETS = {
    target.partition(":")[2].rstrip("_"): (panel, f"perdure.cli.commands.{target}")
    for panel, targets in PANELS.items()
    for target in targets
}
"""By name of a command, its panel and where it is defined."""


class LazyCommands(Mapping[str, Any]):
    """All commands by name; one is imported and made when it is looked up.

    Typer looks at every parameter of a command to make it: for all commands that takes longer than most commands do.
    """

    def __getitem__(self, name: str) -> Any:
        panel, target = _TARGETS[name]
        command = import_object(target)
        shared: dict[str, Any] = {"pretty_exceptions_short": False, "rich_markup_mode": "rich"}
        if isinstance(command, typer.Typer):
            info = TyperInfo(command, name=name, rich_help_panel=panel)
            return get_group_from_info(info, suggest_commands=True, **shared)
        settings = {"cls": PerdureCommand, "callback": command, "rich_help_panel": panel, **vars(command)["settings"]}
        return get_command_from_info(CommandInfo(name, **settings), **shared)

    def __iter__(self) -> Iterator[str]:
        return iter(_TARGETS)

    def __len__(self) -> int:
        return len(_TARGETS)


class CommandGroup(typer.Typer):
    """A Typer app whose commands and groups are PerdureCommand and PerdureGroup."""

    def __init__(self, *, cls: type[PerdureGroup] = PerdureGroup, **options: Any) -> None:
        super().__init__(cls=cls, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[..., Any]:
        return super().command(name, cls=PerdureCommand, **options)
