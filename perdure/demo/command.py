"""The command `perdure demo`: its module is loaded only when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.models.limits import DEMO_KILLS, DEMO_KILLS_MOST


def demo(
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", metavar="DIR", help="Play in this new directory; default: a temporary one, until the next demo."
        ),
    ] = None,
    github: Annotated[
        bool, typer.Option("--github", help="From an issue to a pull request, on a GitHub of its own; needs a clone.")
    ] = False,
    backlog: Annotated[
        bool, typer.Option("--backlog", help="A backlog of eight items, four at a time, and its receipt.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Claude Code or Codex carries out every step: perdure agents."),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="The model answers at once, not at the pace of one.")] = False,
    kills: Annotated[
        int,
        typer.Option("--kills", min=0, max=DEMO_KILLS_MOST, help="How often it kills its worker by itself."),
    ] = DEMO_KILLS,
    no_kill: Annotated[bool, typer.Option("--no-kill", help="The same as --kills 0: only you kill.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing, wait for nobody.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, and the story besides it.")] = False,
) -> None:
    """See a delivery survive kill -9, with a scripted model: no key, no account, nothing of yours is touched."""
    from perdure.demo.delivery_demo import DemoOptions
    from perdure.demo.delivery_demo import run_demo as run

    raise typer.Exit(run(DemoOptions(keep, github, fast, 0 if no_kill else kills, yes, json, backlog, agent)))
