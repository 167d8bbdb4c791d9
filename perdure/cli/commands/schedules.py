"""Declare the commands of `perdure schedules`, with their parameters and help only. The work of each is the function
of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.command_groups import CommandGroup, runs
from perdure.cli.commands.options import (
    Json,
)

ScheduleId = Annotated[str, typer.Argument(metavar="ID", help="A schedule, as perdure schedules shows it.")]

schedules = CommandGroup(
    help="All that begins at a time (--at, --every): listed; paused, resumed or removed by its id."
)


@schedules.callback(invoke_without_command=True)
@runs("perdure.cli.look.schedules:list_schedules")
def list_schedules(
    context: typer.Context,
    json: Json = False,
) -> None:
    """List all that begins at a time (--at, --every), and what became of it the last time."""


@schedules.command()
@runs("perdure.cli.look.schedules:pause")
def pause(
    id: ScheduleId,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For who looks at it.")] = "",
) -> None:
    """Begin nothing until it is resumed; what runs goes on."""


@schedules.command()
@runs("perdure.cli.look.schedules:resume")
def resume(
    id: ScheduleId,
) -> None:
    """Begin again at its times; those that passed meanwhile are not made up for."""


@schedules.command()
@runs("perdure.cli.look.schedules:remove")
def remove(
    id: ScheduleId,
) -> None:
    """Forget it. What it has started goes on."""
