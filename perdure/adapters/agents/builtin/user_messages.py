"""Messages from people to a running delivery, as its agents read them: once, in the next message they get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.adapters.agents.builtin.issue import strip_invisible
from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.tool_calls import calls_in, texts_in
from perdure.adapters.agents.text import frame_data, frame_person_text, person_texts_in
from perdure.models.decisions import UserMessage
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


def add_user_messages(transcript: Sequence[Message], messages: Sequence[UserMessage]) -> list[Message]:
    """Return the transcript with these messages from people at the end of its last message, which no model has seen
    yet: what came before is still sent as the same bytes. Equal messages give equal bytes.

    An answer stands behind the result of the call that asked; where that call is in another conversation, the question
    is added. Where this one has asked and there is no answer, the model is told that.
    """
    updated, has_question = list(transcript), _awaits_answer(transcript)
    texts = [_message_text(message, has_question=has_question) for message in messages]
    if has_question and not any(message.question for message in messages):
        texts.append(_NO_ANSWER)
    if not texts:
        return updated
    last = updated[-1]
    return [*updated[:-1], {**last, "content": [*last["content"], *({"type": "text", "text": text} for text in texts)]}]


def add_earlier_messages(opening: Message, messages: Sequence[UserMessage]) -> Message:
    """Return a first message with the messages that earlier conversations of the same delivery have read: they hold for
    this one too. Without any it is returned as it is."""
    if not messages:
        return opening
    texts = [_EARLIER, *(_message_text(message, has_question=False) for message in messages)]
    return {**opening, "content": [*opening["content"], *({"type": "text", "text": text} for text in texts)]}


def rejection_text(step: Step, note: str) -> str:
    """Return the text with which a person rejected what the materials before it hold, behind the step's
    introduction."""
    return f"{STEPS[step].rejection_intro or _SAYS}\n{_frame_text(note)}"


def texts_from_people(transcript: Sequence[Message]) -> tuple[str, ...]:
    """Return all texts of people in charge in a conversation, from the blocks that hold nothing else."""
    texts = (text for message in transcript if message["role"] == "user" for text in texts_in(message))
    return tuple(person_text for text in texts if is_from_person(text) for person_text in person_texts_in(text))


def is_from_person(text: str) -> bool:
    """Return whether a block's text holds a message from a person."""
    return text.startswith((_SAYS, _ANSWERS, _ANSWERED))


def _message_text(message: UserMessage, *, has_question: bool) -> str:
    """Return a person's message with its introduction. `has_question`: the conversation holds the question that it
    answers; else the question is added."""
    if not message.question:
        return f"{_SAYS}\n{_frame_text(message.text)}"
    if has_question:
        return f"{_ANSWERS}\n{_frame_text(message.text)}"
    return f"{_ANSWERED}\n{frame_data('question', strip_invisible(message.question))}\n{_frame_text(message.text)}"


def _frame_text(text: str) -> str:
    """Return a person's text without invisible characters, framed as that; "(no words)" where it is empty."""
    return frame_person_text(strip_invisible(text).strip("\n") or "(no words)")


def _awaits_answer(transcript: Sequence[Message]) -> bool:
    """Return whether the last message holds the result of a question that was put to a person."""
    if len(transcript) < 2:
        return False
    *_, reply, last = transcript
    calls = {call["id"] for call in calls_in(reply) if call["name"] == ASK.name}
    return any(
        block.get("type") == "tool_result" and block["tool_use_id"] in calls and not block.get("is_error")
        for block in last["content"]
    )
