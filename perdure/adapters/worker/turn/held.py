"""The requests of an agent behind the proxy, let through one turn at a time."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NoReturn

from perdure.adapters.agents.proxied.base import Ask, OnBegun, ProxiedReply, ProxiedRequest
from perdure.adapters.worker.turn.buy import Books, Wanted, sample_of
from perdure.models.errors import BudgetReached, ModelRefusesUs, PerdureError
from perdure.models.ids import digest
from perdure.models.rules.allowance import of_the_day
from perdure.models.turn import TurnInput

BESIDE_PER_TURN = 20
"""Requests beside the conversation in one turn: a title, a summary, counting tokens. A shell inside can send any
number."""


@dataclass
class Turn:
    """A turn that the agent may take.

    asked    its request has come, with the conversation; None before
    reply    the reply it was given; None before
    failure  the last error it was answered with in place of a reply, when it has asked in vain
    beside   the number of requests beside its conversation
    allowed  its request may be asked whatever it can cost: that was decided before it began
    since    when something last came of it: it was let through, asked or was answered
    context  that of the attempt at the turn, for its heartbeats
    """

    work: TurnInput
    run_id: str
    asked: ProxiedRequest | None = None
    reply: ProxiedReply | None = None
    failure: PerdureError | None = None
    beside: int = 0
    allowed: bool = True
    since: float = field(default_factory=time.monotonic)
    context: Context = field(default_factory=copy_context)


class Held:
    """The ledger of one process of an agent, over as many turns as it lives.

    A request that goes on with its work waits until `let_through` has given it a turn. When it comes, the tools of the
    turn before are done: `waits` tells. The same request is answered as often as it comes; a changed one is that of the
    next turn, but where this turn's was answered with an error, or given up. Requests beside the conversation belong to
    the turn that is on.
    """

    def __init__(self, books: Books, models: tuple[str, ...] = ("*",)) -> None:
        """`models`: names, or patterns of names, of those that may be asked."""
        self._books, self._models = books, models
        self._turn: Turn | None = None
        self.over: PerdureError | None = None
        self._waiting = 0
        self._changed = asyncio.Condition()

    async def reply(self, request: ProxiedRequest, ask: Ask) -> ProxiedReply:
        """As the proxy's ledger. Raises the error of `end` once that was called, before anything more is paid."""
        if not any(fnmatchcase(request.model, name) for name in self._models):
            await self._refuse(request)
        turn = await self._turn_of(request)
        try:
            reply = await asyncio.get_running_loop().create_task(self._bought(turn, request, ask), context=turn.context)
        except PerdureError as error:
            if request.turn:
                await self._set(turn, failure=error)
            raise
        except BaseException:  # the agent has given it up before it was asked, or the disk has failed
            if request.turn:
                async with self._changed:
                    turn.asked = None
                    self._changed.notify_all()
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
        """Return when a request waits for its turn: the tools of the turn before are done. Or all is over."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting > 0 or self.over is not None)

    async def settled(self, turn: Turn) -> None:
        """Return when this turn's request was answered, with a reply or an error. Or all is over."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(turn.reply or turn.failure or self.over))

    async def end(self, error: PerdureError) -> None:
        """Answer every request with this error from now on, those that wait, too; `over` is set."""
        async with self._changed:
            self.over = error
            self._changed.notify_all()

    async def _bought(self, turn: Turn, request: ProxiedRequest, ask: Ask) -> ProxiedReply:
        if not request.turn:
            turn.beside += 1
            if turn.beside > BESIDE_PER_TURN:
                raise ModelRefusesUs(f"the agent asks more than {BESIDE_PER_TURN} times beside its work in one turn")
        wanted, allowed, begun = _wanted(request, turn.work, turn.run_id), request.turn and turn.allowed, False
        if allowed:
            turn.allowed = False
        else:
            wanted = replace(wanted, room=turn.work.room)

        async def noticed(on_begun: OnBegun) -> ProxiedReply:
            def notice() -> None:
                nonlocal begun
                begun = True
                on_begun()

            return await ask(notice)

        try:
            return await self._books.buy(wanted, noticed, ProxiedReply.from_json)
        except BudgetReached as error:
            await self.end(error)
            raise
        finally:
            turn.allowed = turn.allowed or (allowed and not begun)

    async def _refuse(self, request: ProxiedRequest) -> NoReturn:
        """Another model than the step's: a shell has asked for it, or the agent itself, whose turn then fails."""
        names = " or ".join(self._models)
        said = f"this agent may ask {names}, not {request.model!r}"
        error = ModelRefusesUs(said, fix="set the model of the step, or `also` in the agent's preset")
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn is not None or self.over is not None)
        if request.turn and self._turn is not None and self._turn.asked is None:
            await self._set(self._turn, failure=error)
        raise error

    async def _turn_of(self, request: ProxiedRequest) -> Turn:
        async with self._changed:
            self._waiting += request.turn
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self.over is not None or self._open(request))
            finally:
                self._waiting -= request.turn
            if self.over is not None:
                raise self.over
            assert self._turn is not None
            if request.turn:
                self._turn.asked, self._turn.failure, self._turn.since = request, None, time.monotonic()
            return self._turn

    def _open(self, request: ProxiedRequest) -> bool:
        turn = self._turn
        if turn is None:
            return False
        if not request.turn or turn.asked is None or turn.asked.key == request.key:
            return True
        return turn.reply is None and turn.failure is not None  # else one of the two would get the other's reply

    async def _set(self, turn: Turn, reply: ProxiedReply | None = None, failure: PerdureError | None = None) -> None:
        async with self._changed:
            turn.reply, turn.failure, turn.since = reply or turn.reply, failure, time.monotonic()
            self._changed.notify_all()


def _wanted(request: ProxiedRequest, work: TurnInput, run_id: str) -> Wanted:
    """The reply of a turn has the turn's name, not its request's: an agent that was started again may add a word to
    what it sends. Words that people have said since are another turn: a reply that has not heard them is not its
    reply. What is asked beside the work has the name of its bytes: an agent that begins again asks it again."""
    sample = sample_of(work, run_id)
    turn = digest(sample, work.step, str(work.attempt), str(work.turn), *(said.id for said in work.said))
    shape = (request.wire, request.model, "stream" if request.stream else "whole")
    return Wanted(
        name=digest(turn if request.turn else sample, *shape, *(() if request.turn else (request.key,))),
        asked=digest(work.delivery, sample, request.key),
        turn=digest(work.delivery, turn) if request.turn else "",
        run=run_id,
        upper=(request.upper_usd, request.upper_tokens),
        again=work.again,
        room=of_the_day(work.room),
    )
