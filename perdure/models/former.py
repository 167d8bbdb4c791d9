"""The run before a backlog's run, from which a state that it begins with has to come: nobody else makes one up."""

from __future__ import annotations

import json
from typing import Any

from perdure.models.backlog_state import BacklogState, GoOn
from perdure.models.base import Recorded
from perdure.models.ids import digest


class FormerInput(Recorded):
    """Find out where a backlog's state comes from, by what the server knows of this run.

    continued   run id of the one that went on in this one; parent, parent_run: of the workflow that began it
    again       the ended run that it says it goes on from, and the change; None: it says none
    said        its request without items; state: digest of the state that it was given (`state_digest`)
    """

    backlog: str
    continued: str = ""
    parent: str = ""
    parent_run: str = ""
    again: GoOn | None = None
    said: dict[str, Any] = {}
    state: str = ""


class Former(Recorded):
    """`refused`: why the state does not count, in one line; empty: it does."""

    refused: str = ""


def state_digest(state: BacklogState) -> str:
    """The same for the same state, but for the word on where it comes from."""
    return digest(json.dumps(state.model_copy(update={"again": None}).carried(), sort_keys=True))
