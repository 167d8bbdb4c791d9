"""ask: a question to the person in charge. assume: what is decided instead where nobody is to be asked."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import Tool, ToolCall
from perdure.adapters.agents.builtin.tools.paths import ToolError
from perdure.models.base import Written
from perdure.models.decisions import Question, QuestionKind
from perdure.text import one_line

QUESTION_CHARS, QUESTION_WHY_CHARS = 1_000, 500
QUESTION_CHOICES, CHOICE_CHARS = 10, 100
"""Of an agent's question, why it matters, and its choices: what a person reads at once in the Web UI or a message."""

ASSUMPTION_CHARS = 500
ASSUMPTION_PART_CHARS = (160, 200, 120)
"""Of what one turn assumed, all of it together; and of one question, what was assumed, and why: each one sentence."""


PUT = (
    "The question was put to a person in charge of this delivery. The answer follows, behind the results of your calls."
)
RECORDED = "Recorded for the pull request. Go on."

_WHEN = (
    "Only for what neither the request nor the repository tells, and where a wrong guess would waste the work: which "
    "of two behaviours is meant, a name or a number that others depend on. Never for permission, and never for what "
    "you can look up or what is easily changed later."
)


class AskInput(Written):
    text: str = Field(
        max_length=QUESTION_CHARS,
        description=f"the question, understandable without having seen the code; one paragraph, at most "
        f"{QUESTION_CHARS} characters",
    )
    kind: Literal["text", "choice", "yes_no"] = Field(description="how it is answered")
    choices: tuple[str, ...] = Field(
        default=(),
        description=f"for kind choice the answers to choose from, 2 to {QUESTION_CHOICES}, each of at most "
        f"{CHOICE_CHARS} characters; else empty",
    )
    why: str = Field(
        max_length=QUESTION_WHY_CHARS,
        description=f"what depends on the answer, in a sentence of at most {QUESTION_WHY_CHARS} characters",
    )


class AssumeInput(Written):
    question: str = Field(description="what you would have asked, in one short sentence")
    assumption: str = Field(description="what you take for granted instead, in one short sentence")
    why: str = Field(description="why that is the best guess, in a few words")


async def ask(given: AskInput, call: ToolCall) -> str:
    """One question a turn: a second may be settled by the first one's answer."""
    question = _question(given)
    if call.box.question is not None:
        raise ToolError("one question at a time: another one was put just now; ask this one after its answer")
    call.box.question = question
    return PUT


def _question(given: AskInput) -> Question:
    """On one line each: it is shown in a terminal, in Markdown and in messages."""
    text = one_line(given.text, QUESTION_CHARS)
    choices = tuple(one_line(one, CHOICE_CHARS + 1) for one in given.choices)
    if not _says(text):
        raise ToolError("text asks nothing")
    kind = QuestionKind(given.kind)
    if kind is not QuestionKind.CHOICE and choices:
        raise ToolError(f"choices are for kind choice, not for {kind}: leave them empty, or set the kind")
    if kind is QuestionKind.CHOICE:
        if not 2 <= len(choices) <= QUESTION_CHOICES:
            raise ToolError(f"kind choice takes 2 to {QUESTION_CHOICES} choices, not {len(choices)}")
        if len({one.lower() for one in choices}) < len(choices) or not all(choices):
            raise ToolError("choices must differ from each other, and none may be empty")
        if any(len(one) > CHOICE_CHARS for one in choices):
            raise ToolError(f"a choice has at most {CHOICE_CHARS} characters; explain it in the text")
    return Question(text=text, kind=kind, choices=choices, why=one_line(given.why, QUESTION_WHY_CHARS))


async def assume(given: AssumeInput, call: ToolCall) -> str:
    parts = (given.question, given.assumption, given.why)
    question, assumption, why = (
        one_line(text, most).rstrip(".") for text, most in zip(parts, ASSUMPTION_PART_CHARS, strict=True)
    )
    if not (_says(question) and _says(assumption)):
        raise ToolError("say what you would have asked, and what you assume instead")
    said = f"{question}{'' if question.endswith('?') else ':'} {assumption}" + (f" ({why})" if why else "")
    if len("\n".join([*call.box.assumed, said])) > ASSUMPTION_CHARS:
        raise ToolError("not recorded: too many assumptions in one reply; make this call again in your next one")
    call.box.assumed.append(said)
    return RECORDED


def _says(words: str) -> bool:
    return any(c.isalnum() for c in words)


ASK = Tool(
    "ask",
    f"Ask a person in charge of this delivery, and wait for the answer: it may take days. {_WHEN} One question a "
    "reply; do what does not depend on it first.",
    AskInput,
    ask,
)

ASSUME = Tool(
    "assume",
    f"Write down an assumption: nobody can be asked in this delivery. {_WHEN} Decide yourself, record it with this "
    "tool and go on; it is listed in the pull request.",
    AssumeInput,
    assume,
)
