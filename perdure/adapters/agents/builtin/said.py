"""Words from people to a running delivery, as its agents read them: once, in the next message they get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.adapters.agents.builtin.issue import readable
from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.run import calls_in, texts_in
from perdure.adapters.agents.text import framed, framed_words, words_in
from perdure.models.decisions import Said
from perdure.models.phases import Step
from perdure.models.steps import STEPS

_SAYS = "A person in charge of this delivery says:"
_ANSWERS = "A person in charge of this delivery answers your question:"
_ANSWERED = "A person in charge of this delivery answers this question, which was asked before:"
_EARLIER = (
    "What follows was said earlier in this delivery, in this order, and has been read by those who worked on it then. "
    "It counts as asked for."
)
_NO_ANSWER = (
    "Your question has no answer so far: the delivery was interrupted while it waited. Ask again if you cannot go on "
    "without it, otherwise decide by what you know."
)

Message = dict[str, Any]


def heard(transcript: Sequence[Message], said: Sequence[Said]) -> list[Message]:
    """The transcript with these words at the end of its last message, which no model has seen yet: what came before is
    still sent as the same bytes. Equal words give equal bytes.

    An answer stands behind the result of the call that asked; where that is another conversation's, its question is
    told with it.
    """
    told, asked = list(transcript), _asks(transcript)
    texts = [_spoken(one, asked=asked) for one in said]
    if asked and not any(one.about for one in said):
        texts.append(_NO_ANSWER)
    if not texts:
        return told
    last = told[-1]
    return [*told[:-1], {**last, "content": [*last["content"], *({"type": "text", "text": text} for text in texts)]}]


def reminded(opening: Message, told: Sequence[Said]) -> Message:
    """A first message with what people told earlier conversations of the same delivery: it holds for this one too."""
    if not told:
        return opening
    texts = [_EARLIER, *(_spoken(one, asked=False) for one in told)]
    return {**opening, "content": [*opening["content"], *({"type": "text", "text": text} for text in texts)]}


def sent_back(step: Step, words: str) -> str:
    """With which words a person rejected what the materials before it hold."""
    return f"{STEPS[step].sent_back or _SAYS}\n{_words(words)}"


def spoken(transcript: Sequence[Message]) -> tuple[str, ...]:
    """All that a person in charge has said in a conversation, taken from the blocks that hold nothing else."""
    texts = (text for message in transcript if message["role"] == "user" for text in texts_in(message))
    return tuple(words for text in texts if is_spoken(text) for words in words_in(text))


def is_spoken(text: str) -> bool:
    """True for a block that holds words of a person."""
    return text.startswith((_SAYS, _ANSWERS, _ANSWERED))


def _spoken(said: Said, *, asked: bool) -> str:
    if not said.about:
        return f"{_SAYS}\n{_words(said.text)}"
    if asked:
        return f"{_ANSWERS}\n{_words(said.text)}"
    return f"{_ANSWERED}\n{framed('question', readable(said.about))}\n{_words(said.text)}"


def _words(text: str) -> str:
    return framed_words(readable(text).strip("\n") or "(no words)")


def _asks(transcript: Sequence[Message]) -> bool:
    """True where the last message holds the result of a question that was put to a person."""
    if len(transcript) < 2:
        return False
    *_, reply, last = transcript
    calls = {call["id"] for call in calls_in(reply) if call["name"] == ASK.name}
    return any(
        block.get("type") == "tool_result" and block["tool_use_id"] in calls and not block.get("is_error")
        for block in last["content"]
    )
