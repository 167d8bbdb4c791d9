"""The run before a backlog's run, from which the state that it begins with must come: nobody else may make one up."""

from __future__ import annotations

import json
from typing import Any

from perdure.models.backlog_state import BacklogState, ReopenedFrom
from perdure.models.base import HistoryModel
from perdure.models.ids import digest


class PreviousRunInput(HistoryModel):
    """Find out where a backlog's state comes from, by what the server knows of this run.

    continued_run_id   the run that continued as this one
    parent_id, parent_run_id   the workflow that started it
    reopened_from      the ended run that the state is said to come from, and the change; None: it does not say so
    backlog_request    its request without items
    digest             of the state that it was given (`state_digest`)
    """

    backlog: str
    continued_run_id: str = ""
    parent_id: str = ""
    parent_run_id: str = ""
    reopened_from: ReopenedFrom | None = None
    backlog_request: dict[str, Any] = {}
    digest: str = ""


class PreviousRunResult(HistoryModel):
    """`reason`: why the state does not count, in one line; empty: it does."""

    reason: str = ""


def state_digest(state: BacklogState) -> str:
    """Return the SHA-256 of a backlog's state, without what it says about where it comes from."""
    return digest(json.dumps(state.model_copy(update={"reopened_from": None}).dump_for_next_run(), sort_keys=True))
