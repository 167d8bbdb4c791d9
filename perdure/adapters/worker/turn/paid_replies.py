"""Replies of a model, each paid for once and stored before anything is done with it, for both kinds of agents: the
stored one, or a new one within budget, disk and the key's pace."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.journal import ReplyStore, SpendLog
from perdure.adapters.worker.pace import PACE_WAIT_S, Pace
from perdure.models.budget.ledger import LimitReached, SpendingLimits, Usage
from perdure.models.crash import CrashPoint
from perdure.models.delivery.turn import TurnInput
from perdure.models.errors import BudgetReached, ModelUnavailable, PerdureError, RepliesCut
from perdure.models.ids import short_run_id
from perdure.models.rules.allowance import exceeded_limit

REPLIES_CUT_PER_TURN = 5
"""Replies of one turn that may break off on their way. Each may have been billed: a line this bad needs a person, who
may allow as many more."""


class StorableReply(Protocol):
    """A whole reply that can be stored. `to_json` returns what the `parse` of `get_or_buy` makes the same reply of."""

    @property
    def usage(self) -> Usage: ...

    def to_json(self) -> Any: ...


R = TypeVar("R", bound=StorableReply)


@dataclass(frozen=True)
class ReplyRequest:
    """A reply that a turn needs.

    name            the key under which it is kept
    request_digest  of the bytes of its request
    turn_digest     names the turn that has one reply, whatever the bytes; empty: the bytes alone tell
    run_id          of the run whose request it is
    retries         how often a person let it be tried again
    upper           the most that request and reply can cost in dollars (None: not known), and the most tokens of both
    room            budget that has to cover that; None: it was decided before that it may be asked
    """

    name: str
    request_digest: str
    run_id: str
    upper: tuple[float | None, int]
    retries: int = 0
    turn_digest: str = ""
    room: SpendingLimits | None = None


@dataclass
class PaidReplies:
    """The replies of one delivery as far as money is concerned: its stored replies, its spend log, and the pace of the
    key.

    waited_s      seconds for which the pace held requests back, or others to the same server were under way
    paced_s       those of the pace alone
    limit_reason  the reason for which a request was refused last
    """

    replies: ReplyStore
    spend_log: SpendLog
    pace: Pace
    waited_s: float = 0.0
    paced_s: float = 0.0
    limit_reason: str = ""
    _reserving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def get_or_buy(
        self, request: ReplyRequest, ask: Callable[[Callable[[], None]], Awaitable[R]], parse: Callable[[Any], R]
    ) -> R:
        """Return the reply that was received before, else that of `ask`, stored and settled in the spend log first. A
        stored reply that was not settled, because its worker died, is settled now.

        `ask` sends the request once, and calls what it is given when the reply has begun: from there on it may be
        billed. `parse` makes a reply of its JSON. Raises what `ask` raises; RepliesCut when the reply broke off too
        often, DiskFull when it could not be stored, BudgetReached when what is left does not cover it, ModelUnavailable
        when the key's pace lets nothing through.
        """
        stored = await in_thread(self.replies.get, request.name)
        if stored is None:
            return await self._ask_until_answered(request, ask, parse)
        # A death between writing the reply down and settling it: settle now, or it counts at its upper bound for ever.
        reply = parse(stored["reply"])
        if not await in_thread(self.spend_log.is_settled, stored["request"]):
            await in_thread(self.spend_log.record_settlement, stored["request"], reply.usage)
        return reply

    async def _ask_until_answered(
        self, request: ReplyRequest, ask: Callable[[Callable[[], None]], Awaitable[R]], parse: Callable[[Any], R]
    ) -> R:
        """Wait for a slot and for the key's pace, and ask until there is a reply, and return it, stored and settled. An
        answer 429 or 529 in a reply's place is no failure: all requests with the key wait, and this one, too.

        Raises ModelUnavailable when the pace has held it back for PACE_WAIT_S; what `ask` raises; RepliesCut, DiskFull,
        BudgetReached.
        """

        def show_wait(message: str) -> None:
            update_heartbeat(doing=message)

        while True:
            async with self.pace.hold_slot(show_wait) as waited_s:
                paced_s = await self.pace.wait_for_turn(show_wait)
                self.paced_s += paced_s
                self.waited_s += waited_s + paced_s
                if self.paced_s > PACE_WAIT_S:
                    raise ModelUnavailable("the model's API lets too little through", limit_reason=self.limit_reason)
                reply = await self._ask_once(request, ask)
            if reply is not None:
                return parse(reply.to_json())  # as whoever finds it has it: a turn done again makes the same bytes

    async def _ask_once(
        self, reply_request: ReplyRequest, ask: Callable[[Callable[[], None]], Awaitable[R]]
    ) -> R | None:
        """Record the intent to pay, ask once, store the reply, settle it in the spend log, and return it; None when the
        API refused before a reply had begun, for a reason that holds for all requests with this key, which the pace
        then records.

        A request that is refused before its reply has begun is recorded as not billed; one cut off later stays open.
        Raises what `ask` raises, and DiskFull, RepliesCut or BudgetReached before anything is asked.
        """
        request_id = uuid.uuid4().hex
        async with self._reserving:  # several at a time must not count on the same rest
            await in_thread(self._reserve_request, request_id, reply_request)
        has_begun = False

        def mark_begun() -> None:
            """Note that the reply has begun, which the pace records, too: from here on it may be billed."""
            nonlocal has_begun
            has_begun = True
            self.pace.record_reply()
            crash_point(CrashPoint.WAITING_FOR_MODEL)

        update_heartbeat(doing="waiting for the model")
        try:
            reply = await ask(mark_begun)
        except PerdureError as error:
            if not has_begun:  # refused before a reply began: nothing was billed; a reply cut off later stays at risk
                await in_thread(self.spend_log.record_refusal, request_id)
            if not isinstance(error, ModelUnavailable) or not error.limit_reason:
                raise
            self.limit_reason = error.limit_reason
            await in_thread(self.pace.record_refusal, error)
            if has_begun:
                raise
            return None
        usage = reply.usage.model_dump(mode="json")
        stored = {"request": request_id, "usage": usage, "reply": reply.to_json()}
        await in_thread(self.replies.put, reply_request.name, stored)
        await in_thread(self.spend_log.record_settlement, request_id, reply.usage)
        crash_point(CrashPoint.AFTER_REPLY)
        return reply

    def _reserve_request(self, request_id: str, reply_request: ReplyRequest) -> None:
        """Check that a request may be paid for, and append the intent to the spend log. Raises, before that, DiskFull
        when the reply could not be written down, RepliesCut when it broke off too often, BudgetReached when what is
        left of `room` does not cover it."""
        self.replies.require_free_disk()
        if (
            cut_off := self.spend_log.count_cut_off(reply_request.name, reply_request.run_id)
        ) >= REPLIES_CUT_PER_TURN * (1 + reply_request.retries):
            raise RepliesCut(
                f"the model's reply broke off {cut_off} times in this turn, and each time may have been billed",
                fix="look at the line to the model's API, then: perdure retry",
            )
        spend = self.spend_log.total_spend()
        if (
            reply_request.room is not None
            and (exceeded := exceeded_limit(reply_request.room, spend, *reply_request.upper)) is not None
        ):
            raise BudgetReached(
                LimitReached(limit=exceeded[0], reason=exceeded[1], spend=spend, usd=reply_request.upper[0])
            )
        upper, request_digest, turn_digest = (
            reply_request.upper,
            reply_request.request_digest,
            reply_request.turn_digest,
        )
        self.spend_log.record_intent(
            request_id,
            reply_request.name,
            *upper,
            request_digest=request_digest,
            run_id=reply_request.run_id,
            turn_digest=turn_digest,
        )


def sample_of(work: TurnInput, run_id: str) -> str:
    """Return the name of the set of model replies that a turn draws from; empty: the delivery's first one.

    A person who rewinds a delivery wants other replies; one who retries it wants those that are there. Both begin a
    run, and Temporal gives the rewound one the input of the run before: a rewound run is recognized by its id, which is
    not the one its input was started with. A turn of a release that did not write that down belongs to its own run.
    """
    return work.sample if work.started_run_suffix == short_run_id(run_id) else short_run_id(run_id)
