"""Finds the delivery that a person means: by its id, the beginning of it, `@last` (started last) or `@waiting`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.models.errors import BadInput
from perdure.models.ids import find_scheduled_workflow, is_verification

if TYPE_CHECKING:
    from perdure.client import ListEntry, Perdure

BACKLOG_WORKFLOW = "Backlog"
"""The workflow type of a backlog; perdure.client.backlog, which defines it too, takes longer to load than most commands
run."""

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
"""Deliveries looked at to find the newest: all of them but one may be verifications."""

_CANDIDATES = 200
"""Newest deliveries among which the beginning of an id is looked up; older ones are found by their whole id."""


async def resolve_id(perdure: Perdure, text: str, decision: str = "") -> str:
    """Find the one delivery that `text` names and return its id.

    `text` is an id, the beginning of an id, the name of a schedule (its newest delivery), `@last` or `@waiting`. The id
    of a backlog means its only item that waits, where a decision is made. Raises BadInput when no delivery matches, or
    more than one.

    decision  the update by which the waiting delivery is decided; empty: any
    """
    if text == WAITING:
        return only_waiting_id(await perdure.list_waiting(), decision)
    if text == LAST:
        # What `perdure verify` starts is not a delivery that a person made.
        newest = [
            entry.delivery_id for entry in await perdure.list(limit=_NEWEST) if not is_verification(entry.delivery_id)
        ]
        if not newest:
            raise BadInput("there is no delivery yet", where=LAST, fix='perdure deliver "what you want"')
        return newest[0]
    if not text or text.startswith("-"):
        raise BadInput(f"{text!r} is no delivery id", fix="see perdure list")
    if (query := exact_id_query(text)) and await perdure.list(limit=1, query=query):
        return text
    if query and await perdure.list(limit=1, query=query, workflow=BACKLOG_WORKFLOW):
        if decision:
            waiting_items = [
                entry for entry in await perdure.list_waiting() if entry.delivery_id.startswith(f"{text}/")
            ]
            return only_waiting_id(waiting_items, decision, where=text, fix=f"perdure backlog status {text}")
        fix = f"perdure backlog status {text}; its deliveries are {text}/ITEM"
        raise BadInput(f"{text} is a backlog, not a delivery", where=text, fix=fix)
    candidate_ids = [candidate.delivery_id for candidate in await perdure.list(limit=_CANDIDATES)]
    return find_scheduled_workflow(text, candidate_ids) or match_id_prefix(text, candidate_ids)


def exact_id_query(text: str) -> str:
    """Return a Temporal query for exactly this workflow id; empty where a quote or backslash in it would break the
    query."""
    return "" if {"'", "\\"} & set(text) else f"WorkflowId = '{text}'"


def only_waiting_id(
    entries: list[ListEntry],
    decision: str = "",
    where: str = WAITING,
    fix: str = "perdure list --waiting shows what waits",
) -> str:
    """Return the id of the only delivery in `entries` that waits for `decision`; empty: for any decision.

    Raises BadInput when none waits, or several do: a guess could approve the wrong one. `where` and `fix` go into that
    error.
    """
    waiting = [entry for entry in entries if not decision or decision in entry.options]
    if len(waiting) == 1:
        return waiting[0].delivery_id
    if not waiting:
        raise BadInput("no delivery waits for that", where=where, fix=fix)
    names = ", ".join(f"{entry.delivery_id} ({entry.waits_for})" for entry in waiting[:5])
    more = f" and {len(waiting) - 5} more" if len(waiting) > 5 else ""
    raise BadInput(f"{len(waiting)} deliveries wait: name one", where=names + more, fix=fix)


def match_id_prefix(text: str, ids: list[str]) -> str:
    """Return the id that is `text`, or else the only one that begins with it. Raises BadInput with the candidates, or
    the most similar id."""
    matches = sorted({id for id in ids if id.startswith(text)})
    if text in matches or len(matches) == 1:
        return text if text in matches else matches[0]
    if matches:
        more = f" and {len(matches) - 5} more" if len(matches) > 5 else ""
        raise BadInput(
            f"{len(matches)} deliveries begin with {text}",
            where=", ".join(matches[:5]) + more,
            fix="type a few letters more",
        )
    similar = difflib.get_close_matches(text, ids, n=1, cutoff=0.5)
    raise BadInput(f"no delivery {text}", fix=f"did you mean {similar[0]}?" if similar else "see perdure list")
