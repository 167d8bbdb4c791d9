"""The built-in agent's model request in a turn, and the text that people see while the reply comes in."""

from __future__ import annotations

from collections.abc import Callable

from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply, max_cost_usd, max_total_tokens
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.turn.paid_replies import PaidReplies, ReplyRequest, sample_of
from perdure.models.ids import digest
from perdure.models.rules.allowance import day_limits_only
from perdure.models.turn import TurnInput

_SHOWN_CHARS = 80


async def ask_model(books: PaidReplies, model: Model, question: ModelRequest, work: TurnInput, run_id: str) -> Reply:
    """Return the reply to this question in this turn: from the journal when it was received before, else from the API,
    paid for and written down. Raises as `PaidReplies.get_or_buy`."""

    async def ask(on_begun: Callable[[], None]) -> Reply:
        return await model.ask(question, on_first_event=on_begun, on_text=StreamTail().add)

    reply_request = await in_thread(_reply_request, question, work, run_id)  # a long conversation is megabytes to hash
    return await books.get_or_buy(reply_request, ask, Reply.from_json)


def _reply_request(question: ModelRequest, work: TurnInput, run_id: str) -> ReplyRequest:
    """Return the request for the reply to a question: its keys, and the most it can cost."""
    sample, request_digest = sample_of(work, run_id), question.key()
    return ReplyRequest(
        name=digest(sample, work.step, str(work.attempt), str(work.turn), request_digest),
        request_digest=digest(sample, request_digest),
        run_id=run_id,
        upper=(max_cost_usd(question), max_total_tokens(question)),
        retries=work.approved_retries,
        room=day_limits_only(work.spending_limits),
    )


class StreamTail:
    """The newest words of a stream, for those who watch: whole ones, because a stream comes in pieces of words."""

    def __init__(self) -> None:
        self._end = ""

    def add(self, text: str) -> None:
        """Add text of the stream, and show its newest words in the attempt's heartbeats."""
        self._end = (self._end + text)[-2 * _SHOWN_CHARS :]
        if newest := last_whole_words(self._end):
            update_heartbeat(doing=newest)


def last_whole_words(text: str) -> str:
    """Return at most _SHOWN_CHARS from the end of a text, from the beginning of a word, on one line."""
    line = " ".join(text.split())
    if len(line) <= _SHOWN_CHARS:
        return line
    _, _, rest = line[-_SHOWN_CHARS - 1 :].partition(" ")
    return rest or line[-_SHOWN_CHARS:]
