"""The workflow for workflow types that do not exist: whoever misspelt one of Perdure's types is told at once, instead
of waiting for ever."""

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
    """Workflow of any type that is not one of WORKFLOW_TYPES. A type whose name is like none of these may belong to a
    later version: then it waits for that version's worker."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        """Never return. Raise ApplicationError InvalidRequest, which fails the workflow, when its type is probably a
        misspelt one of WORKFLOW_TYPES; else RuntimeError, which fails the workflow task only, so that it is tried
        again."""
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
        """Refuse every update with ApplicationError InvalidRequest, which names the workflow type that was probably
        meant, if any is like it."""
        kind = workflow.info().workflow_type
        nearest_type = nearest_workflow_type(kind)
        raise invalid_request(
            f"there is no workflow type {kind}" + (f" (did you mean {nearest_type}?)" if nearest_type else "")
        )


def nearest_workflow_type(name: str) -> str | None:
    """Return the type of WORKFLOW_TYPES that a name was probably meant to be, ignoring case; None when none is like
    it."""
    types_by_name = {kind.lower(): kind for kind in WORKFLOW_TYPES}
    matches = difflib.get_close_matches(name.lower(), list(types_by_name), n=1)
    return types_by_name[matches[0]] if matches else None
