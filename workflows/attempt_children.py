"""The attempts that run beside a delivery: what they are sent, which messages they have read, and how they end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from perdure.models.decisions import UserMessage
from perdure.models.result import AttemptResult, DeliveryResult, Status
from perdure.models.state import DeliveryState
from perdure.models.summary import UNREAD_SHOWN, shorten_message
from workflows.plan_tasks import SharedWithChildren, added_budget
from workflows.signals import send_signal

ChildHandle = ChildWorkflowHandle[Any, Any]


@dataclass(frozen=True)
class AttemptEnd:
    """The end of one attempt. `unread`: messages, shortened, that no turn of it has read; None: nobody knows which."""

    attempted: AttemptResult
    unread: tuple[str, ...] | None = None


class AttemptChildren:
    """Attempts that run at once, as child workflows. A message counts as heard where a turn has read it, not once it
    was sent."""

    def __init__(self, state: DeliveryState) -> None:
        self.children: dict[int, ChildHandle] = {}
        self._state = state
        self._sent_ids: dict[int, set[str]] = {}
        self._undelivered: set[tuple[int, str]] = set()

    def add(self, number: int, child: ChildHandle, messages: tuple[UserMessage, ...]) -> None:
        """Add an attempt that has started; `messages` are those that it started with."""
        self.children[number], self._sent_ids[number] = child, {message.id for message in messages}

    async def forward_until_ended(self) -> None:
        """Send the attempts what people send to the delivery, until all have ended: hold and resume, messages, and an
        equal share of added budget."""
        state, shared = self._state, SharedWithChildren(added_budget(self._state))
        while True:
            await workflow.wait_condition(
                lambda: (
                    not self._running_children()
                    or bool(self._unsent_messages())
                    or (state.hold_reason, added_budget(state)) != (shared.held, shared.extra_budget)
                )
            )
            if not (running := self._running_children()):
                return
            if state.hold_reason != shared.held:
                shared.held = state.hold_reason
                note = shared.held.removeprefix("held").removeprefix(": ").strip()
                await _signal_children(running, *(("hold", {"note": note}) if shared.held else ("resume", {})))
            for message in self._unsent_messages():
                unsent_children = {
                    number: child for number, child in running.items() if message.id not in self._sent_ids[number]
                }
                for number in unsent_children:
                    self._sent_ids[number].add(message.id)
                self._undelivered |= {
                    (number, message.id)
                    for number in await _signal_children(
                        unsent_children, "say", {"text": message.text, "id": message.id}
                    )
                }
            if (budget_now := added_budget(state)) != shared.extra_budget:
                state.budget_raises += 1
                share = _budget_share(shared.extra_budget, budget_now, len(running)) | {
                    "id": f"shared-{state.budget_raises}"
                }
                shared.extra_budget = budget_now
                await _signal_children(running, "decide", {"update": "add_budget", "said": share})

    def settle_messages(self, attempt_ends: list[AttemptEnd]) -> None:
        """Mark pending messages as read where every attempt with a commit has read them; the others stay pending for
        the delivery's next turn."""
        state, with_commit = self._state, [end for end in attempt_ends if end.attempted.head]
        read_messages = [
            message
            for message in state.pending_messages
            if with_commit and all(self._has_read(message, end) for end in with_commit)
        ]
        state.add_delivered_messages(*read_messages)
        state.pending_messages = tuple(message for message in state.pending_messages if message not in read_messages)

    def _running_children(self) -> dict[int, ChildHandle]:
        return {number: child for number, child in self.children.items() if not child.done()}

    def _unsent_messages(self) -> list[UserMessage]:
        """Return the pending messages that some running attempt was not sent."""
        return [
            message
            for message in self._state.pending_messages
            if any(message.id not in self._sent_ids[number] for number in self._running_children())
        ]

    def _has_read(self, message: UserMessage, end: AttemptEnd) -> bool:
        """Return whether an attempt has read a message; False where that is not known, as when it lists as many unread
        messages as a result can show."""
        number = end.attempted.number
        if end.unread is None or message.id not in self._sent_ids[number] or (number, message.id) in self._undelivered:
            return False
        return len(end.unread) <= UNREAD_SHOWN and shorten_message(message.text) not in end.unread


async def wait_for_attempt(number: int, id: str, child: ChildHandle) -> AttemptEnd:
    """Wait for the end of one attempt and return it. A failed attempt is returned as well, with the reason; it raises
    nothing."""
    try:
        return _end_from_result(number, id, await child)
    except ChildWorkflowError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            with suppress(ValidationError):
                return _end_from_result(number, id, DeliveryResult.model_validate(cause.details[0]))
        reason = str(getattr(cause, "message", "") or cause or error).partition("\n")[0]
        return AttemptEnd(AttemptResult(number=number, delivery=id, failure=reason[:200] or "it was ended"))


def _end_from_result(number: int, id: str, result: DeliveryResult) -> AttemptEnd:
    """Return the end of an attempt as its result describes it; the reason is empty where it completed."""
    is_completed = result.status is Status.COMPLETED
    attempted = AttemptResult(
        number=number,
        delivery=id,
        branch=result.branch or "",
        head=result.head_sha or "",
        failure="" if is_completed else (result.message or str(result.status)).partition("\n")[0][:200],
        tests=result.tests.status,
        review=result.review,
        cost_usd=result.usage.cost_usd,
    )
    return AttemptEnd(attempted, result.unread)


def _budget_share(
    budget_before: tuple[float, int, float], budget_now: tuple[float, int, float], share_count: int
) -> dict[str, Any]:
    """Return one attempt's part of what was added to the budget, as fields of update `add_budget`: an equal share of
    dollars and tokens, and all of the time. Parts of nothing are left out."""
    usd, tokens, time_s = (b - a for a, b in zip(budget_before, budget_now, strict=True))
    parts = {"usd": round(usd / share_count, 6), "tokens": int(tokens) // share_count, "time": f"{int(time_s)}s"}
    return {name: value for name, value in parts.items() if value and value != "0s"}


async def _signal_children(children: dict[int, ChildHandle], name: str, payload: dict[str, Any]) -> set[int]:
    """Send a signal to each child; return the numbers of those that have ended just now and did not get it."""
    return {number for number, child in children.items() if not await send_signal(child, name, payload)}
