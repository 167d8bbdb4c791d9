"""A workflow type that there is none of: whoever meant one of ours is told at once, instead of waiting for ever."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue

from workflows.endings import invalid

TYPES = ("Delivery", "Backlog", "Treasury", "Notification", "Following")


@workflow.defn(dynamic=True)
class Misspelt:
    """Takes anything. A name like none of ours may be a later version's: its worker is waited for."""

    @workflow.run
    async def run(self, args: Sequence[RawValue]) -> Any:
        name = workflow.info().workflow_type
        near = meant(name)
        if near is None:
            raise RuntimeError(f"there is no workflow type {name} here; known: {', '.join(TYPES)}")
        raise invalid(f"there is no workflow type {name} (did you mean {near}?)")

    @workflow.update(dynamic=True)
    def anything(self, name: str, args: Sequence[RawValue]) -> None:
        """Nothing is taken: `attach` comes with the start, and its answer is what is waited for."""

    @anything.validator
    def _anything(self, name: str, args: Sequence[RawValue]) -> None:
        kind = workflow.info().workflow_type
        near = meant(kind)
        raise invalid(f"there is no workflow type {kind}" + (f" (did you mean {near}?)" if near else ""))


def meant(name: str) -> str | None:
    """Return the one of ours that a name was probably meant to be."""
    ours = {kind.lower(): kind for kind in TYPES}
    near = difflib.get_close_matches(name.lower(), list(ours), n=1)
    return ours[near[0]] if near else None
