"""The gate for requests of an agent behind the proxy: it lets them through one turn at a time, and buys their replies
within the budget. `process` admits the turns; the proxy asks it for the reply to each request."""

from __future__ import annotations

import asyncio
import time
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NoReturn

from perdure.adapters.agents.proxied.base import OnBegun, ProxiedReply, ProxiedRequest, UpstreamCall
from perdure.adapters.worker.turn.paid_replies import PaidReplies, ReplyRequest, sample_of
from perdure.models.delivery.turn import TurnInput
from perdure.models.errors import BudgetReached, ModelRefusesUs, PerdureError
from perdure.models.ids import digest
from perdure.models.rules.allowance import day_limits_only

SIDE_REQUESTS_PER_TURN = 20
"""Requests beside the conversation that one turn may make: a title, a summary, counting tokens. A shell inside can send
any number."""


@dataclass
class GatedTurn:
    """A turn that the agent may take.

    request         its request with the conversation; None until it has come
    reply           the reply it was given; None before
    failure         the last error it was answered with in place of a reply, when it has asked in vain
    side_requests   the number of requests beside its conversation
    is_preapproved  its request may be asked whatever it can cost: that was decided before the turn began
    active_at       time.monotonic() when something last came of it: it was let through, asked or was answered
    context         that of the attempt at the turn, for its heartbeats
    """

    work: TurnInput
    run_id: str
    request: ProxiedRequest | None = None
    reply: ProxiedReply | None = None
    failure: PerdureError | None = None
    side_requests: int = 0
    is_preapproved: bool = True
    active_at: float = field(default_factory=time.monotonic)
    context: Context = field(default_factory=copy_context)


class RequestGate:
    """The proxy's ledger for one process of an agent, over as many turns as it lives.

    A request that goes on with the agent's work waits until `admit_turn` has given it a turn. When it comes, the tools
    of the turn before are done: `wait_for_request` returns then. The same request is answered as often as it comes; a
    changed one is that of the next turn, unless this turn's was answered with an error, or given up. Requests beside
    the conversation belong to the turn that is on. `end_error`: what every request is answered with once `end` was
    called.
    """

    def __init__(self, paid_replies: PaidReplies, models: tuple[str, ...] = ("*",)) -> None:
        """`models`: names, or patterns of names, of those that may be asked."""
        self._paid_replies, self._models = paid_replies, models
        self._turn: GatedTurn | None = None
        self.end_error: PerdureError | None = None
        self._waiting_count = 0
        self._changed = asyncio.Condition()

    async def reply(self, request: ProxiedRequest, ask: UpstreamCall) -> ProxiedReply:
        """Return the reply for the agent's request, bought or stored, once the request has its turn; this is the
        proxy's ledger.

        The turn keeps the reply or the error of a request of the conversation only, never of one beside it; it may take
        another request when its own is given up. Raises ModelRefusesUs for a model that the step does not have or too
        many requests beside the conversation; the error of `end` once that was called, before anything more is paid;
        ModelUnavailable, RepliesCut, DiskFull or BudgetReached where the reply cannot be bought.
        """
        if not any(fnmatchcase(request.model, name) for name in self._models):
            await self._refuse_model(request)
        turn = await self._wait_for_admission(request)
        try:
            reply = await asyncio.get_running_loop().create_task(
                self._buy_reply(turn, request, ask), context=turn.context
            )
        except PerdureError as error:
            if request.turn:
                await self._record_answer(turn, failure=error)
            raise
        except BaseException:  # the agent has given it up before it was asked, or the disk has failed
            if request.turn:
                async with self._changed:
                    turn.request = None
                    self._changed.notify_all()
            raise
        if request.turn:
            await self._record_answer(turn, reply=reply)
        return reply

    async def admit_turn(self, work: TurnInput, run_id: str) -> GatedTurn:
        """Let the agent take this turn, with the request that waits or the next one that comes, and return the turn at
        once; its reply will stand in it later. The former turn is replaced."""
        async with self._changed:
            self._turn = GatedTurn(work, run_id)
            self._changed.notify_all()
            return self._turn

    async def wait_for_request(self) -> None:
        """Wait until a request waits for its turn: the tools of the turn before are done. Also returns once `end` was
        called."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting_count > 0 or self.end_error is not None)

    async def wait_for_answer(self, turn: GatedTurn) -> None:
        """Wait until this turn's request was answered, with a reply or an error. Also returns once `end` was called."""
        async with self._changed:
            await self._changed.wait_for(lambda: bool(turn.reply or turn.failure or self.end_error))

    async def end(self, error: PerdureError) -> None:
        """Answer every request with this error from now on, those that wait, too."""
        async with self._changed:
            self.end_error = error
            self._changed.notify_all()

    async def _buy_reply(self, turn: GatedTurn, request: ProxiedRequest, ask: UpstreamCall) -> ProxiedReply:
        """Return the reply to a request, stored or bought. The turn's own request was approved before the turn and only
        has to fit the day's budget, until a reply to it has begun; all others have to fit the turn's remaining budget.

        Requests beside the conversation are counted. Raises ModelRefusesUs beyond SIDE_REQUESTS_PER_TURN and where the
        API refuses, ModelUnavailable, RepliesCut, DiskFull; and BudgetReached, with which all further requests are
        answered, too.
        """
        if not request.turn:
            turn.side_requests += 1
            if turn.side_requests > SIDE_REQUESTS_PER_TURN:
                raise ModelRefusesUs(
                    f"the agent asks more than {SIDE_REQUESTS_PER_TURN} times beside its work in one turn"
                )
        reply_request, uses_approval, has_begun = (
            _reply_request(request, turn.work, turn.run_id),
            request.turn and turn.is_preapproved,
            False,
        )
        if uses_approval:
            turn.is_preapproved = False
        else:
            reply_request = replace(reply_request, room=turn.work.spending_limits)

        async def ask_and_notice(on_begun: OnBegun) -> ProxiedReply:
            """Send the request as `ask` does, and note that a reply to it has begun when it has."""

            def mark_begun() -> None:
                nonlocal has_begun
                has_begun = True
                on_begun()

            return await ask(mark_begun)

        try:
            return await self._paid_replies.get_or_buy(reply_request, ask_and_notice, ProxiedReply.from_json)
        except BudgetReached as error:
            await self.end(error)
            raise
        finally:
            turn.is_preapproved = turn.is_preapproved or (uses_approval and not has_begun)

    async def _refuse_model(self, request: ProxiedRequest) -> NoReturn:
        """Raise ModelRefusesUs for a request to another model than the step's, once a turn is on. A request of the
        conversation, where the turn has none yet, was made by the agent itself: the turn gets the error, too. Any other
        may come from a shell."""
        names = " or ".join(self._models)
        message = f"this agent may ask {names}, not {request.model!r}"
        error = ModelRefusesUs(message, fix="set the model of the step, or `also` in the agent's preset")
        async with self._changed:
            await self._changed.wait_for(lambda: self._turn is not None or self.end_error is not None)
        if request.turn and self._turn is not None and self._turn.request is None:
            await self._record_answer(self._turn, failure=error)
        raise error

    async def _wait_for_admission(self, request: ProxiedRequest) -> GatedTurn:
        """Wait until a request may have a turn, and return that turn; a request with the conversation becomes the
        turn's own. Raises the error that `end` was called with."""
        async with self._changed:
            self._waiting_count += request.turn
            self._changed.notify_all()
            try:
                await self._changed.wait_for(lambda: self.end_error is not None or self._may_pass(request))
            finally:
                self._waiting_count -= request.turn
            if self.end_error is not None:
                raise self.end_error
            assert self._turn is not None
            if request.turn:
                self._turn.request, self._turn.failure, self._turn.active_at = request, None, time.monotonic()
            return self._turn

    def _may_pass(self, request: ProxiedRequest) -> bool:
        """Return whether a request may pass now: it is beside the conversation, the turn's first, the same again, or
        another one after an error."""
        turn = self._turn
        if turn is None:
            return False
        if not request.turn or turn.request is None or turn.request.key == request.key:
            return True
        return turn.reply is None and turn.failure is not None  # else one of the two would get the other's reply

    async def _record_answer(
        self, turn: GatedTurn, reply: ProxiedReply | None = None, failure: PerdureError | None = None
    ) -> None:
        """Write a reply or an error into a turn and wake whoever waits for it. An error leaves a reply that the turn
        already has."""
        async with self._changed:
            turn.reply, turn.failure, turn.active_at = reply or turn.reply, failure, time.monotonic()
            self._changed.notify_all()


def _reply_request(request: ProxiedRequest, work: TurnInput, run_id: str) -> ReplyRequest:
    """Return the request for a reply, with the keys under which the reply is kept and its cost counted.

    The reply of a turn is named by the turn, not by its request: an agent that was started again may add a word to what
    it sends. Messages that people have sent since make another turn: a reply made without them is not its reply. A
    request beside the conversation is named by its bytes: an agent that is started again makes it again.
    """
    sample = sample_of(work, run_id)
    turn_digest = digest(
        sample, work.step, str(work.attempt), str(work.turn), *(message.id for message in work.messages)
    )
    shape = (request.wire, request.model, "stream" if request.stream else "whole")
    return ReplyRequest(
        name=digest(turn_digest if request.turn else sample, *shape, *(() if request.turn else (request.key,))),
        request_digest=digest(work.delivery, sample, request.key),
        turn_digest=digest(work.delivery, turn_digest) if request.turn else "",
        run_id=run_id,
        upper=(request.upper_usd, request.upper_tokens),
        retries=work.approved_retries,
        room=day_limits_only(work.spending_limits),
    )
