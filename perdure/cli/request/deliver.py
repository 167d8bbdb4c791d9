"""`perdure deliver`: submit one request and watch it become a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.request import options
from perdure.cli.request.schedule import AtOption, EveryOption, StartTime, parse_start_time, schedule_delivery
from perdure.cli.screen import Screen
from perdure.cli.session import run_coroutine

if TYPE_CHECKING:
    from perdure.cli.request.validation import DeliverOptions
    from perdure.client import Submission


def deliver(
    context: typer.Context,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What you want, in your own words.")] = None,
    request: Annotated[
        str | None, typer.Option("--request", metavar="TEXT|-", help="The same; - reads it from standard input.")
    ] = None,
    issue: Annotated[
        str | None,
        typer.Option("--issue", metavar="N|URL", help="An open issue says what you want; #12 in TEXT names it too."),
    ] = None,
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo", metavar="PATH|URL", help="A path with an origin means that origin; default: the one you are in."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="BRANCH", help="To start from and merge into; default: the default branch."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", metavar="BRANCH", help="An existing one to work on instead of the base.")
    ] = None,
    phases: Annotated[
        str | None, typer.Option("--phases", metavar="LIST", help="Some of plan,build,test,review,ship.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option("--id", metavar="NAME", help="Name of the delivery: the same name is never delivered twice."),
    ] = None,
    budget: options.Budget = None,
    tokens: options.Tokens = None,
    model: options.Model = None,
    agent: options.Agent = None,
    attempts: options.Attempts = None,
    after_red: options.AfterRed = False,
    config: options.ConfigFile = None,
    allow_test_changes: options.AllowTestChanges = False,
    at: AtOption = None,
    every: EveryOption = None,
    gate: options.Gates = None,
    label: options.Labels = None,
    no_questions: options.NoQuestions = False,
    new: options.New = False,
    detach: options.Detach = False,
    no_wait: options.NoWait = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Turn one request into one tested, reviewed pull request.

    Ctrl-C leaves, the work goes on. The same words, issue or --id again come back to it; with --new the same words
    start another.
    """
    from perdure.cli.look.watch import print_detached
    from perdure.cli.request.validation import DeliverOptions

    deliver_options = DeliverOptions.from_params(context.params)
    screen = Screen(json=json)
    submitted: list[Submission] = []
    start_time = parse_start_time(at, every)
    try:
        raise typer.Exit(
            run_coroutine(
                _submit_and_follow(deliver_options, start_time, screen, submitted, detach=detach, wait=not no_wait)
            )
        )
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise print_detached(screen, submitted[0].delivery.id) from None


async def _submit_and_follow(
    deliver_options: DeliverOptions,
    start_time: StartTime | None,
    screen: Screen,
    submitted: list[Submission],
    *,
    detach: bool,
    wait: bool,
) -> int:
    """Check and submit the request, or make its schedule; follow the delivery unless `detach`, and return the exit
    code.

    The submission is appended to `submitted` as soon as it exists: from then on Ctrl-C only leaves.
    """
    import asyncio

    from perdure.cli.request.validation import check_request

    checked = await asyncio.to_thread(check_request, deliver_options, secrets.environment())

    # Imported only now: loading these takes longer than finding a mistake in the request.
    from perdure.cli.look.watch import follow_delivery
    from perdure.cli.request.submit import submit_delivery

    if start_time is not None:
        await schedule_delivery(checked, deliver_options, start_time, screen)
        return 0
    submission = await submit_delivery(checked, deliver_options, screen, submitted, detach=detach)
    return 0 if detach else await follow_delivery(submission.delivery, screen, wait=wait)
