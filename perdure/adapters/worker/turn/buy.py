"""One reply of a model: paid for once, written down before it is acted on. For whatever agent asks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.pace import PACE_WAIT_S, Pace
from perdure.adapters.worker.replies import Replies
from perdure.adapters.worker.spend import SpendLog
from perdure.models.crash import CrashPoint
from perdure.models.errors import BudgetReached, ModelUnavailable, PerdureError, RepliesCut
from perdure.models.ids import short_run
from perdure.models.ledger import Reached, Room, Usage
from perdure.models.rules.allowance import beyond
from perdure.models.turn import TurnInput

REPLIES_CUT_PER_TURN = 5
"""Replies that broke off on their way may have been billed, each of them: a line this bad needs a person, who may allow
as many more."""


class Bought(Protocol):
    """A whole reply. `to_json`: what `read` makes the same reply of."""

    @property
    def usage(self) -> Usage: ...

    def to_json(self) -> Any: ...


R = TypeVar("R", bound=Bought)


@dataclass(frozen=True)
class Wanted:
    """A reply that a turn needs.

    name   under which it is kept
    asked  tells the bytes of its request; `turn` the turn that has one reply, whatever the bytes; empty: the bytes do
    run    whose request it is; `again`: how often a person let it be tried again
    upper  the most that request and reply can cost in dollars (None: not known), and the most tokens of both
    room   has to cover that; None: it was decided before that it may be asked
    """

    name: str
    asked: str
    run: str
    upper: tuple[float | None, int]
    again: int = 0
    turn: str = ""
    room: Room | None = None


@dataclass
class Books:
    """The parts of a delivery that paying needs: its reply journal, its spend log, and the pace of the key.

    waited   seconds for which the pace held requests back
    limited  the reason for which a request was refused last
    """

    replies: Replies
    spend: SpendLog
    pace: Pace
    waited: float = 0.0
    limited: str = ""
    _reserving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def buy(
        self, wanted: Wanted, ask: Callable[[Callable[[], None]], Awaitable[R]], read: Callable[[Any], R]
    ) -> R:
        """The reply that was received before, else that of `ask`, kept and settled.

        `ask` asks once, and calls what it is given when the reply has begun: from there on it may be billed. Raises as
        `ask`, and RepliesCut, DiskFull, BudgetReached.
        """
        stored = await in_thread(self.replies.get, wanted.name)
        if stored is None:
            return await self._ask(wanted, ask, read)
        # A death between writing the reply down and settling it: settle now, or it counts at its upper bound for ever.
        reply = read(stored["reply"])
        if not await in_thread(self.spend.is_settled, stored["request"]):
            await in_thread(self.spend.settle, stored["request"], reply.usage)
        return reply

    async def _ask(
        self, wanted: Wanted, ask: Callable[[Callable[[], None]], Awaitable[R]], read: Callable[[Any], R]
    ) -> R:
        """An answer 429 or 529 in a reply's place is no failure: all requests with the key wait, and this one, too."""
        while True:
            self.waited += await self.pace.turn(lambda words: now_doing(doing=words))
            if self.waited > PACE_WAIT_S:
                raise ModelUnavailable("the model's API lets too little through", limited=self.limited)
            reply = await self._asked(wanted, ask)
            if reply is not None:
                return read(reply.to_json())  # as whoever finds it has it: a turn done again makes the same bytes

    async def _asked(self, wanted: Wanted, ask: Callable[[Callable[[], None]], Awaitable[R]]) -> R | None:
        """None: refused before a reply had begun, and for everybody with this key."""
        request = uuid.uuid4().hex
        async with self._reserving:  # several at a time must not count on the same rest
            await in_thread(self._reserve, request, wanted)
        begun = False

        def on_begun() -> None:
            nonlocal begun
            begun = True
            self.pace.answered()
            crash_point(CrashPoint.WAITING_FOR_MODEL)

        now_doing(doing="waiting for the model")
        try:
            reply = await ask(on_begun)
        except PerdureError as error:
            if not begun:  # refused before a reply began: nothing was billed; a reply cut off later stays at risk
                await in_thread(self.spend.void, request)
            if not isinstance(error, ModelUnavailable) or not error.limited:
                raise
            self.limited = error.limited
            await in_thread(self.pace.refused, error)
            if begun:
                raise
            return None
        await in_thread(self.replies.put, wanted.name, {"request": request, "reply": reply.to_json()})
        await in_thread(self.spend.settle, request, reply.usage)
        crash_point(CrashPoint.AFTER_REPLY)
        return reply

    def _reserve(self, request: str, wanted: Wanted) -> None:
        """Raises DiskFull when the reply could not be written down, RepliesCut when it broke off too often,
        BudgetReached when what is left does not cover it."""
        self.replies.require_room()
        if (cut := self.spend.cut(wanted.name, wanted.run)) >= REPLIES_CUT_PER_TURN * (1 + wanted.again):
            raise RepliesCut(
                f"the model's reply broke off {cut} times in this turn, and each time may have been billed",
                fix="look at the line to the model's API, then: perdure retry",
            )
        spend = self.spend.total()
        if wanted.room is not None and (over := beyond(wanted.room, spend, *wanted.upper)) is not None:
            raise BudgetReached(Reached(limit=over[0], words=over[1], spend=spend, usd=wanted.upper[0]))
        upper, asked, turn = wanted.upper, wanted.asked, wanted.turn
        self.spend.intend(request, wanted.name, *upper, asked=asked, run=wanted.run, turn=turn)


def sample_of(work: TurnInput, run_id: str) -> str:
    """The one of the delivery's samples of a model's replies that a turn belongs to; empty: the first one.

    Whoever rewinds a delivery wants other replies, whoever retries it those that are there (holes.md H20). Both begin a
    run, and Temporal gives the rewound one the input of the run before: it is told by its id, which is not the one that
    run was started with. A turn of a release that did not write that down is of its own run.
    """
    return work.sample if work.began == short_run(run_id) else short_run(run_id)
