"""Declare the commands that begin something: `demo`, `init`, `deliver`, `run`, with their parameters and help only. The
work of each is the function of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.command_groups import runs
from perdure.cli.commands.options import (
    AfterRed,
    Agent,
    AllowTestChanges,
    At,
    Attempts,
    Budget,
    ConfigFile,
    Detach,
    Every,
    Gate,
    Label,
    Model,
    New,
    NoQuestions,
    NoWait,
    Tokens,
)
from perdure.models.limits import DEMO_KILLS, DEMO_KILLS_MOST


@runs("perdure.cli.host.local:demo")
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


@runs("perdure.cli.host.init:init")
def init(
    repo: Annotated[Path, typer.Option("--repo", help="A git repository.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace a perdure.toml that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written; run nothing.")] = False,
) -> None:
    """Detect setup and test commands, write perdure.toml, and run them once in a scratch workspace."""


@dataclass(frozen=True, kw_only=True)
class DeliverOptions:
    """The options of `perdure deliver`, and what `perdure run` and a backlog add to them without an option.

    plan      a plan in Markdown, used instead of making one
    fix       red tests and blockers are fixed, not only reported
    push      new commits are pushed although no pull request is asked for
    wordless  no text is required: an existing branch is looked at, or a plan says what is wanted
    written   settings in a backlog's file, as (`night.yaml: config`, their text); --config counts instead
    """

    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What you want, in your own words.")] = None
    request: Annotated[
        str | None, typer.Option("--request", metavar="TEXT|-", help="The same; - reads it from standard input.")
    ] = None
    issue: Annotated[
        str | None,
        typer.Option("--issue", metavar="N|URL", help="An open issue says what you want; #12 in TEXT names it too."),
    ] = None
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo", metavar="PATH|URL", help="A path with an origin means that origin; default: the one you are in."
        ),
    ] = None
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="To start from and merge into; default: the default branch."),
    ] = None
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="An existing one to work on instead of the base.")
    ] = None
    phases: Annotated[
        str | None, typer.Option("--phases", metavar="LIST", help="Some of plan,build,test,review,ship.")
    ] = None
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="NAME", help="Name of the delivery: the same name is never delivered twice."),
    ] = None
    budget: Budget = None
    tokens: Tokens = None
    model: Model = None
    agent: Agent = None
    attempts: Attempts = None
    after_red: AfterRed = False
    config: ConfigFile = None
    allow_test_changes: AllowTestChanges = False
    at: At = None
    every: Every = None
    gate: Gate = None
    label: Label = None
    no_questions: NoQuestions = False
    new: New = False
    detach: Detach = False
    no_wait: NoWait = False
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False

    plan: str | None = None
    fix: bool = True
    push: bool = False
    wordless: bool = False
    written: tuple[str, str] | None = None


@runs("perdure.cli.request.deliver:deliver")
def deliver(options: DeliverOptions) -> None:
    """Turn one request into one tested, reviewed pull request.

    Ctrl-C leaves, the work goes on. The same words, issue or --id again come back to it; with --new the same words
    start another.
    """


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `perdure run`."""

    phase: Annotated[str, typer.Argument(metavar="PHASE", help="plan, build, test, review or ship.")]
    request: Annotated[
        str | None, typer.Option("--request", metavar="TEXT|-", help="What is wanted; - reads it from standard input.")
    ] = None
    issue: Annotated[str | None, typer.Option("--issue", metavar="N|URL", help="An open issue says it.")] = None
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="FILE", help="A plan to build, or to review against.")
    ] = None
    fix: Annotated[
        bool, typer.Option("--fix", help="test, review: mend what is found, and push that to the branch.")
    ] = False
    repo: Annotated[
        str | None,
        typer.Option("--repo", metavar="PATH|URL", help="As for deliver; default: the one you are in."),
    ] = None
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="An existing one, as it is on the remote.")
    ] = None
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="To compare with and merge into; default: the default branch."),
    ] = None
    id: Annotated[str | None, typer.Option("--id", metavar="NAME", help="Name of the delivery.")] = None
    budget: Budget = None
    tokens: Tokens = None
    model: Model = None
    agent: Agent = None
    config: ConfigFile = None
    allow_test_changes: AllowTestChanges = False
    gate: Gate = None
    label: Label = None
    no_questions: NoQuestions = False
    new: New = False
    at: At = None
    every: Every = None
    detach: Detach = False
    no_wait: NoWait = False
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False


@runs("perdure.cli.request.deliver:run")
def run(options: RunOptions) -> None:
    """Carry out one phase alone: plan, build, test, review or ship.

    plan prints a plan. build commits and pushes. test and review say what they found and stop, or mend it with --fix.
    ship opens a pull request for the branch as it is. Exit code 1: red tests, blockers, or not done.
    """
