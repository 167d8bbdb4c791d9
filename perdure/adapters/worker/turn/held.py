"""The requests of an agent behind the proxy, let through one turn at a time."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from perdure.adapters.agents.proxied.base import Ask, ProxiedReply, ProxiedRequest
from perdure.adapters.worker.turn.buy import Books, Wanted, sample_of
from perdure.models.errors import ModelRefusesUs, PerdureError
from perdure.models.ids import digest
from perdure.models.turn import TurnInput

BESIDE_PER_TURN = 20
"""Requests beside the conversation in one turn: a title, a summary, counting tokens. A shell inside can send any
number, and only between turns it is decided whether there is money for more."""


@dataclass
class Turn:
    """A turn that the agent may take.

    asked    its request has come, with the conversation; None before
    reply    the reply it was given; None before
    failure  the last error it was answered with in place of a reply, when it has asked in vain
    beside   the number of requests beside its conversation
    since    when something last came of it: it was let through, asked or was answered
    context  that of the attempt at the turn, for its heartbeats
    """

    work: TurnInput
    run_id: str
    asked: ProxiedRequest | None = None
    reply: ProxiedReply | None = None
    failure: PerdureError | None = None
    beside: int = 0
    since: float = field(default_factory=time.monotonic)
    context: Context = field(default_factory=copy_context)


class Held:
    """The ledger of one process of an agent, over as many turns as it lives.

    A request that goes on with its work waits until `let_through` has given it a turn. When it comes, the tools of the
    turn before are done: `waits` tells. Until its reply is given a turn's request may come again, changed or not; the
    same request after its reply is answered once more. Requests beside the conversation belong to the turn that is on.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._turn: Turn | None = None
        self._end: PerdureError | None = None
        self._waiting = 0
        self._changed = asyncio.Condition()

    async def reply(self, request: ProxiedRequest, ask: Ask) -> ProxiedReply:
        """As the proxy's ledger. Raises the error of `end` once that was called, before anything more is paid."""
        turn = await self._turn_of(request)
        try:
            reply = await asyncio.get_running_loop().create_task(self._bought(turn, request, ask), context=turn.context)
        except PerdureError as error:
            if request.turn:
                await self._set(turn, failure=error)
            raise
        if request.turn:
            await self._set(turn, reply=reply)
        return reply

    async def let_through(self, work: TurnInput, run_id: str) -> Turn:
        """The agent may take this turn: with the request that waits, or the next one that comes."""
        async with self._changed:
            self._turn = Turn(work, run_id)
            self._changed.notify_all()
            return self._turn

    async def waits(self) -> None:
        """Return when a request waits for its turn: the tools of the turn before are done."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting > 0)

    async def settled(self, turn: Turn) -> None:
        """Return when this turn's request was answered, with a reply or an error."""
        async with self._changed:
            await self._changed.wait_for(lambda: turn.reply is not None or turn.failure is not None)

    async def end(self, error: PerdureError) -> None:
        """Answer every request with this error from now on, those that wait, too."""
        async with self._changed:
            self._end = error
            self._changed.notify_all()

    async def _bought(self, turn: Turn, request: ProxiedRequest, ask: Ask) -> ProxiedReply:
        if not request.turn:
            turn.beside += 1
            if turn.beside > BESIDE_PER_TURN:
                raise ModelRefusesUs(f"the agent asks more than {BESIDE_PER_TURN} times beside its work in one turn")
        return await self._books.buy(_wanted(request, turn.work, turn.run_id), ask, ProxiedReply.from_json)

    async def _turn_of(self, request: ProxiedRequest) -> Turn:
        async with self._changed:
            self._waiting += request.turn
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self._end is not None or self._open(request))
            finally:
                self._waiting -= request.turn
            if self._end is not None:
                raise self._end
            assert self._turn is not None
            if request.turn:
                self._turn.asked, self._turn.failure, self._turn.since = request, None, time.monotonic()
            return self._turn

    def _open(self, request: ProxiedRequest) -> bool:
        turn = self._turn
        if turn is None:
            return False
        again = turn.asked is not None and turn.asked.key == request.key
        return not request.turn or turn.reply is None or again

    async def _set(self, turn: Turn, reply: ProxiedReply | None = None, failure: PerdureError | None = None) -> None:
        async with self._changed:
            turn.reply, turn.failure, turn.since = reply or turn.reply, failure, time.monotonic()
            self._changed.notify_all()


def _wanted(request: ProxiedRequest, work: TurnInput, run_id: str) -> Wanted:
    """The reply of a turn has the turn's name, not its request's: an agent that was started again may add a word to
    what it sends. Words that people have said since are another turn: a reply that has not heard them is not its
    reply."""
    sample = sample_of(work, run_id)
    turn = digest(sample, work.step, str(work.attempt), str(work.turn), *(said.id for said in work.said))
    shape = (request.wire, request.model, "stream" if request.stream else "whole")
    return Wanted(
        name=digest(turn, *shape) if request.turn else digest(turn, *shape, request.key),
        asked=digest(sample, request.key),
        run=run_id,
        upper=(request.upper_usd, request.upper_tokens),
        again=work.again,
    )
