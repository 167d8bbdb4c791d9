"""Changing a backlog while it runs: its items, its pace, and what its branch stands on."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure import secrets
from perdure.cli.backlog.ids import BacklogId, ItemId, with_backlog
from perdure.cli.decide.answer import given, who
from perdure.cli.ids import Json
from perdure.cli.request.options import AfterRed, Attempts
from perdure.cli.screen import Screen
from perdure.models.errors import BadInput, InvalidRequest
from perdure.text import one_line

if TYPE_CHECKING:
    from perdure.client import Backlog
    from perdure.models.backlog import BacklogItem

Request = Annotated[str | None, typer.Option("--request", metavar="TEXT|-", help="What is wanted; - reads it.")]
Issue = Annotated[str | None, typer.Option("--issue", metavar="N|URL", help="An open issue says what is wanted.")]
DependsOn = Annotated[
    list[str] | None, typer.Option("--depends-on", metavar="ITEM", help='Has to land before; "": none. Repeatable.')
]
Touches = Annotated[
    list[str] | None, typer.Option("--touches", metavar="GLOB", help="Files it is expected to change. Repeatable.")
]
Check = Annotated[
    list[str] | None, typer.Option("--check", metavar="COMMAND", help="Holds once it has landed. Repeatable.")
]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="Higher goes first; -100 to 100.")]
Role = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Told to its agents: frontend, test, …")]
Usd = Annotated[float | None, typer.Option("--budget", metavar="USD", min=0.01, help="The most it may spend.")]
File = Annotated[str | None, typer.Option("--file", metavar="FILE|-", help="The item as YAML or JSON instead.")]
Note = Annotated[str, typer.Option("--note", metavar="TEXT", help="Why, for those who wonder.")]


def add(
    context: typer.Context,
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="The new item's id.")] = None,
    request: Request = None,
    issue: Issue = None,
    depends_on: DependsOn = None,
    touches: Touches = None,
    check: Check = None,
    priority: Priority = None,
    role: Role = None,
    budget: Usd = None,
    attempts: Attempts = None,
    after_red: AfterRed = False,
    file: File = None,
    json: Json = False,
) -> None:
    """Add one more item."""
    params, made = context.params, _item(context.params, {})

    async def work(backlog: Backlog) -> str:
        await _check_issue(backlog, made, params)
        return await backlog.add(made)

    _tell(id, json, made.id, "added", work)


def edit(
    context: typer.Context,
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="The item's id.")] = None,
    request: Request = None,
    issue: Issue = None,
    depends_on: DependsOn = None,
    touches: Touches = None,
    check: Check = None,
    priority: Priority = None,
    role: Role = None,
    budget: Usd = None,
    attempts: Attempts = None,
    after_red: AfterRed = False,
    file: File = None,
    json: Json = False,
) -> None:
    """Change an item that has not begun; what no option names stays as it was given."""
    params = context.params

    async def work(backlog: Backlog) -> tuple[str, str]:
        made = _item(params, await _given(backlog, str(params["item"])) if file is None and item else {})
        await _check_issue(backlog, made, params)
        return made.id, await backlog.edit(made)

    screen = Screen(json=json)
    changed, words = with_backlog(screen, id, work)
    _say(screen, id, changed, "edited", words)


def skip(id: BacklogId, item: ItemId, note: Note = "", json: Json = False) -> None:
    """Go on without an item: what depends on it may begin, in a backlog that has ended as well."""
    _tell(id, json, item, "skipped", lambda backlog: backlog.skip(item, note, by=who()))


def retry(
    id: BacklogId,
    item: Annotated[str, typer.Argument(metavar="ITEM", help="Only this item.", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Try what ended without landing again, from where it stopped; a backlog that has ended runs again for it."""
    _tell(id, json, item, "tried again", lambda backlog: backlog.retry(item, by=who()))


def prioritise(
    id: BacklogId,
    item: ItemId,
    priority: Annotated[int, typer.Argument(metavar="N", min=-100, max=100, help="Higher goes first.")],
    json: Json = False,
) -> None:
    """Let an item begin sooner, or later, among those that are ready."""
    _tell(id, json, item, f"has priority {priority}", lambda backlog: backlog.prioritise(item, priority, by=who()))


def follow(
    id: BacklogId,
    leave: Annotated[bool, typer.Option("--leave", help="Leave the branch where it stands instead.")] = False,
    note: Note = "",
    json: Json = False,
) -> None:
    """Look at the base branch now and bring the landed items onto it; with --leave, propose them as they are."""
    _tell(
        id,
        json,
        "",
        "stays where it is" if leave else "looks at its base",
        lambda backlog: backlog.follow(leave=leave, note=note, by=who()),
    )


def hold(id: BacklogId, note: Note = "", json: Json = False) -> None:
    """Begin no further item, and no further turn of what runs, until resume."""
    _tell(id, json, "", "held: nothing further begins", lambda backlog: backlog.hold(note))


def resume(id: BacklogId, json: Json = False) -> None:
    """Go on after a hold."""
    _tell(id, json, "", "goes on", lambda backlog: backlog.resume())


def cancel(
    id: BacklogId,
    item: Annotated[str | None, typer.Argument(metavar="ITEM", help="Only this item.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first, as on a terminal.")] = False,
    json: Json = False,
) -> None:
    """Stop one item, or all of it; what has landed stays. A stack that has ended is followed no longer."""
    if item is not None:
        _tell(id, json, item, "cancelled", lambda backlog: backlog.cancel_item(item, by=who()))
        return
    if not yes and Screen(json=json).terminal and sys.stdin.isatty() and not typer.confirm(f"cancel all of {id}?"):
        raise typer.Exit(1)
    _tell(id, json, "", "asked to stop", lambda backlog: backlog.cancel())


def _item(params: dict[str, Any], before: dict[str, Any]) -> BacklogItem:
    """The item of the options, over what was given `before`, or that of a file. BadInput, InvalidRequest."""
    from perdure.cli.backlog.file import read_file
    from perdure.models.rules.backlog import parse_item

    said = {
        "id": params["item"],
        "request": given(params["request"]) if params["request"] is not None else None,
        "budget_usd": params["budget"],
        **{name: params[name] for name in ("issue", "depends_on", "touches", "check", "priority", "role", "attempts")},
        "after_red": params["after_red"] or None,
    }
    said = {name: value for name, value in said.items() if value not in (None, [], ())}  # a list nobody gave is empty
    if said.get("depends_on") in ([""], ("",)):
        said["depends_on"] = []
    if params["file"] is None:
        if not said:
            raise BadInput("no item was given", where="ITEM", fix='ITEM --request "…", --issue 14, or --file FILE')
        return parse_item(before | said)
    file = read_file(params["file"])
    try:
        return parse_item(file.raw | said)
    except InvalidRequest as error:
        raise file.placed(error) from None


async def _check_issue(backlog: Backlog, item: BacklogItem, params: dict[str, Any]) -> None:
    """BadInput for an issue that is given now, by option or file, where `start` would refuse it."""
    from perdure.cli.backlog.checked import no_issues, reads_issues
    from perdure.cli.request.validation import workers_elsewhere

    if item.issue is None or (params["issue"] is None and params["file"] is None):
        return
    repository = str((await backlog.request()).get("repository", ""))
    if not reads_issues(repository, secrets.environment(), elsewhere=workers_elsewhere()):
        refused = no_issues("issue")
        where = "--issue" if params["issue"] is not None else str(params["file"])
        raise BadInput(refused.what, where=where, fix=refused.fix)


async def _given(backlog: Backlog, item: str) -> dict[str, Any]:
    """The item as it was given last: with the backlog, or since."""
    return (await backlog.past()).given.get(item, {"id": item})


def _tell(id: str, json: bool, item: str, done: str, work: Callable[[Backlog], Awaitable[str | None]]) -> None:
    screen = Screen(json=json)
    found: list[str] = []

    async def run(backlog: Backlog) -> str:
        found.append(backlog.id)
        return await work(backlog) or ""

    words = with_backlog(screen, id, run)
    _say(screen, found[0], item, done, words)


def _say(screen: Any, id: str, item: str, done: str, words: str) -> None:
    from perdure.cli.look.chapters import GOOD

    if screen.json:
        screen.data({"backlog_id": id, "item": item or None, "done": done, "answer": words})
        return
    said = one_line(words, 300) or f"{item or id} {done}"
    screen.lines([f"{GOOD} {said}", f"  {'next':<8} perdure backlog status {shlex.quote(id)}"])
