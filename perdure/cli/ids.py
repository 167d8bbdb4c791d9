"""Finds the delivery that a person means: by its id, the beginning of it, or `@last`, the one that was started last."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.models.errors import BadInput
from perdure.models.ids import is_verification, newest_run

if TYPE_CHECKING:
    from perdure.client import Listed, Perdure

BACKLOG = "Backlog"
"""The workflow type; perdure.client.backlog takes longer to load than most commands run."""

LAST = "@last"
WAITING = "@waiting"

DeliveryId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A delivery: its id, the beginning of it, or @last, the newest by start.", show_default=True
    ),
]
WaitingId = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="A delivery: its id, the beginning of it, @last, or @waiting: the only one that waits for this; or a "
        "backlog: its only item that waits.",
        show_default=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_NEWEST = 20
"""The number looked at for the newest: all of them but one may be verifications."""

_CANDIDATES = 200
"""The reach of a look-up by an id's beginning: older deliveries are found by their whole id."""


async def resolve_id(perdure: Perdure, text: str, decision: str = "") -> str:
    """The one delivery that `text` names. BadInput when there is none, or more than one.

    decision  the update by which @waiting is decided; empty: any
    """
    if text == WAITING:
        return only(await perdure.waiting(), decision)
    if text == LAST:
        # What `perdure verify` starts is not what a person delivered last.
        newest = [one.delivery_id for one in await perdure.list(limit=_NEWEST) if not is_verification(one.delivery_id)]
        if not newest:
            raise BadInput("there is no delivery yet", where=LAST, fix='perdure deliver "what you want"')
        return newest[0]
    if not text or text.startswith("-"):
        raise BadInput(f"{text!r} is no delivery id", fix="see perdure list")
    if (query := exactly(text)) and await perdure.list(limit=1, query=query):
        return text
    if query and await perdure.list(limit=1, query=query, workflow=BACKLOG):
        if decision:
            items = [one for one in await perdure.waiting() if one.delivery_id.startswith(f"{text}/")]
            return only(items, decision, where=text, fix=f"perdure backlog status {text}")
        fix = f"perdure backlog status {text}; its deliveries are {text}/ITEM"
        raise BadInput(f"{text} is a backlog, not a delivery", where=text, fix=fix)
    known = [found.delivery_id for found in await perdure.list(limit=_CANDIDATES)]
    return newest_run(text, known) or choose(text, known)


def exactly(text: str) -> str:
    """A query for this very id; empty for what would end or continue the string it stands in."""
    return "" if {"'", "\\"} & set(text) else f"WorkflowId = '{text}'"


def only(
    found: list[Listed], decision: str = "", where: str = WAITING, fix: str = "perdure list --waiting shows what waits"
) -> str:
    """The one that waits for this decision. A guess could approve the wrong one: BadInput unless it is the only one."""
    waiting = [one for one in found if not decision or decision in one.options]
    if len(waiting) == 1:
        return waiting[0].delivery_id
    if not waiting:
        raise BadInput("no delivery waits for that", where=where, fix=fix)
    named = ", ".join(f"{one.delivery_id} ({one.waits_for})" for one in waiting[:5])
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    raise BadInput(f"{len(waiting)} deliveries wait: name one", where=named + more, fix=fix)


def choose(text: str, ids: list[str]) -> str:
    """The only id that begins with `text`. BadInput names the candidates, or the nearest id."""
    found = sorted({id for id in ids if id.startswith(text)})
    if text in found or len(found) == 1:
        return text if text in found else found[0]
    if found:
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise BadInput(
            f"{len(found)} deliveries begin with {text}",
            where=", ".join(found[:5]) + more,
            fix="type a few letters more",
        )
    near = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    raise BadInput(f"no delivery {text}", fix=f"did you mean {near[0]}?" if near else "see perdure list")
