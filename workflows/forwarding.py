"""Messages that a backlog forwards to its deliveries. Any backlog: people's decisions, each sent to one delivery as its
signal `decide`. A backlog that builds the tasks of a delivery's plan: that delivery's messages and added budget, sent
to all tasks.

A delivery counts a decision once, however often and by whatever way it comes; what no longer fits is refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from perdure.models.backlog.state import BacklogState, ItemPhase
from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.specialists import BudgetIncrease
from perdure.models.rules.changes import resolve_item_decision
from perdure.models.rules.inbox import DECISION_MODELS, NotCounted
from perdure.text import shorten
from workflows.children import budget_signal, message_signal
from workflows.items import Items
from workflows.signals import send_signal

READ_PATIENCE = timedelta(seconds=10)
"""Time for a delivery to read a decision: it takes a fraction of a second unless the delivery is busy with its end."""


class DecisionForwarder:
    """Handles updates `approve`, `reject`, `answer`, `edit_plan` and `add_budget` of a backlog. They take the fields
    that a delivery takes, and `item`, which names the item they are for."""

    def __init__(self, state: BacklogState, items: Items) -> None:
        self._state, self._items = state, items
        for name in DECISION_MODELS:
            handler, validator = self._handlers_for(name)
            workflow.set_update_handler(name, handler, validator=validator)

    def _handlers_for(self, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Return the handler of an update, which sends the decision on, and its validator, which raises when the
        decision does not count."""

        def check(decision: Any = None) -> None:
            self._address_decision(name, decision)

        async def forward(decision: Any = None) -> str:
            return await self._forward_decision(name, decision)

        return forward, check

    def _address_decision(self, name: str, decision: Any) -> Any:
        """Return the item whose delivery a decision is for, and the decision's fields as that delivery is sent them.
        Raises ApplicationError NotCounted, with the reason, when the decision does not count there."""
        try:
            return resolve_item_decision(self._state, name, decision)
        except NotCounted as error:
            raise _not_counted_error(error.what) from None

    async def _forward_decision(self, name: str, raw_decision: Any) -> str:
        """Send a decision to the delivery it is for, by signal `decide`, and return the answer for its sender. A
        decision of a gate waits up to READ_PATIENCE, and the answer says whether the delivery goes on or has not read
        it yet; any other gets an id, when it has none, and is answered at once.

        Raises ApplicationError NotCounted when the decision does not count, or the delivery has ended; its item is then
        marked as unsure.
        """
        entry, decision = self._address_decision(name, raw_decision)
        if not decision.get("of"):
            decision |= {"id": decision.get("id") or str(workflow.uuid4())}
        number_before, id = entry.waiting.number, entry.item.id
        delivery = workflow.get_external_workflow_handle(entry.child.id)
        if not await send_signal(delivery, "decide", {"update": name, "said": decision}):
            self._items.unsure.add(id)
            raise _not_counted_error(f"{id} has ended just now: nothing was decided")
        summary = f"{name} {decision.get('of', '')}".rstrip() + f" was handed to {entry.child.id}"
        if not decision.get("of"):
            return summary
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: entry.waiting.number != number_before or entry.phase is not ItemPhase.BUILDING,
                timeout=READ_PATIENCE,
                timeout_summary=shorten(f"{id} reads the decision", 100),
            )
            return f"{summary}: it goes on"
        return f"{summary}, which has not read it yet"


def _not_counted_error(reason: str) -> ApplicationError:
    """Return the non-retryable ApplicationError of type NotCounted that refuses an update, with a reason."""
    return ApplicationError(reason, type="NotCounted", non_retryable=True)


class TaskMessages:
    """Handles signals `said` and `more`, by which a delivery sends messages and added budget to the backlog that builds
    the tasks of its plan; no other backlog gets them."""

    state: BacklogState
    items: Items

    @workflow.signal(description="Sent by a delivery to its tasks: words for the next turn of each")
    async def said(self, message: UserMessage) -> None:
        """Send a person's message on to every task that runs, and keep it in the state for tasks that start later. A
        message whose id has come before is ignored."""
        if message.id not in {other.id for other in self.state.tasks.messages}:
            self.state.tasks.messages = (*self.state.tasks.messages, message)
            await self.items.send(self.items.running_ids, message_signal(message))

    @workflow.signal(description="Sent by a delivery to its tasks: a person has added to its budget")
    async def more(self, increase: BudgetIncrease) -> None:
        """Split added dollars and tokens equally among the tasks that run or have still to start, and send each running
        one its share as a decision `add_budget`, with all of the added time. The others' shares are kept in the state,
        and are theirs when they start. An increase that comes twice counts once."""
        state, running = self.state, self.items.running_ids
        if increase.number <= state.tasks.budget_raises:
            return
        state.tasks.budget_raises, state.tasks.extra_usd = (
            increase.number,
            round(state.tasks.extra_usd + increase.usd, 6),
        )
        count = len(running) + sum(entry.phase is ItemPhase.WAITING for entry in state.items.values())
        count = max(count, 1)
        usd, tokens = round(increase.usd / count, 6), increase.tokens // count
        opened, parent = state.opened, state.parent_delivery
        if opened is not None and parent is not None and parent.tokens:
            parent = parent.model_copy(update={"tokens": parent.tokens + tokens})
            state.opened = opened.model_copy(update={"within": parent})
        for entry in (state.items[id] for id in running):
            entry.child.granted_usd = (
                round(entry.child.granted_usd + usd, 6) if entry.child.granted_usd is not None else None
            )
        await self.items.send(running, budget_signal(increase, count))
        self.items.changed = True
