"""Declare the commands that look at deliveries and change nothing, with their parameters and help only. The work of
each is the function of perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.command_groups import runs
from perdure.cli.commands.options import (
    LAST,
    DeliveryId,
    Json,
)

Html = Annotated[
    str, typer.Option("--html", metavar="FILE", help="Write one self-contained page; - is standard output.")
]
ReportJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON, without the pictures.")]


@runs("perdure.cli.look.delivery_commands:watch", backlog="perdure.cli.backlog.command:status", fixed={"watch": True})
def watch(
    id: DeliveryId = LAST,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Leave with exit code 4 when it has to wait.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON at the end.")] = False,
) -> None:
    """Follow a delivery until it ends. Ctrl-C leaves, the work goes on."""


@runs("perdure.cli.look.delivery_commands:show", backlog="perdure.cli.backlog.command:status", fixed={"watch": False})
def show(
    id: DeliveryId = LAST,
    json: Json = False,
) -> None:
    """Show where a delivery stands, or how it ended."""


@runs("perdure.cli.look.listing:list_")
def list_(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many of each at most.")] = 20,
    waiting: Annotated[
        bool, typer.Option("--waiting", "-w", help="Only those that wait for you, and for what; the longest first.")
    ] = False,
    json: Json = False,
) -> None:
    """Those that wait for you, the longest first, and below them the newest by start."""


@runs("perdure.cli.look.top:top")
def top(
    once: Annotated[
        bool, typer.Option("--once", help="Print one table and leave, as where there is no terminal.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one table as JSON and leave.")] = False,
) -> None:
    """All deliveries and backlogs, live: what waits for you first, with phase, turn, worker and cost.

    Looking wakes nothing and writes nothing.
    """


@runs("perdure.cli.look.delivery_commands:diff")
def diff(
    id: DeliveryId = LAST,
) -> None:
    """Show what the delivery has changed so far, against its base."""


@runs("perdure.cli.look.logs:logs")
def logs(
    id: DeliveryId = LAST,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only its turns: plan, implement, fix_tests, review…")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until it ends.")] = False,
) -> None:
    """Show what the agent said and did, turn by turn, with times (UTC)."""


@runs("perdure.cli.look.logs:events")
def events(
    id: Annotated[
        str, typer.Argument(metavar="ID", help="A delivery or a backlog; without it all that ran since --since.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until it ends.")] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Without ID: how far back, as 30m or 24h.")
    ] = "24h",
    first: Annotated[
        int, typer.Option("--from", metavar="N", min=0, help="With the ID of a delivery: begin at this offset.")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show what happened, in order: steps, turns, tests, decisions, deaths, the end. Read from Temporal's history."""


@runs("perdure.cli.look.turns:turns")
def turns(
    id: DeliveryId = LAST,
    json: Json = False,
) -> None:
    """List the turns a delivery stands on: what each did, its cost, its checkpoint. Read from Temporal's history."""


@runs("perdure.cli.look.compare:compare")
def compare(
    first: Annotated[str, typer.Argument(metavar="ID1", help="A delivery: its id, the beginning of it, or @last.")],
    second: Annotated[str, typer.Argument(metavar="ID2", help="Another one: a fork, an attempt, any.")],
    json: Json = False,
) -> None:
    """Show two deliveries side by side: what each changed, tests, review, cost, turns."""


@runs("perdure.cli.look.report:report", backlog="perdure.cli.backlog.command:report")
def report(
    id: DeliveryId = LAST,
    html: Html = "",
    json: ReportJson = False,
) -> None:
    """Timeline, plan, tests, review, cost and screenshots of a delivery, whether it runs or has ended."""


@runs("perdure.cli.look.delivery_commands:verify")
def verify(
    id: DeliveryId = LAST,
    no_tests: Annotated[bool, typer.Option("--no-tests", help="Do not run the tests again.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
) -> None:
    """Check every line of a delivery's receipt again. Exit 1 when one does not hold; ? could not be checked."""


@runs("perdure.cli.look.pulls:pulls")
def pulls(
    number: Annotated[
        int | None, typer.Argument(metavar="N", min=1, help="Only this one, with the exact git command to take it.")
    ] = None,
    repo: Annotated[
        str, typer.Option("--repo", metavar="PATH|URL", help="A path with an origin means that origin.")
    ] = ".",
    json: Json = False,
) -> None:
    """Pull requests of a repository that is a directory; with a number one of them, and how to take it."""


@runs("perdure.cli.host.page:page")
def page(
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", min=1, max=65535, help="Default: 8240; a taken one: the next.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser, on a terminal.")] = True,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where it listens.")] = "127.0.0.1",
    tls_cert: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Its certificate, for other machines.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key.")] = None,
    proxy_user_header: Annotated[
        str, typer.Option("--proxy-user-header", metavar="NAME", help="In which a proxy before it names the person.")
    ] = "",
    proxy: Annotated[
        list[str] | None, typer.Option("--proxy", metavar="HOST", help="The name that proxy is asked by; repeatable.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """The page with all that runs and waits for you, in a browser, where you decide too.

    Where perdure up keeps one, its address; otherwise one that runs until Ctrl-C.
    """


@runs("perdure.cli.host.server:ui")
def ui(
    show: Annotated[bool, typer.Option("--print", help="Only print the address.")] = False,
) -> None:
    """Open the Web UI with all deliveries; prints the address of the page too, where it runs."""
