"""The child workflows of one workflow: items of a backlog, the backlog of a plan's tasks, attempts at a plan.

`Children` starts, watches and cancels them; `Relay` sends a delivery's children what people send to the delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import Priority, TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError
from temporalio.workflow import ChildWorkflowHandle, ParentClosePolicy

from perdure.models.delivery.decisions import UserMessage
from perdure.models.delivery.specialists import BudgetIncrease
from perdure.models.delivery.state import DeliveryState
from perdure.models.limits import TASK_QUEUE, WORKFLOW_TASK
from workflows.signals import send_signal

EARLIER_CHILD_PAUSE = timedelta(minutes=1)
"""Pause between looks for the end of a child of the same id that a run before a rewind has started."""

Child = ChildWorkflowHandle[Any, Any]
Signal = tuple[str, Any]
Key = TypeVar("Key", int, str)


async def send_to_all(workflow_ids: Iterable[str], signal: Signal) -> set[str]:
    """Send a signal, given as its name and payload, to all of these workflows at once; return the ids of those that
    have ended and did not get it."""
    ids, (name, payload) = tuple(workflow_ids), signal
    reached = await asyncio.gather(
        *(send_signal(workflow.get_external_workflow_handle(id), name, payload) for id in ids)
    )
    return {id for id, is_running in zip(ids, reached, strict=True) if not is_running}


def hold_signal(hold_reason: str) -> Signal:
    """Return the signal, as name and payload, that makes a child hold for the same reason as its parent; with an empty
    `hold_reason`, the signal `resume`, which ends a hold."""
    if not hold_reason:
        return "resume", {}
    return "hold", {"note": hold_reason.removeprefix("held").removeprefix(": ").strip()}


def message_signal(message: UserMessage) -> Signal:
    """Return the signal that brings a person's message to a delivery."""
    return "say", {"id": message.id, "text": message.text}


def budget_signal(increase: BudgetIncrease, share_count: int) -> Signal:
    """Return the signal `decide`, as name and payload, that adds one of `share_count` shares of an increase to a
    delivery's budget: an equal share of dollars and tokens, and all of the time. Amounts that are zero are left out; an
    id made of the increase's number is always there, so that it counts once."""
    parts = {
        "usd": round(increase.usd / share_count, 6),
        "tokens": increase.tokens // share_count,
        "time": f"{int(increase.time_s)}s",
    }
    share = {name: value for name, value in parts.items() if value and value != "0s"}
    return "decide", {"update": "add_budget", "said": share | {"id": f"shared-{increase.number}"}}


class Children(Generic[Key]):
    """The children that one run has started, by key: an item's id, an attempt's number, or the id of a plan's
    backlog."""

    def __init__(self) -> None:
        self.handles: dict[Key, Child] = {}
        self._watches: dict[Key, asyncio.Task[None]] = {}

    @property
    def running(self) -> dict[Key, Child]:
        """Return the children that have not ended."""
        return {key: child for key, child in self.handles.items() if not child.done()}

    async def start(
        self,
        key: Key,
        workflow_type: str,
        args: Sequence[Any],
        *,
        id: str,
        summary: str,
        title: TypedSearchAttributes | None,
        result_type: type[Any],
    ) -> Child:
        """Start a child that is asked to cancel when this workflow ends, keep its handle and return it.

        When a child of the same id still runs, which a run before this one has started, it waits for that one's end
        first, without a limit, so that nothing is built twice.
        """
        while True:
            try:
                return await self._start(
                    key,
                    workflow_type,
                    args,
                    id=id,
                    parent_close_policy=ParentClosePolicy.REQUEST_CANCEL,
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                    result_type=result_type,
                    static_summary=summary,
                    search_attributes=title,
                )
            except WorkflowAlreadyStartedError:
                await workflow.sleep(EARLIER_CHILD_PAUSE, summary="the same, begun before, is not over yet")

    async def start_detached(
        self,
        key: Key,
        workflow_type: str,
        args: Sequence[Any],
        *,
        id: str,
        summary: str,
        title: TypedSearchAttributes | None,
        priority: Priority,
    ) -> Child:
        """Start a child that outlives this workflow, keep its handle and return it. Raises WorkflowAlreadyStartedError
        when one of that id runs, or has completed successfully."""
        return await self._start(
            key,
            workflow_type,
            args,
            id=id,
            parent_close_policy=ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            static_summary=summary,
            search_attributes=title,
            priority=priority,
        )

    async def _start(self, key: Key, workflow_type: str, args: Sequence[Any], **options: Any) -> Child:
        """Start a child on the workflow queue with these further options of the SDK, keep its handle and return it.
        Raises WorkflowAlreadyStartedError when the SDK does."""
        self.handles[key] = await workflow.start_child_workflow(
            workflow_type, args=args, task_queue=TASK_QUEUE, task_timeout=WORKFLOW_TASK, **options
        )
        return self.handles[key]

    async def cancel_all(self) -> None:
        """Cancel all children and wait until they have ended; how they end, failures included, is ignored."""
        for child in self.handles.values():
            child.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*self.handles.values(), return_exceptions=True)

    def watch(self, key: Key, on_end: Callable[[Key, Child, ChildWorkflowError | None], None]) -> None:
        """Call `on_end` with key, handle and failure once a child has ended; the failure is None when it completed.
        Returns at once: a task of its own waits."""
        self._watches[key] = asyncio.create_task(self._watch_end(key, on_end))

    async def _watch_end(self, key: Key, on_end: Callable[[Key, Child, ChildWorkflowError | None], None]) -> None:
        """Wait for the end of a child, and call `on_end` with its key, handle and failure, None when it completed; do
        not when this workflow is cancelled meanwhile."""
        child, failure = self.handles[key], None
        try:
            await child
        except ChildWorkflowError as error:
            failure = error
        except asyncio.CancelledError:
            return
        on_end(key, child, failure)

    async def wait_for_ends(self, patience: timedelta, summary: str) -> None:
        """Wait until all children that are watched have ended, or `patience` is over; which of the two is not said."""
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: all(watch.done() for watch in self._watches.values()), timeout=patience, timeout_summary=summary
            )


class Relay(Generic[Key]):
    """Sends a delivery's children what people send to the delivery: a hold and its end, messages, more budget.

    message_signal, budget_signal  the signal, as name and payload, that brings a message, or one of so many shares of
    an increase
    """

    def __init__(
        self,
        state: DeliveryState,
        children: Children[Key],
        message_signal: Callable[[UserMessage], Signal],
        budget_signal: Callable[[BudgetIncrease, int], Signal],
    ) -> None:
        self._state: DeliveryState = state
        self._children: Children[Key] = children
        self._message_signal, self._budget_signal = message_signal, budget_signal
        self._hold_reason, self._budget = "", _added_budget(state)
        self._sent_ids: dict[Key, set[str]] = {}
        self._undelivered: set[tuple[Key, str]] = set()

    def record_sent(self, key: Key, messages: Iterable[UserMessage]) -> None:
        """Record messages that a child has got in another way, such as with its start, so that they are not sent to it
        again."""
        self._sent_ids.setdefault(key, set()).update(message.id for message in messages)

    def has_sent(self, key: Key, message: UserMessage) -> bool:
        """Return True when a child has got a message: it was recorded as sent, and reached the child before it
        ended."""
        return message.id in self._sent_ids.get(key, ()) and (key, message.id) not in self._undelivered

    async def relay_until_ended(self) -> None:
        """Send the running children what people send, until all have ended. When this workflow is cancelled, cancel
        them all, wait until they have ended, and raise CancelledError."""
        try:
            while True:
                await workflow.wait_condition(lambda: not self._children.running or self._has_news())
                if not (running := self._children.running):
                    return
                await self._send_news(running)
        except asyncio.CancelledError:
            await self._children.cancel_all()
            raise

    def _has_news(self) -> bool:
        """Return True when a hold, its end, added budget or a message has not been sent to the running children yet."""
        state = self._state
        is_changed = (state.gates.hold_reason, _added_budget(state)) != (self._hold_reason, self._budget)
        return is_changed or any(self._unsent_messages(key) for key in self._children.running)

    def _unsent_messages(self, key: Key) -> list[UserMessage]:
        """Return the delivery's pending messages that were not sent to a child."""
        sent_ids = self._sent_ids.get(key, ())
        return [message for message in self._state.messages.pending if message.id not in sent_ids]

    async def _send_news(self, running: dict[Key, Child]) -> None:
        """Send the running children what they were not sent yet: a hold or its end, messages, added budget in shares.
        Record what was sent, and which messages did not reach a child because it had ended; count each increase in the
        state."""
        state = self._state
        if state.gates.hold_reason != self._hold_reason:
            self._hold_reason = state.gates.hold_reason
            await self._send(running, hold_signal(state.gates.hold_reason))
        for key, child in running.items():
            for message in self._unsent_messages(key):
                self.record_sent(key, [message])
                if await send_to_all([child.id], self._message_signal(message)):
                    self._undelivered.add((key, message.id))
        if (budget_now := _added_budget(state)) != self._budget:
            usd, tokens, time_s = (after - before for before, after in zip(self._budget, budget_now, strict=True))
            self._budget = budget_now
            state.children.budget_raises += 1
            increase = BudgetIncrease(
                number=state.children.budget_raises, usd=round(usd, 6), tokens=int(tokens), time_s=time_s
            )
            await self._send(running, self._budget_signal(increase, len(running)))

    @staticmethod
    async def _send(children: dict[Key, Child], signal: Signal) -> None:
        await send_to_all((child.id for child in children.values()), signal)


def _added_budget(state: DeliveryState) -> tuple[float, int, float]:
    """Return what people have added to the budget so far: dollars, tokens, seconds."""
    return state.budget.extra_usd, state.budget.extra_tokens, state.budget.extra_time_s
