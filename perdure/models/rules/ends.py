"""The end of an item's delivery, as its backlog takes it: landed, failed, there already; and what that stops."""

from __future__ import annotations

from datetime import datetime

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.landing import Found, ItemEnded
from perdure.models.limits import END_CHARS
from perdure.models.result import Reason
from perdure.models.rules.changes import decompose

WORDS_CHARS = 300
"""Of an item's reason: a backlog carries those of a thousand items into its next run."""


def take_end(state: BacklogState, id: str, said: ItemEnded | Found, now: datetime, *, stacked: bool = False) -> None:
    """`stacked`: in a stack of pull requests."""
    at = state.items[id]
    at.status, at.reason, at.ended = said.status, said.reason, now
    at.usd = said.usd if said.usd is not None else at.usd
    at.branch, at.pull_request = said.branch or at.branch, said.pull_request or at.pull_request
    at.commit = at.commit or said.commit  # one that is known may be another by now: the branch followed its base
    at.waits = at.gate = at.of = ""
    why = said.message[:WORDS_CHARS] or said.reason.replace("_", " ") or said.status.replace("_", " ")
    if at.commit:
        at.phase, at.words = ItemPhase.LANDED, ""
    elif said.items:
        decompose(state, id, said.items, now, stacked=stacked)
    elif said.status in ("cancelled", "canceled"):
        at.phase, at.words = ItemPhase.CANCELLED, why
    elif isinstance(said, ItemEnded) and said.there:
        at.phase, at.words = ItemPhase.SKIPPED, why  # nothing of it is missing: what depends on it may begin
    else:
        at.phase, at.words = ItemPhase.FAILED, why
        if said.reason == Reason.FORGE_REFUSED and at.asked and not state.held:
            # The branch is gone, put back or protected: whatever else is built could not land there either.
            # Whole, once for all items: it has the command that brings the branch back.
            state.held = f"held: {id} could not land: {said.message[:END_CHARS] or why}"
