"""`perdure deliver`: submit one request and watch it become a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure import secrets
from perdure.cli.request import options
from perdure.cli.request.schedule import AtOption, EveryOption, Timed, schedule_delivery, timed
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out

if TYPE_CHECKING:
    from perdure.cli.request.validation import DeliverOptions
    from perdure.client import Submitted


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
    from perdure.cli.look.watch import detached
    from perdure.cli.request.validation import DeliverOptions

    asked = DeliverOptions.typed(context.params)
    screen = Screen(json=json)
    submitted: list[Submitted] = []
    later = timed(at, every)
    try:
        raise typer.Exit(carry_out(_deliver(asked, later, screen, submitted, detach=detach, wait=not no_wait)))
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise detached(screen, submitted[0].delivery.id) from None


async def _deliver(
    asked: DeliverOptions, later: Timed | None, screen: Screen, submitted: list[Submitted], *, detach: bool, wait: bool
) -> int:
    """`submitted` gets what was started as soon as it is: from then on Ctrl-C only leaves."""
    import asyncio

    from perdure.cli.request.validation import take_in

    taken = await asyncio.to_thread(take_in, asked, secrets.environment())

    # Only now: these take longer to load than a mistake takes to find.
    from perdure.cli.look.watch import follow
    from perdure.cli.request.submit import hand_in

    if later is not None:
        await schedule_delivery(taken, asked, later, screen)
        return 0
    found = await hand_in(taken, asked, screen, submitted, detach=detach)
    return 0 if detach else await follow(found.delivery, screen, wait=wait)
