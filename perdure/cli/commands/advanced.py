"""Declare the commands that services and tests of Perdure itself are made of, with their parameters and help only. The
work of each is the function of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.command_groups import CommandGroup, runs
from perdure.cli.commands.options import (
    Json,
)

Port = Annotated[
    int | None, typer.Option("--port", metavar="N", min=1, max=65535, help="Of Temporal; default: the first free one.")
]
UiPort = Annotated[int | None, typer.Option("--ui-port", metavar="N", min=1, max=65535, help="Of the Web UI.")]

server = CommandGroup(
    no_args_is_help=True,
    help="The embedded Temporal server of this home.",
)


@runs("perdure.cli.host.local:worker")
def worker(
    publisher: Annotated[
        bool,
        typer.Option(
            "--publisher", help="Only publish: the worker of PERDURE_PUBLISHER_QUEUE, with the forge's token."
        ),
    ] = False,
) -> None:
    """Run one worker in the foreground, for service managers and containers; SIGTERM lets it finish its turns."""


@runs("perdure.rehearsal.server:play_file")
def rehearse(
    file: Annotated[Path, typer.Argument(help="A screenplay: which reply to which conversation.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free one.")] = 0,
) -> None:
    """Play a model: a Messages API server that answers from a screenplay. Point ANTHROPIC_BASE_URL at it."""


@runs("perdure.cli.host.server:address")
def address() -> None:
    """Print the address of the Temporal server that this command line uses, for programs of your own; exit code 3 when
    the embedded one does not run: TEMPORAL_ADDRESS=$(perdure address) go run ."""


@runs(
    "perdure.cli.host.server:temporal",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def temporal(
    context: typer.Context,
) -> None:
    """The bundled Temporal command line, against this home's server: perdure temporal workflow list."""


@server.command()
@runs("perdure.cli.host.server:start")
def start(
    port: Port = None,
    ui_port: UiPort = None,
) -> None:
    """Start it in the background."""


@server.command()
@runs("perdure.cli.host.server:stop")
def stop() -> None:
    """End it; nothing is lost."""


@server.command()
@runs("perdure.cli.host.server:status")
def status(
    json: Json = False,
) -> None:
    """Say if it runs, and where; exit code 3 when it does not."""
