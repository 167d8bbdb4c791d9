"""The workflow for types that do not exist: whoever misspelt one of ours is told at once, instead of waiting for
ever."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from workflows.endings import invalid_request

WORKFLOW_TYPES = ("Delivery", "Backlog", "Treasury", "Notification", "Following")


@workflow.defn(dynamic=True)
class UnknownWorkflow:
    """Workflow of any type that is none of ours. A name like none of ours may be a later version's: then it waits for
    that version's worker."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        """Raise ApplicationError InvalidRequest where the type is probably a misspelt one of ours; else RuntimeError,
        which fails the workflow task only, so that it is tried again."""
        name = workflow.info().workflow_type
        nearest_type = nearest_workflow_type(name)
        if nearest_type is None:
            raise RuntimeError(f"there is no workflow type {name} here; known: {', '.join(WORKFLOW_TYPES)}")
        raise invalid_request(f"there is no workflow type {name} (did you mean {nearest_type}?)")

    @workflow.update(dynamic=True)
    def anything(self, name: str, args: Sequence[RawValue]) -> None:
        """Take no update: `attach` comes with the start, and its sender waits for the answer."""

    @anything.validator
    def _validate_anything(self, name: str, args: Sequence[RawValue]) -> None:
        """Refuse every update with ApplicationError InvalidRequest, which names the type that was probably meant."""
        kind = workflow.info().workflow_type
        nearest_type = nearest_workflow_type(kind)
        raise invalid_request(
            f"there is no workflow type {kind}" + (f" (did you mean {nearest_type}?)" if nearest_type else "")
        )


def nearest_workflow_type(name: str) -> str | None:
    """Return the workflow type of ours that a name was probably meant to be; None where none is like it."""
    types_by_name = {kind.lower(): kind for kind in WORKFLOW_TYPES}
    matches = difflib.get_close_matches(name.lower(), list(types_by_name), n=1)
    return types_by_name[matches[0]] if matches else None
