"""Declare the commands for this host, with their parameters and help only. The work of each is the function of
perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.command_groups import runs
from perdure.cli.commands.options import (
    Json,
)


@runs("perdure.cli.host.local:up")
def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="In the background.")] = False,
) -> None:
    """Run Temporal, a worker and the page for this home; a worker that dies is started again at once."""


@runs("perdure.cli.host.local:down")
def down() -> None:
    """End worker, page and server of this home. Deliveries go on with the next up."""


@runs("perdure.cli.host.doctor:doctor")
def doctor(
    sandbox: Annotated[bool, typer.Option("--sandbox", help="Only run one command in the sandbox.")] = False,
    notify: Annotated[
        bool, typer.Option("--notify", help="Only send a test to every webhook; say what it answered.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this host, and the repository you are in: every line says what to do. Exit code 1 when something needed
    is missing."""


@runs("perdure.cli.host.agents:agents")
def agents(
    json: Json = False,
) -> None:
    """The agents of this host: what each can do, and whether it is installed.

    `[steps.implement] agent = "NAME"` in perdure.toml, PERDURE_AGENT or --agent choose one.
    """


@runs("perdure.cli.host.local:gc")
def gc(
    days: Annotated[
        int, typer.Option("--days", metavar="N", min=0, max=timedelta.max.days, help="Since a delivery ended.")
    ] = 90,
    unmerged: Annotated[bool, typer.Option("--unmerged", help="Also those whose commits are not merged.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: Json = False,
) -> None:
    """Remove worktrees, checkpoints and artifacts of deliveries that ended long ago. What runs, and what was committed
    and is not merged, stays. Exit code 1 when something could not be removed."""


@runs("perdure.cli.host.config:config")
def config(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each setting comes from.")] = False,
    repo: Annotated[str, typer.Option("--repo", metavar="PATH|URL", help="Whose settings.")] = ".",
    base: Annotated[str | None, typer.Option("--base", metavar="BRANCH", help="Whose perdure.toml counts.")] = None,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead.")
    ] = None,
    json: Json = False,
) -> None:
    """The settings a delivery of this repository would run with.

    Flags beat the request, that beats PERDURE_* variables, --config, perdure.toml of the base branch, the user's
    file and the defaults. A repository's file can lower this host's limits, never raise them.
    """
