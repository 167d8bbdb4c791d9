"""Declare the commands by which a person decides what a delivery waits for, with their parameters and help only. The
work of each is the function of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.command_groups import runs
from perdure.cli.commands.options import (
    LAST,
    WAITING,
    Json,
    WaitingId,
)

CountedJson = Annotated[bool, typer.Option("--json", help="Print what was counted as JSON.")]
Target = Annotated[
    str, typer.Option("--of", metavar="NAME", help="Only if it is this plan, commit or question that waits.")
]


@runs("perdure.cli.decide.answer:approve")
def approve(
    id: WaitingId = WAITING,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="A word to go with it, for the record.")] = "",
    target: Target = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not show it and ask first, as on a terminal.")] = False,
    edit: Annotated[bool, typer.Option("--edit", help="Edit plan or items first, in $VISUAL or $EDITOR.")] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE|-", help="An edited plan, or items, in the place of what waits."),
    ] = None,
    show: Annotated[bool, typer.Option("--print", help="Only print plan or items, as --file takes them.")] = False,
    json: CountedJson = False,
) -> None:
    """Say yes to what a delivery waits with: its plan, its items, its pull request, or a price nobody knows.

    What could not land, or was cut off again and again, is tried once more. On a terminal it shows the plan, the items
    or the change first and asks; elsewhere it asks nothing.
    """


@runs("perdure.cli.decide.answer:reject")
def reject(
    id: WaitingId,
    note: Annotated[
        str | None, typer.Option("--note", metavar="TEXT|-", help="What is wrong, and what instead; - reads it.")
    ] = None,
    target: Target = "",
    json: CountedJson = False,
) -> None:
    """Send back what a delivery waits with: planning or fixing begins again with your words.

    What could not land, was cut off again and again, or has no budget left ends; its work is kept, retry goes on.
    """


@runs("perdure.cli.decide.answer:answer")
def answer(
    id: WaitingId,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The answer; - reads it.")] = None,
    choice: Annotated[
        str | None, typer.Option("--choice", metavar="N|TEXT", help="One of the choices: its number or its beginning.")
    ] = None,
    target: Target = "",
    json: CountedJson = False,
) -> None:
    """Answer the question a delivery waits with; the agent reads it in its next turn.

    A choice may be named by its number or by how it begins, yes and no by y and n.
    """


@runs("perdure.cli.decide.budget:budget")
def budget(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A delivery; with --shared a budget as it is named there: label:team-a.",
            show_default=True,
        ),
    ] = LAST,
    add: Annotated[float | None, typer.Option("--add", metavar="USD", help="Dollars more.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Tokens more.")] = None,
    time: Annotated[str | None, typer.Option("--time", metavar="1h", help="Time more.")] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Of the day's budgets (UTC) that deliveries share by repository or label.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what a delivery has spent and may spend; with options, let it spend more: it goes on at the same turn."""
