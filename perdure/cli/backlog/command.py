"""The command group `perdure backlog`, and its command `start`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.backlog import change, look
from perdure.cli.commands import START, CommandGroup
from perdure.cli.decide.answer import text_or_stdin
from perdure.cli.request import options
from perdure.cli.request.schedule import AtOption, EveryOption, parse_start_time
from perdure.cli.screen import Screen
from perdure.cli.session import run_coroutine

if TYPE_CHECKING:
    from perdure.client.backlog_submit import BacklogSubmission

backlog = CommandGroup(
    no_args_is_help=True,
    help="Many requests that land on one integration branch, several at a time.",
)


def register(app: typer.Typer) -> None:
    """Add the command group `backlog` to the app."""
    app.add_typer(backlog, name="backlog", rich_help_panel=START)


@backlog.command()
def start(
    context: typer.Context,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE|-", help="The items, as YAML or JSON; - reads standard input.")
    ] = None,
    issues: Annotated[
        str | None,
        typer.Option("--issues", metavar="WHICH", help='Open issues as items: label:bug, milestone:1.0 or search:"…".'),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="TEXT|-", help="One large request: made into items, which you approve."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Its items begin without your approval.")] = False,
    id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Name of the backlog; default: the file's.")
    ] = None,
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="PATH|URL", help="As for deliver; default: the one you are in.")
    ] = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="BRANCH", help="To begin from; default: the default branch.")
    ] = None,
    land: Annotated[
        str | None,
        typer.Option("--land", metavar="HOW", help="branch: one for all; stack: a pull request for each item."),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option("--parallel", metavar="N", help="Deliveries at once; default: 4.")
    ] = None,
    budget: options.Budget = None,
    attempts: options.Attempts = None,
    after_red: options.AfterRed = False,
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="HH:MM-HH:MM", help="Begin items in these hours only: 23:00-07:00."),
    ] = None,
    at: AtOption = None,
    every: EveryOption = None,
    gate: options.Gates = None,
    label: options.Labels = None,
    no_questions: options.NoQuestions = False,
    model: options.Model = None,
    agent: options.Agent = None,
    config: options.ConfigFile = None,
    detach: options.Detach = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Land many requests on one branch: each built, tested and reviewed, several at a time.

    What an option says counts instead of the file's. Ctrl-C leaves, the work goes on. The same backlog again comes back
    to it.
    """
    import asyncio

    from perdure.cli.backlog.start import BacklogOptions, check_backlog, schedule_backlog, submit_backlog
    from perdure.cli.backlog.watch import follow_backlog, leave_backlog

    values = {**context.params, "labels": tuple(label or ()), "questions": not no_questions}
    values["request"] = text_or_stdin(request) if request is not None else None
    backlog_options = BacklogOptions(**{field.name: values[field.name] for field in fields(BacklogOptions)})
    screen, submitted, start_time = Screen(json=json), list["BacklogSubmission"](), parse_start_time(at, every)

    async def work() -> int:
        checked = await asyncio.to_thread(
            check_backlog, backlog_options, secrets.environment(), is_scheduled=start_time is not None
        )
        if start_time is not None:
            return await schedule_backlog(checked, start_time, screen)
        submission = await submit_backlog(checked, screen, submitted, detach=detach)
        return 0 if detach else await follow_backlog(submission.backlog, screen)

    try:
        raise typer.Exit(run_coroutine(work()))
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise leave_backlog(screen, submitted[0].backlog.id) from None


for _command in (
    *(look.status, look.graph, look.report),
    *(change.add, change.edit, change.skip, change.retry, change.prioritise),
    *(change.follow, change.hold, change.resume, change.cancel),
):
    backlog.command()(_command)
