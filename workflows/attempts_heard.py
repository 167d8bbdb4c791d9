"""The attempts that run beside a delivery: what they are told, which words they have read, and how they end."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError, ChildWorkflowError
from temporalio.workflow import ChildWorkflowHandle

from perdure.models.decisions import Said
from perdure.models.result import Attempted, DeliveryResult, Status
from perdure.models.state import DeliveryState
from perdure.models.summary import UNREAD_SHOWN, shortened
from workflows.specialists import Told, extra
from workflows.telling import tell

Child = ChildWorkflowHandle[Any, Any]


@dataclass(frozen=True)
class End:
    """The end of one attempt. `unread`: words that no turn of it has read; None: nobody knows which."""

    attempted: Attempted
    unread: tuple[str, ...] | None = None


class Builders:
    """Attempts that run at once. `exact`: words count as heard where a turn has read them, not once they were sent."""

    def __init__(self, state: DeliveryState, *, exact: bool) -> None:
        self.children: dict[int, Child] = {}
        self._state, self._exact = state, exact
        self._told: dict[int, set[str]] = {}
        self._missed: set[tuple[int, str]] = set()

    def add(self, number: int, child: Child, given: tuple[Said, ...]) -> None:
        """One that has begun, with these words."""
        self.children[number], self._told[number] = child, {one.id for one in given}

    async def hear(self) -> None:
        """Hear them until all have ended. Holding the delivery holds them; words and more budget are for them too."""
        state, known = self._state, Told(extra(self._state))
        if not self._exact:
            self._told = {number: {one.id for one in state.said} for number in self.children}
        while True:
            await workflow.wait_condition(
                lambda: (
                    not self._running()
                    or bool(self._untold())
                    or (state.held, extra(state)) != (known.held, known.extra)
                )
            )
            if not (running := self._running()):
                return
            if state.held != known.held:
                known.held = state.held
                note = known.held.removeprefix("held").removeprefix(": ").strip()
                await _tell(running, *(("hold", {"note": note}) if known.held else ("resume", {})))
            for one in self._untold():
                to = {number: child for number, child in running.items() if one.id not in self._told[number]}
                for number in to:
                    self._told[number].add(one.id)
                self._missed |= {
                    (number, one.id) for number in await _tell(to, "say", {"text": one.text, "id": one.id})
                }
            if (now := extra(state)) != known.extra:
                state.added += 1
                said = _share(known.extra, now, len(running)) | {"id": f"shared-{state.added}"}
                known.extra = now
                await _tell(running, "decide", {"update": "add_budget", "said": said})

    def remember(self, ends: list[End]) -> None:
        """Words that each has read whose commits may be taken are read; the others are for the delivery's next turn."""
        state, made = self._state, [end for end in ends if end.attempted.head]
        heard = [one for one in state.said if not self._exact or (made and all(self._read(one, end) for end in made))]
        state.remember(*heard)
        state.said = tuple(one for one in state.said if one not in heard)

    def _running(self) -> dict[int, Child]:
        return {number: child for number, child in self.children.items() if not child.done()}

    def _untold(self) -> list[Said]:
        return [one for one in self._state.said if any(one.id not in self._told[number] for number in self._running())]

    def _read(self, said: Said, end: End) -> bool:
        number = end.attempted.number
        if end.unread is None or said.id not in self._told[number] or (number, said.id) in self._missed:
            return False
        return len(end.unread) <= UNREAD_SHOWN and shortened(said.text) not in end.unread


async def ended(number: int, id: str, child: Child) -> End:
    """The end of one attempt: a failure is one, too."""
    try:
        return _of(number, id, await child)
    except ChildWorkflowError as error:
        cause = error.cause
        if isinstance(cause, ApplicationError) and cause.type == "NotDelivered" and cause.details:
            with suppress(ValidationError):
                return _of(number, id, DeliveryResult.model_validate(cause.details[0]))
        words = str(getattr(cause, "message", "") or cause or error).partition("\n")[0]
        return End(Attempted(number=number, delivery=id, words=words[:200] or "it was ended"))


def _of(number: int, id: str, result: DeliveryResult) -> End:
    good = result.status is Status.COMPLETED
    attempted = Attempted(
        number=number,
        delivery=id,
        branch=result.branch or "",
        head=result.head_sha or "",
        words="" if good else (result.message or str(result.status)).partition("\n")[0][:200],
        tests=result.tests.status,
        review=result.review,
        cost_usd=result.usage.cost_usd,
    )
    return End(attempted, result.unread)


def _share(before: tuple[float, int, float], now: tuple[float, int, float], sharing: int) -> dict[str, Any]:
    """One attempt's part of what was added to the budget; of time each has all."""
    usd, tokens, time_s = (b - a for a, b in zip(before, now, strict=True))
    parts = {"usd": round(usd / sharing, 6), "tokens": int(tokens) // sharing, "time": f"{int(time_s)}s"}
    return {name: value for name, value in parts.items() if value and value != "0s"}


async def _tell(children: dict[int, Child], name: str, said: dict[str, Any]) -> set[int]:
    """Return the numbers of those that have just ended, and were not told."""
    return {number for number, child in children.items() if not await tell(child, name, said)}
