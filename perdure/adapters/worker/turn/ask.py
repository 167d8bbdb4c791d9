"""One model reply: paid for once, written down before it is acted on."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply, most_tokens, upper_bound
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.pace import PACE_WAIT_S, Pace
from perdure.adapters.worker.replies import Replies
from perdure.adapters.worker.spend import SpendLog
from perdure.models.crash import CrashPoint
from perdure.models.errors import ModelUnavailable, PerdureError, RepliesCut
from perdure.models.ids import digest, short_run
from perdure.models.turn import TurnInput

REPLIES_CUT_PER_TURN = 5
"""Replies that broke off on their way may have been billed, each of them: a line this bad needs a person, who may allow
as many more."""


_SHOWN_CHARS = 80


@dataclass
class ModelAccess:
    """The parts of a delivery that asking needs: its reply journal, its spend log, the model and its key's pace.

    waited   seconds for which the pace held this turn back
    """

    replies: Replies
    spend: SpendLog
    model: Model
    pace: Pace
    waited: float = 0.0

    async def reply(self, question: ModelRequest, work: TurnInput, run_id: str) -> Reply:
        """The reply to this question in this turn: from the journal when it was received before, else from the API."""
        wanted = await in_thread(_wanted, question, work, run_id)  # a long conversation is megabytes to hash
        stored = await in_thread(self.replies.get, wanted.reply)
        if stored is None:
            return await self._ask(question, wanted)
        # A death between writing the reply down and settling it: settle now, or it counts at its upper bound for ever.
        reply = Reply.from_json(stored["reply"].encode())
        if not await in_thread(self.spend.is_settled, stored["request"]):
            await in_thread(self.spend.settle, stored["request"], reply.usage)
        return reply

    async def _ask(self, question: ModelRequest, wanted: _Wanted) -> Reply:
        """An answer 429 or 529 in a reply's place is no failure: all requests with the key wait, and this one, too."""
        while True:
            self.waited += await self.pace.turn(lambda words: now_doing(doing=words))
            if self.waited > PACE_WAIT_S:
                raise ModelUnavailable("the model's API lets too little through")
            reply = await self._asked(question, wanted)
            if reply is not None:
                return reply

    async def _asked(self, question: ModelRequest, wanted: _Wanted) -> Reply | None:
        """None: refused before a reply had begun, and for everybody with this key."""
        await in_thread(self._may_ask, wanted)
        request = uuid.uuid4().hex
        await in_thread(
            lambda: self.spend.intend(
                request,
                wanted.reply,
                upper_bound(question),
                most_tokens(question),
                asked=wanted.asked,
                run=wanted.run,
            )
        )
        begun = False

        def on_first_event() -> None:
            nonlocal begun
            begun = True
            self.pace.answered()
            crash_point(CrashPoint.WAITING_FOR_MODEL)

        now_doing(doing="waiting for the model")
        try:
            reply = await self.model.ask(question, on_first_event=on_first_event, on_text=NewestWords().add)
        except PerdureError as error:
            if not begun:  # refused before a reply began: nothing was billed; a reply cut off later stays at risk
                await in_thread(self.spend.void, request)
            if not isinstance(error, ModelUnavailable) or not error.limited:
                raise
            await in_thread(self.pace.refused, error)
            if begun:
                raise
            return None
        written = reply.to_json()
        await in_thread(self.replies.put, wanted.reply, {"request": request, "reply": written.decode()})
        await in_thread(self.spend.settle, request, reply.usage)
        crash_point(CrashPoint.AFTER_REPLY)
        return Reply.from_json(written)  # as whoever finds it has it: a turn done again makes the same bytes

    def _may_ask(self, wanted: _Wanted) -> None:
        """Raises DiskFull when the reply could not be written down, RepliesCut when it broke off too often."""
        self.replies.require_room()
        if (cut := self.spend.cut(wanted.reply, wanted.run)) >= REPLIES_CUT_PER_TURN * (1 + wanted.again):
            raise RepliesCut(
                f"the model's reply broke off {cut} times in this turn, and each time may have been billed",
                fix="look at the line to the model's API, then: perdure retry",
            )


@dataclass(frozen=True)
class _Wanted:
    """`reply`: the name under which it is kept. `asked`: the bytes of the request. `run`: whose request it is; `again`:
    how often a person let it be tried again."""

    reply: str
    asked: str
    run: str
    again: int = 0


def _wanted(question: ModelRequest, work: TurnInput, run_id: str) -> _Wanted:
    sample, asked = sample_of(work, run_id), question.key()
    return _Wanted(
        reply=digest(sample, work.step, str(work.attempt), str(work.turn), asked),
        asked=digest(sample, asked),
        run=run_id,
        again=work.again,
    )


def sample_of(work: TurnInput, run_id: str) -> str:
    """The one of the delivery's samples of a model's replies that a turn belongs to; empty: the first one.

    Whoever rewinds a delivery wants other replies, whoever retries it those that are there (holes.md H20). Both begin a
    run, and Temporal gives the rewound one the input of the run before: it is told by its id, which is not the one that
    run was started with. A turn of a release that did not write that down is of its own run.
    """
    return work.sample if work.began == short_run(run_id) else short_run(run_id)


class NewestWords:
    """The newest words of a stream, for those who watch: whole ones, because a stream comes in pieces of words."""

    def __init__(self) -> None:
        self._end = ""

    def add(self, text: str) -> None:
        self._end = (self._end + text)[-2 * _SHOWN_CHARS :]
        if words := last_words(self._end):
            now_doing(doing=words)


def last_words(text: str) -> str:
    """At most _SHOWN_CHARS from the end of a text, from the beginning of a word."""
    words = " ".join(text.split())
    if len(words) <= _SHOWN_CHARS:
        return words
    _, _, rest = words[-_SHOWN_CHARS - 1 :].partition(" ")
    return rest or words[-_SHOWN_CHARS:]
