"""Messages and budget that a delivery sends on to its tasks while several agents build them at the same time."""

from __future__ import annotations

from typing import Any

from temporalio import workflow

from perdure.models.backlog_state import BacklogState, ItemPhase
from perdure.models.decisions import UserMessage
from perdure.models.specialists import TaskBudgetIncrease
from workflows.items import Items


class TaskMessages:
    """Signals `said` and `more`, which a delivery sends to the backlog of its plan's tasks. They are meant for such a
    backlog alone."""

    state: BacklogState
    items: Items

    @workflow.signal(description="Sent by a delivery to its tasks: words for the next turn of each")
    async def said(self, message: UserMessage) -> None:
        """Send a person's message on to every task that runs, once, and keep it for those that start later."""
        if message.id not in {other.id for other in self.state.task_messages}:
            self.state.task_messages = (*self.state.task_messages, message)
            for id in self.items.running_ids:
                await self.items.signal_delivery(id, "say", {"id": message.id, "text": message.text})

    @workflow.signal(description="Sent by a delivery to its tasks: a person has added to its budget")
    async def more(self, increase: TaskBudgetIncrease) -> None:
        """Split added budget equally among the tasks that run or have still to start: those that run are sent a
        decision, the others get theirs from what is left. An increase that comes twice counts once."""
        state, running = self.state, self.items.running_ids
        if increase.number <= state.budget_raises:
            return
        state.budget_raises, state.extra_usd = increase.number, round(state.extra_usd + increase.usd, 6)
        count = len(running) + sum(entry.phase is ItemPhase.WAITING for entry in state.items.values())
        usd, tokens = round(increase.usd / max(count, 1), 6), increase.tokens // max(count, 1)
        opened = state.opened
        if opened is not None and opened.within is not None and opened.within.tokens:
            within = opened.within.model_copy(update={"tokens": opened.within.tokens + tokens})
            state.opened = opened.model_copy(update={"within": within})
        decision: dict[str, Any] = {"id": f"more-{increase.number}", "usd": usd, "tokens": tokens}
        decision |= {"time": f"{increase.time_s:.0f}s"} if increase.time_s >= 1 else {}
        for id in running:
            entry = state.items[id]
            entry.granted_usd = round(entry.granted_usd + usd, 6) if entry.granted_usd is not None else None
            await self.items.signal_delivery(id, "decide", {"update": "add_budget", "said": decision})
        self.items.changed = True
