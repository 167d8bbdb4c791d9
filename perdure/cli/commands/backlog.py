"""Declare the commands of `perdure backlog`, with their parameters and help only. The work of each is the function of
perdure.cli that its `runs` names, imported when the command begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from perdure.cli.command_groups import CommandGroup, runs
from perdure.cli.commands.options import (
    LAST,
    AfterRed,
    Agent,
    At,
    Attempts,
    BacklogId,
    Budget,
    ConfigFile,
    Detach,
    Every,
    Gate,
    ItemId,
    Json,
    Label,
    Model,
    NoQuestions,
)
from perdure.models.limits import PRIORITY_MOST

ItemRequest = Annotated[str | None, typer.Option("--request", metavar="TEXT|-", help="What is wanted; - reads it.")]
ItemIssue = Annotated[str | None, typer.Option("--issue", metavar="N|URL", help="An open issue says what is wanted.")]
DependsOn = Annotated[
    list[str] | None, typer.Option("--depends-on", metavar="ITEM", help='Has to land before; "": none. Repeatable.')
]
Touches = Annotated[
    list[str] | None, typer.Option("--touches", metavar="GLOB", help="Files it is expected to change. Repeatable.")
]
Check = Annotated[
    list[str] | None, typer.Option("--check", metavar="COMMAND", help="Holds once it has landed. Repeatable.")
]
Priority = Annotated[
    int | None,
    typer.Option("--priority", metavar="N", help=f"Higher goes first; -{PRIORITY_MOST} to {PRIORITY_MOST}."),
]
Role = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Told to its agents: frontend, test, …")]
ItemBudget = Annotated[float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it may spend.")]
ItemFile = Annotated[str | None, typer.Option("--file", metavar="FILE|-", help="The item as YAML or JSON instead.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for those who wonder.")]

backlog = CommandGroup(
    no_args_is_help=True,
    help="Many requests that land on one integration branch, several at a time.",
)


@dataclass(frozen=True, kw_only=True)
class BacklogOptions:
    """The options of `perdure backlog start`; what is not typed, the file decides."""

    file: Annotated[
        str | None, typer.Argument(metavar="FILE|-", help="The items, as YAML or JSON; - reads standard input.")
    ] = None
    issues: Annotated[
        str | None,
        typer.Option("--issues", metavar="WHICH", help='Open issues as items: label:bug, milestone:1.0 or search:"…".'),
    ] = None
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="TEXT|-", help="One large request: made into items, which you approve."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Its items begin without your approval.")] = False
    id: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Name of the backlog; default: the file's.")
    ] = None
    repo: Annotated[
        str | None, typer.Option("--repo", metavar="PATH|URL", help="As for deliver; default: the one you are in.")
    ] = None
    base: Annotated[
        str | None, typer.Option("--base", metavar="BRANCH", help="To begin from; default: the default branch.")
    ] = None
    land: Annotated[
        str | None,
        typer.Option("--land", metavar="HOW", help="branch: one for all; stack: a pull request for each item."),
    ] = None
    parallel: Annotated[int | None, typer.Option("--parallel", metavar="N", help="Deliveries at once; default: 4.")] = (
        None
    )
    budget: Budget = None
    attempts: Attempts = None
    after_red: AfterRed = False
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="HH:MM-HH:MM", help="Begin items in these hours only: 23:00-07:00."),
    ] = None
    at: At = None
    every: Every = None
    gate: Gate = None
    label: Label = None
    no_questions: NoQuestions = False
    model: Model = None
    agent: Agent = None
    config: ConfigFile = None
    detach: Detach = False
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False


@backlog.command()
@runs("perdure.cli.backlog.start:start")
def start(options: BacklogOptions) -> None:
    """Land many requests on one branch: each built, tested and reviewed, several at a time.

    What an option says counts instead of the file's. Ctrl-C leaves, the work goes on. The same backlog again comes back
    to it.
    """


@backlog.command()
@runs("perdure.cli.backlog.command:status")
def status(
    id: BacklogId = LAST,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it ends.")] = False,
    json: Json = False,
) -> None:
    """First what waits for you, with the command that decides it; then every item by its state."""


@backlog.command()
@runs("perdure.cli.backlog.command:graph")
def graph(
    id: BacklogId = LAST,
    format: Annotated[
        str, typer.Option("--format", metavar="text|mermaid|svg", help="To read, for Markdown, or as a picture.")
    ] = "text",
    json: Json = False,
) -> None:
    """Draw which item depends on which, with states, and the longest chain marked."""


@backlog.command()
@runs("perdure.cli.backlog.command:report")
def report(
    id: BacklogId = LAST,
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Write one self-contained page; - is standard output.")
    ] = "",
    json: Json = False,
) -> None:
    """One page: every item with what came of it, the graph, and the night's receipt, counted from history and git."""


@backlog.command()
@runs("perdure.cli.backlog.change:add")
def add(
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="The new item's id.")] = None,
    request: ItemRequest = None,
    issue: ItemIssue = None,
    depends_on: DependsOn = None,
    touches: Touches = None,
    check: Check = None,
    priority: Priority = None,
    role: Role = None,
    budget: ItemBudget = None,
    attempts: Attempts = None,
    after_red: AfterRed = False,
    file: ItemFile = None,
    json: Json = False,
) -> None:
    """Add one more item."""


@backlog.command()
@runs("perdure.cli.backlog.change:edit")
def edit(
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="The item's id.")] = None,
    request: ItemRequest = None,
    issue: ItemIssue = None,
    depends_on: DependsOn = None,
    touches: Touches = None,
    check: Check = None,
    priority: Priority = None,
    role: Role = None,
    budget: ItemBudget = None,
    attempts: Attempts = None,
    after_red: AfterRed = False,
    file: ItemFile = None,
    json: Json = False,
) -> None:
    """Change an item that has not begun; what no option names stays as it was given."""


@backlog.command()
@runs("perdure.cli.backlog.change:skip")
def skip(
    id: BacklogId,
    item: ItemId,
    note: Note = "",
    json: Json = False,
) -> None:
    """Go on without an item: what depends on it may begin, in a backlog that has ended as well."""


@backlog.command()
@runs("perdure.cli.backlog.change:retry")
def retry(
    id: BacklogId,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Only this item.", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Try what ended without landing again, from where it stopped; a backlog that has ended runs again for it."""


@backlog.command()
@runs("perdure.cli.backlog.change:prioritise")
def prioritise(
    id: BacklogId,
    item: ItemId,
    priority: Annotated[
        int, typer.Argument(metavar="N", min=-PRIORITY_MOST, max=PRIORITY_MOST, help="Higher goes first.")
    ],
    json: Json = False,
) -> None:
    """Let an item begin sooner, or later, among those that are ready."""


@backlog.command()
@runs("perdure.cli.backlog.change:follow")
def follow(
    id: BacklogId,
    leave: Annotated[bool, typer.Option("--leave", help="Leave the branch where it stands instead.")] = False,
    note: Note = "",
    json: Json = False,
) -> None:
    """Look at the base branch now and bring the landed items onto it; with --leave, propose them as they are."""


@backlog.command()
@runs("perdure.cli.backlog.change:hold")
def hold(
    id: BacklogId,
    note: Note = "",
    json: Json = False,
) -> None:
    """Begin no further item, and no further turn of what runs, until resume."""


@backlog.command()
@runs("perdure.cli.backlog.change:resume")
def resume(
    id: BacklogId,
    json: Json = False,
) -> None:
    """Go on after a hold."""


@backlog.command()
@runs("perdure.cli.backlog.change:cancel")
def cancel(
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="Only this item.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first, as on a terminal.")] = False,
    json: Json = False,
) -> None:
    """Stop one item, or all of it; what has landed stays. A stack that has ended is followed no longer."""
