"""Finds the backlog that a person means, and runs a function on it."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from perdure.cli.ids import LAST, exact_id_query
from perdure.cli.screen import Screen
from perdure.cli.session import connect_client, run_coroutine
from perdure.models.errors import BadInput
from perdure.models.ids import find_scheduled_workflow

if TYPE_CHECKING:
    from perdure.client import Backlog, Perdure

T = TypeVar("T")

BacklogId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A backlog: its id, the beginning of it, or @last, the newest by start.", show_default=True
    ),
]
ItemId = Annotated[str, typer.Argument(metavar="ITEM", help="The item's id.")]

_CANDIDATES = 200


async def resolve_backlog(perdure: Perdure, text: str) -> str:
    """Find the one backlog that `text` names and return its id.

    `text` is an id, the beginning of an id, the name of a schedule (its newest backlog) or `@last`. Raises BadInput
    when no backlog matches, or more than one.
    """
    from perdure.client.backlog import BACKLOG_WORKFLOW

    if (query := exact_id_query(text)) and await perdure.list(1, query, workflow=BACKLOG_WORKFLOW):
        return text
    ids = [entry.delivery_id for entry in await perdure.list(_CANDIDATES, workflow=BACKLOG_WORKFLOW)]
    if text == LAST and ids:
        return ids[0]
    if scheduled_id := find_scheduled_workflow(text, ids):
        return scheduled_id
    matches = [id for id in ids if id.startswith(text)] if text else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        names = ", ".join(matches[:5]) + more
        raise BadInput(f"{len(matches)} backlogs begin with {text}", where=names, fix="type a few letters more")
    if not ids:
        raise BadInput("there is no backlog yet", where=text, fix="perdure backlog start FILE")
    similar = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    raise BadInput(
        f"no backlog {text}", fix=f"did you mean {similar[0]}?" if similar else f"there are {', '.join(ids[:5])}"
    )


def run_with_backlog(screen: Screen, id: str, work: Callable[[Backlog], Awaitable[T]]) -> T:
    """Find the backlog that `id`, as a person typed it, names; run `work` on it and return its result.

    Raises BadInput where `id` names no single backlog.
    """

    async def resolve_and_run() -> T:
        perdure = await connect_client(screen)
        return await work(perdure.backlog(await resolve_backlog(perdure, id)))

    return run_coroutine(resolve_and_run())
