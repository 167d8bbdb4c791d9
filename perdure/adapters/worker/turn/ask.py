"""The built-in agent's question in a turn."""

from __future__ import annotations

from collections.abc import Callable

from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply, most_tokens, upper_bound
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.turn.buy import Books, Wanted, sample_of
from perdure.models.ids import digest
from perdure.models.rules.allowance import of_the_day
from perdure.models.turn import TurnInput

_SHOWN_CHARS = 80


async def ask_model(books: Books, model: Model, question: ModelRequest, work: TurnInput, run_id: str) -> Reply:
    """The reply to this question in this turn: from the journal when it was received before, else from the API."""

    async def ask(on_begun: Callable[[], None]) -> Reply:
        return await model.ask(question, on_first_event=on_begun, on_text=NewestWords().add)

    wanted = await in_thread(_wanted, question, work, run_id)  # a long conversation is megabytes to hash
    return await books.buy(wanted, ask, Reply.from_json)


def _wanted(question: ModelRequest, work: TurnInput, run_id: str) -> Wanted:
    sample, asked = sample_of(work, run_id), question.key()
    return Wanted(
        name=digest(sample, work.step, str(work.attempt), str(work.turn), asked),
        asked=digest(sample, asked),
        run=run_id,
        upper=(upper_bound(question), most_tokens(question)),
        again=work.again,
        room=of_the_day(work.room),
    )


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
