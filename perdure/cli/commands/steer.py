"""Declare the commands that change the course of a delivery, with their parameters and help only. The work of each is
the function of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.command_groups import runs
from perdure.cli.commands.options import (
    LAST,
    DeliveryId,
    Json,
)

RecordedJson = Annotated[bool, typer.Option("--json", help="Print what was recorded as JSON.")]
OtherModel = Annotated[str, typer.Option("--model", metavar="M", help="Another model for all steps from there on.")]
OtherAgent = Annotated[str, typer.Option("--agent", metavar="A", help="Another agent, likewise.")]
ResultJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@runs("perdure.cli.decide.answer:say")
def say(
    id: DeliveryId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the agent shall know; - reads it.")],
    json: RecordedJson = False,
) -> None:
    """Tell the agent something: its next turn reads it, exactly once, worker up or down."""


@runs("perdure.cli.decide.answer:hold")
def hold(
    id: DeliveryId = LAST,
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for those who wonder.")] = "",
    json: RecordedJson = False,
) -> None:
    """Begin no further turn until resume; the one that runs goes on to its end."""


@runs("perdure.cli.decide.answer:resume")
def resume(
    id: DeliveryId = LAST,
    json: RecordedJson = False,
) -> None:
    """Go on after a hold."""


@runs("perdure.cli.look.turns:rewind")
def rewind(
    id: DeliveryId,
    to: Annotated[
        str, typer.Option("--to", metavar="STEP[:TURN]", help="The turn to take anew, as perdure turns names it.")
    ],
    say: Annotated[str, typer.Option("--say", metavar="TEXT", help="Words for that turn.")] = "",
    model: OtherModel = "",
    agent: OtherAgent = "",
    repeat: Annotated[bool, typer.Option("--again", help="Also where it was rewound just so before.")] = False,
    json: Json = False,
) -> None:
    """Go back to before a turn of a delivery: files and conversation as they were, taken anew from there.

    One that has ended goes on in a new run; its pull request is brought up to date.
    """


@runs("perdure.cli.look.turns:fork")
def fork(
    id: DeliveryId,
    at: Annotated[
        str, typer.Option("--at", metavar="STEP[:TURN]", help="The turn it begins before, as perdure turns names it.")
    ],
    say: Annotated[str, typer.Option("--say", metavar="TEXT", help="Words for that turn.")] = "",
    model: OtherModel = "",
    agent: OtherAgent = "",
    name: Annotated[str, typer.Option("--id", metavar="NAME", help="The sibling's id.")] = "",
    json: Json = False,
) -> None:
    """Start a sibling from a turn of a delivery, running or ended: its files and conversation, then its own way.

    It has its own branch, workspace and cost; the delivery goes on as if nothing were.
    """


@runs("perdure.cli.request.retry:retry")
def retry(
    id: DeliveryId,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0.01, help="A new limit for all its runs together.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Start it and leave.")] = False,
    json: ResultJson = False,
) -> None:
    """Go on from the last checkpoint of a delivery that ended without delivering."""


@runs(
    "perdure.cli.request.retry:cancel", backlog="perdure.cli.backlog.change:cancel", fixed={"item": None, "yes": False}
)
def cancel(
    id: DeliveryId,
    now: Annotated[bool, typer.Option("--now", help="End its running tools at once.")] = False,
    json: ResultJson = False,
) -> None:
    """Stop a delivery and wait until it has ended. Its branch and last checkpoint stay; retry goes on from there.

    The turn that runs may end first, so that nothing of it is lost, unless --now.
    """
