"""`perdure deliver`: submit one request and watch it become a pull request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure import __version__
from perdure.cli.panels import START

if TYPE_CHECKING:
    from perdure.cli.intake import Asked, Taken
    from perdure.cli.screen import Screen
    from perdure.client import Submitted


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=START)(deliver)


def deliver(
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
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it costs.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="One model for every step.")] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A perdure.toml to use instead of the base branch's."),
    ] = None,
    allow_test_changes: Annotated[
        bool, typer.Option("--allow-test-changes", help="The request itself is about tests.")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Submit and leave.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Turn one request into one tested, reviewed pull request.

    Ctrl-C leaves, the work goes on. The same --id, or the same issue, again comes back to it.
    """
    import asyncio

    from perdure.cli.intake import Asked
    from perdure.cli.screen import Screen
    from perdure.cli.watch import detached

    asked = Asked(text, request, issue, repo, base, branch, phases, id, budget, model, config, allow_test_changes)
    screen = Screen(json=json)
    submitted: list[Submitted] = []
    try:
        raise typer.Exit(asyncio.run(_deliver(asked, screen, submitted, detach=detach, wait=not no_wait)))
    except KeyboardInterrupt:
        if not submitted:
            raise
        raise detached(screen, submitted[0].delivery.id) from None


async def _deliver(asked: Asked, screen: Screen, submitted: list[Submitted], *, detach: bool, wait: bool) -> int:
    """`submitted` gets what was started as soon as it is: from then on Ctrl-C only leaves."""
    import asyncio

    from perdure.cli.intake import take_in

    taken = await asyncio.to_thread(take_in, asked, os.environ)

    # Only now: these take longer to load than a mistake takes to find.
    from perdure.adapters.host.home import Home
    from perdure.cli.issue import is_there, publishes_here
    from perdure.cli.watch import follow
    from perdure.cli.web import web_page
    from perdure.client import Perdure
    from perdure.local.connect import connect
    from perdure.local.up import ensure_running

    home = Home.find()
    if (refusal := taken.meant.refusal) is not None and not await is_there(home, asked.id or taken.issue_id):
        raise refusal
    if not taken.elsewhere:
        await ensure_running(home, screen.say, hosted=publishes_here(taken.target.url, os.environ))
    perdure = Perdure(await connect(home, start=False, say=screen.say))
    found = await perdure.submit(taken.request, asked.id)
    submitted.append(found)
    if not screen.json:
        page = await web_page(home, found.delivery.id)
        how = f"perdure watch {found.delivery.id}" if detach else "Ctrl-C leaves; the work goes on"
        header = await asyncio.to_thread(_header, taken, found.delivery.id, [how, *([page] if page else [])])
        screen.lines(header if detach else [*header, ""])
    if found.attached:
        screen.say(f"{found.delivery.id} is already there: nothing new was started")
    if detach:
        if screen.json:
            screen.data({"delivery_id": found.delivery.id, "attached": found.attached})
        return 0
    return await follow(found.delivery, screen, wait=wait)


def _header(taken: Taken, id: str, watching: list[str]) -> list[str]:
    from perdure.adapters.git.door import redact
    from perdure.adapters.git.source import not_included
    from perdure.adapters.project.config import effective
    from perdure.cli.story import Header
    from perdure.cli.words import money, short, tilde

    checkout, target = taken.target.checkout, redact(taken.target.url)
    settings = [taken.file]
    if not taken.elsewhere:
        counts = effective(
            host=taken.host, env=os.environ, repository=taken.repository_config, request=taken.request
        ).config.limits
        settings += [_sandbox(taken.host.sandbox), f"budget {money(counts.budget_usd)}"]
    elif taken.request.budget_usd is not None:
        settings.append(f"budget {money(taken.request.budget_usd)}")
    has_origin = checkout is not None and str(checkout) != taken.target.url
    return Header(
        version=__version__,
        delivery_id=id,
        checkout=tilde(checkout) if checkout is not None and has_origin else "",
        target=f"origin {target}" if has_origin else target,
        base=f"{taken.base} at {short(taken.base_sha)}, asked just now",
        issue=taken.meant.shown,
        not_included=not_included(checkout, taken.base) if checkout is not None else (),
        settings=settings,
        watching=watching,
    ).lines()


def _sandbox(grade: str) -> str:
    names = {"full": "sandbox bubblewrap", "reduced": "sandbox REDUCED (Landlock)", "off": "sandbox OFF"}
    return names.get(grade, grade)
