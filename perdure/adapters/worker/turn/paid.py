"""Replies for an agent behind the proxy: paid for once, written down before the agent gets them."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from perdure.adapters.agents.proxied.base import Ask, ProxiedReply, ProxiedRequest
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.pace import PACE_WAIT_S, Pace
from perdure.adapters.worker.replies import Replies
from perdure.adapters.worker.spend import SpendLog
from perdure.adapters.worker.turn.ask import REPLIES_CUT_PER_TURN, sample_of
from perdure.models.crash import CrashPoint
from perdure.models.errors import ModelRefusesUs, ModelUnavailable, PerdureError, RepliesCut
from perdure.models.ids import digest
from perdure.models.turn import TurnInput

BESIDE_PER_TURN = 20
"""Requests beside the conversation in one turn: a title, a summary, counting tokens. A shell inside can send any
number, and only between turns it is decided whether there is money for more."""


@dataclass
class Paid:
    """The part of a delivery that paying needs: its reply journal, its spend log and its key's pace.

    waited   seconds for which the pace held requests back
    """

    replies: Replies
    spend: SpendLog
    pace: Pace
    waited: float = 0.0
    _beside: Counter[str] = field(default_factory=Counter)

    async def reply(self, request: ProxiedRequest, ask: Ask, work: TurnInput, run_id: str) -> ProxiedReply:
        """The reply to the request of this very turn: the one that was received before, else that of `ask`.

        An agent that was started again may add a word to what it sends: what was received for this turn is its reply
        all the same. Raises as `ask`, and RepliesCut, DiskFull.
        """
        wanted = _wanted(request, work, run_id)
        if not request.turn:
            self._beside[wanted.turn] += 1
            if self._beside[wanted.turn] > BESIDE_PER_TURN:
                raise ModelRefusesUs(f"the agent asks more than {BESIDE_PER_TURN} times beside its work in one turn")
        stored = await in_thread(self.replies.get, wanted.reply)
        return await self._ask(request, ask, wanted) if stored is None else await self._kept(stored)

    async def _kept(self, stored: dict[str, Any]) -> ProxiedReply:
        """A death between writing the reply down and settling it: settle now, or it counts at its upper bound."""
        reply = ProxiedReply.from_json(stored["reply"])
        if not await in_thread(self.spend.is_settled, stored["request"]):
            await in_thread(self.spend.settle, stored["request"], reply.usage)
        return reply

    async def _ask(self, request: ProxiedRequest, ask: Ask, wanted: _Wanted) -> ProxiedReply:
        """An answer 429 or 529 is no failure: all requests with the key wait, and this one, too."""
        while True:
            self.waited += await self.pace.turn(lambda words: now_doing(doing=words))
            if self.waited > PACE_WAIT_S:
                raise ModelUnavailable("the model's API lets too little through")
            reply = await self._asked(request, ask, wanted)
            if reply is not None:
                return reply

    async def _asked(self, request: ProxiedRequest, ask: Ask, wanted: _Wanted) -> ProxiedReply | None:
        """None: refused before a reply had begun, and for everybody with this key."""
        await in_thread(self._may_ask, wanted)
        paid = uuid.uuid4().hex
        upper_usd, upper_tokens = request.upper_usd, request.upper_tokens
        await in_thread(
            lambda: self.spend.intend(paid, wanted.reply, upper_usd, upper_tokens, asked=wanted.asked, run=wanted.run)
        )
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
                await in_thread(self.spend.void, paid)
            if not isinstance(error, ModelUnavailable) or not error.limited:
                raise
            await in_thread(self.pace.refused, error)
            if begun:
                raise
            return None
        kept = {"request": paid, "reply": reply.to_json()}
        await in_thread(self.replies.put, wanted.reply, kept)
        await in_thread(self.spend.settle, paid, reply.usage)
        crash_point(CrashPoint.AFTER_REPLY)
        return reply

    def _may_ask(self, wanted: _Wanted) -> None:
        """Raises DiskFull when the reply could not be written down, RepliesCut when it broke off too often."""
        self.replies.require_room()
        if (cut := self.spend.cut(wanted.reply, wanted.run)) >= REPLIES_CUT_PER_TURN:
            raise RepliesCut(
                f"the model's reply broke off {cut} times in this turn, and each time may have been billed",
                fix="look at the line to the model's API, then: perdure retry",
            )


@dataclass(frozen=True)
class _Wanted:
    """`reply`: the name under which it is kept. `asked`: the bytes of the request. `run`: whose request it is. `turn`:
    the turn it belongs to."""

    reply: str
    asked: str
    run: str
    turn: str


def _wanted(request: ProxiedRequest, work: TurnInput, run_id: str) -> _Wanted:
    """The reply of a turn has the turn's name, not its request's, which may carry a word more after a death. Words that
    people have said since are another turn: a reply that has not heard them is not its reply."""
    sample = sample_of(work, run_id)
    turn = digest(sample, work.step, str(work.attempt), str(work.turn), *(said.id for said in work.said))
    shape = (request.wire, request.model, "stream" if request.stream else "whole")
    reply = digest(turn, *shape) if request.turn else digest(turn, *shape, request.key)
    return _Wanted(reply=reply, asked=digest(sample, request.key), run=run_id, turn=turn)
