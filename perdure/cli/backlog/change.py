"""The commands that change a backlog while it runs: its items, their order, what its branch follows, holding and
cancelling."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import typer

from perdure import secrets
from perdure.adapters.system.home import login_name
from perdure.cli.backlog.checks import can_read_issues, unreadable_issues_error
from perdure.cli.backlog.start import read_backlog_file
from perdure.cli.request.validation import workers_elsewhere
from perdure.cli.screen import Screen, text_or_stdin
from perdure.cli.session import run_with_backlog
from perdure.models.errors import BadInput, InvalidRequest
from perdure.models.limits import REQUEST_BYTES
from perdure.models.rules.backlog import parse_item
from perdure.render.step_lines import GOOD
from perdure.text import one_line, shell_word

if TYPE_CHECKING:
    from perdure.client import Backlog
    from perdure.models.backlog.request import BacklogItem


def add(id: str, json: bool, **params: Any) -> None:
    """Build an item from the options of `perdure backlog add`, add it to the backlog, and print its reply, or that as
    JSON.

    Raises BadInput or InvalidRequest when the options are no valid item, BadInput when the issue that they name cannot
    be read or the backlog refuses, has ended or cannot be found, and NoWorker when no worker answers.
    """
    new_item = _build_item(params, {})

    async def work(backlog: Backlog) -> str:
        await _check_issue(backlog, new_item, params)
        return await backlog.add(new_item)

    _apply_change(id, json, new_item.id, "added", work)


def edit(id: str, json: bool, **params: Any) -> None:
    """Change an item that has not begun, and print the backlog's reply, or that as JSON; what no option names stays as
    it was.

    With `--file` the file's item replaces it. Raises BadInput or InvalidRequest when the options are no valid item,
    BadInput when the issue that they name cannot be read or the backlog refuses, has ended or cannot be found, and
    NoWorker when no worker answers.
    """

    async def work(backlog: Backlog) -> tuple[str, str]:
        new_item = _build_item(
            params,
            await _previous_item(backlog, str(params["item"])) if params["file"] is None and params["item"] else {},
        )
        await _check_issue(backlog, new_item, params)
        return new_item.id, await backlog.edit(new_item)

    screen = Screen(json=json)
    item_id, reply = run_with_backlog(screen, id, work)
    _print_change(screen, id, item_id, "edited", reply)


def skip(id: str, item: str, note: str, json: bool) -> None:
    """Go on without an item: what depends on it may begin, in a backlog that has ended as well."""
    _apply_change(id, json, item, "skipped", lambda backlog: backlog.skip(item, note, by=login_name()))


def retry(id: str, item: str, json: bool) -> None:
    """Try what ended without landing again, from where it stopped; a backlog that has ended runs again for it."""
    _apply_change(id, json, item, "tried again", lambda backlog: backlog.retry(item, by=login_name()))


def prioritise(id: str, item: str, priority: int, json: bool) -> None:
    """Set an item's priority, so that it begins sooner or later among those that are ready; print the backlog's reply.

    Raises BadInput when the backlog refuses, has ended or cannot be found, and NoWorker when no worker answers.
    """
    _apply_change(
        id, json, item, f"has priority {priority}", lambda backlog: backlog.prioritise(item, priority, by=login_name())
    )


def follow(id: str, leave: bool, note: str, json: bool) -> None:
    """Have the backlog look at its base branch now and bring the landed items onto it; with `leave`, leave its branch
    as it is.

    Prints the backlog's reply, or that as JSON. Raises BadInput when the backlog refuses, has ended or cannot be found,
    and NoWorker when no worker answers.
    """
    _apply_change(
        id,
        json,
        "",
        "stays where it is" if leave else "looks at its base",
        lambda backlog: backlog.follow(leave=leave, note=note, by=login_name()),
    )


def hold(id: str, note: str, json: bool) -> None:
    """Begin no further item, and no further turn of what runs, until resume."""
    _apply_change(id, json, "", "held: nothing further begins", lambda backlog: backlog.hold(note))


def resume(id: str, json: bool) -> None:
    """Go on after a hold."""
    _apply_change(id, json, "", "goes on", lambda backlog: backlog.resume())


def cancel(id: str, item: str | None, yes: bool, json: bool) -> None:
    """Stop one item, or without `item` the whole backlog, and print that; what has landed stays.

    On a terminal, without `yes`, the person is asked before the whole backlog is stopped; raises typer.Exit with code 1
    after a no. Does not wait for the end. Raises BadInput when the backlog refuses, has ended or cannot be found, and
    NoWorker when no worker answers for one item.
    """
    if item is not None:
        _apply_change(id, json, item, "cancelled", lambda backlog: backlog.cancel_item(item, by=login_name()))
        return
    if not yes and Screen(json=json).is_terminal and sys.stdin.isatty() and not typer.confirm(f"cancel all of {id}?"):
        raise typer.Exit(1)
    _apply_change(id, json, "", "asked to stop", lambda backlog: backlog.cancel())


def _build_item(params: dict[str, Any], previous: dict[str, Any]) -> BacklogItem:
    """Build the item from the command's options, over the fields of `previous` or over the item in `--file`; `--request
    -` reads standard input.

    Raises BadInput where neither an option nor a file says anything, and for a file that cannot be read;
    InvalidRequest, with a file BadInput with its line, for values that are not valid.
    """
    fields = {
        "id": params["item"],
        "request": text_or_stdin(params["request"], REQUEST_BYTES) if params["request"] is not None else None,
        "budget_usd": params["budget"],
        **{name: params[name] for name in ("issue", "depends_on", "touches", "check", "priority", "role", "attempts")},
        "after_red": params["after_red"] or None,
    }
    fields = {
        name: value for name, value in fields.items() if value not in (None, [], ())
    }  # Typer gives an empty list for an option that nobody typed
    if fields.get("depends_on") in ([""], ("",)):
        fields["depends_on"] = []
    if params["file"] is None:
        if not fields:
            raise BadInput("no item was given", where="ITEM", fix='ITEM --request "…", --issue 14, or --file FILE')
        return parse_item(previous | fields)
    file = read_backlog_file(params["file"])
    try:
        return parse_item(file.raw | fields)
    except InvalidRequest as error:
        raise file.locate_error(error) from None


async def _check_issue(backlog: Backlog, item: BacklogItem, params: dict[str, Any]) -> None:
    """Raise BadInput where the item names an issue by option or file, and nobody can read issues of that repository.

    Does nothing for an issue that the item had before. Asks Temporal for the backlog's request, to know its repository.
    `start` refuses such an issue in the same way.
    """
    if item.issue is None or (params["issue"] is None and params["file"] is None):
        return
    repository = str((await backlog.request()).get("repository", ""))
    if not can_read_issues(repository, secrets.environment(), elsewhere=workers_elsewhere()):
        refused = unreadable_issues_error("issue")
        where = "--issue" if params["issue"] is not None else str(params["file"])
        raise BadInput(refused.what, where=where, fix=refused.fix)


async def _previous_item(backlog: Backlog, item: str) -> dict[str, Any]:
    """Return the item's fields as they were given last, with the backlog or by a later edit; only its id where it is
    not known."""
    return (await backlog.past()).items.get(item, {"id": item})


def _apply_change(id: str, json: bool, item: str, done: str, work: Callable[[Backlog], Awaitable[str | None]]) -> None:
    """Find the backlog, run `work` on it and print the reply that this returns; an empty one: that `item`, or else the
    backlog, is `done`.

    Raises BadInput when `id` names no single backlog, and what `work` raises.
    """
    screen = Screen(json=json)
    backlog_ids: list[str] = []

    async def work_on_backlog(backlog: Backlog) -> str:
        backlog_ids.append(backlog.id)
        return await work(backlog) or ""

    reply = run_with_backlog(screen, id, work_on_backlog)
    _print_change(screen, backlog_ids[0], item, done, reply)


def _print_change(screen: Any, id: str, item: str, done: str, reply: str) -> None:
    """Print the backlog's reply, or `<item or id> <done>` where it is empty, and the next command; or all of it as
    JSON."""
    if screen.json:
        screen.print_json({"backlog_id": id, "item": item or None, "done": done, "answer": reply})
        return
    line = one_line(reply, 300) or f"{item or id} {done}"
    screen.print_lines([f"{GOOD} {line}", f"  {'next':<8} perdure backlog status {shell_word(id)}"])
