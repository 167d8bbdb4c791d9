"""Finds the backlog that a person means, and does something with it."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from perdure.cli.ids import LAST, exactly
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out, connected
from perdure.models.errors import BadInput
from perdure.models.ids import newest_run

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
    """The one backlog that `text` names. BadInput when there is none, or more than one."""
    from perdure.client.backlog import WORKFLOW

    if (query := exactly(text)) and await perdure.list(1, query, workflow=WORKFLOW):
        return text
    found = [one.delivery_id for one in await perdure.list(_CANDIDATES, workflow=WORKFLOW)]
    if text == LAST and found:
        return found[0]
    if run := newest_run(text, found):
        return run
    begun = [id for id in found if id.startswith(text)] if text else []
    if len(begun) == 1:
        return begun[0]
    if begun:
        more = f" and {len(begun) - 5} more" if len(begun) > 5 else ""
        named = ", ".join(begun[:5]) + more
        raise BadInput(f"{len(begun)} backlogs begin with {text}", where=named, fix="type a few letters more")
    if not found:
        raise BadInput("there is no backlog yet", where=text, fix="perdure backlog start FILE")
    near = difflib.get_close_matches(text, found, n=1, cutoff=0.5)
    raise BadInput(
        f"no backlog {text}", fix=f"did you mean {near[0]}?" if near else f"there are {', '.join(found[:5])}"
    )


def with_backlog(screen: Screen, id: str, work: Callable[[Backlog], Awaitable[T]]) -> T:
    """Find a backlog by what a person typed and do something with it."""

    async def run() -> T:
        perdure = await connected(screen)
        return await work(perdure.backlog(await resolve_backlog(perdure, id)))

    return carry_out(run())
