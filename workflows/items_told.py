"""Words and room that a delivery sends on to its tasks while several agents build them at the same time."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.decisions import Said
from perdure.models.specialists import MoreForTasks
from workflows.items import Items


class ToldTasks:
    """Signals `said` and `more`, of the delivery whose plan it is. Nobody else's count for a backlog of tasks alone."""

    state: BacklogState
    items: Items

    @workflow.signal(description="Sent by a delivery to its tasks: words for the next turn of each")
    async def said(self, said: Said) -> None:
        if said.id not in {one.id for one in self.state.said}:
            self.state.said = (*self.state.said, said)
            for id in self.items.running:
                await self.items.tell(id, "say", {"id": said.id, "text": said.text})

    @workflow.signal(description="Sent by a delivery to its tasks: a person has added to its budget")
    async def more(self, said: MoreForTasks) -> None:
        """An equal share for each that runs or is still to begin: the latter get theirs from what is left."""
        state, running = self.state, self.items.running
        if said.number <= state.added:
            return
        state.added, state.extra_usd = said.number, round(state.extra_usd + said.usd, 6)
        count = len(running) + sum(at.phase is ItemPhase.WAITING for at in state.items.values())
        usd, tokens = round(said.usd / max(count, 1), 6), said.tokens // max(count, 1)
        opened = state.opened
        if opened is not None and opened.within is not None and opened.within.tokens:
            within = opened.within.model_copy(update={"tokens": opened.within.tokens + tokens})
            state.opened = opened.model_copy(update={"within": within})
        told: dict[str, Any] = {"id": f"more-{said.number}", "usd": usd, "tokens": tokens}
        told |= {"time": f"{said.time_s:.0f}s"} if said.time_s >= 1 else {}
        for id in running:
            at = state.items[id]
            at.granted = round(at.granted + usd, 6) if at.granted is not None else None
            await self.items.tell(id, "decide", {"update": "add_budget", "said": told})
        self.items.changed = True
