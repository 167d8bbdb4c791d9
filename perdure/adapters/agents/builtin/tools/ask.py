"""The tool ask, which puts a question to the person in charge, and the tool assume, which records what the agent
decided instead where no person may be asked. Both only write into the toolbox; the answer comes by another way."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from perdure.adapters.agents.builtin.tools.base import AgentTool, ToolCall, ToolError
from perdure.models.base import UserInputModel
from perdure.models.delivery.decisions import Question, QuestionKind
from perdure.text import one_line

QUESTION_CHARS, QUESTION_WHY_CHARS = 1_000, 500
QUESTION_CHOICES, CHOICE_CHARS = 10, 100
"""The most characters of an agent's question and of why it matters, the most choices, and the most characters of each:
what a person reads at once in the Web UI or a message."""

ASSUMPTION_CHARS = 500
ASSUMPTION_PART_CHARS = (160, 200, 120)
"""The most characters of what one turn assumed, all of it together; and of one question, what was assumed, and why:
each one sentence."""


QUESTION_RESULT = (
    "The question was put to a person in charge of this delivery. The answer follows, behind the results of your calls."
)
ASSUMPTION_RESULT = "Recorded for the pull request. Go on."

_WHEN = (
    "Only for what neither the request nor the repository tells, and where a wrong guess would waste the work: which "
    "of two behaviours is meant, a name or a number that others depend on. Never for permission, and never for what "
    "you can look up or what is easily changed later."
)


class AskInput(UserInputModel):
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


class AssumeInput(UserInputModel):
    question: str = Field(description="what you would have asked, in one short sentence")
    assumption: str = Field(description="what you take for granted instead, in one short sentence")
    why: str = Field(description="why that is the best guess, in a few words")


async def put_question(arguments: AskInput, call: ToolCall) -> str:
    """Put the question into the toolbox, and return the tool's result. Raises ToolError for a wrong question, and for a
    second one in a turn: it may be settled by the first one's answer."""
    question = _to_question(arguments)
    if call.box.question is not None:
        raise ToolError("one question at a time: another one was put just now; ask this one after its answer")
    call.box.question = question
    return QUESTION_RESULT


def _to_question(arguments: AskInput) -> Question:
    """Return the question that a call's arguments ask, each text on one line: it is shown in a terminal, in Markdown
    and in messages. Raises ToolError for one without words, or with choices that do not fit its kind."""
    text = one_line(arguments.text, QUESTION_CHARS)
    choices = tuple(one_line(choice, CHOICE_CHARS + 1) for choice in arguments.choices)
    if not _has_words(text):
        raise ToolError("text asks nothing")
    kind = QuestionKind(arguments.kind)
    if kind is not QuestionKind.CHOICE and choices:
        raise ToolError(f"choices are for kind choice, not for {kind}: leave them empty, or set the kind")
    if kind is QuestionKind.CHOICE:
        if not 2 <= len(choices) <= QUESTION_CHOICES:
            raise ToolError(f"kind choice takes 2 to {QUESTION_CHOICES} choices, not {len(choices)}")
        if len({choice.lower() for choice in choices}) < len(choices) or not all(choices):
            raise ToolError("choices must differ from each other, and none may be empty")
        if any(len(choice) > CHOICE_CHARS for choice in choices):
            raise ToolError(f"a choice has at most {CHOICE_CHARS} characters; explain it in the text")
    return Question(text=text, kind=kind, choices=choices, why=one_line(arguments.why, QUESTION_WHY_CHARS))


async def record_assumption(arguments: AssumeInput, call: ToolCall) -> str:
    """Add an assumption to the toolbox as one line, and return the tool's result. Raises ToolError for one without
    words, and where all of the turn's assumptions would exceed ASSUMPTION_CHARS."""
    parts = (arguments.question, arguments.assumption, arguments.why)
    question, assumption, why = (
        one_line(text, limit).rstrip(".") for text, limit in zip(parts, ASSUMPTION_PART_CHARS, strict=True)
    )
    if not (_has_words(question) and _has_words(assumption)):
        raise ToolError("say what you would have asked, and what you assume instead")
    entry = f"{question}{'' if question.endswith('?') else ':'} {assumption}" + (f" ({why})" if why else "")
    if len("\n".join([*call.box.assumptions, entry])) > ASSUMPTION_CHARS:
        raise ToolError("not recorded: too many assumptions in one reply; make this call again in your next one")
    call.box.assumptions.append(entry)
    return ASSUMPTION_RESULT


def _has_words(text: str) -> bool:
    """Return whether a text has a letter or digit."""
    return any(c.isalnum() for c in text)


ASK = AgentTool(
    "ask",
    f"Ask a person in charge of this delivery, and wait for the answer: it may take days. {_WHEN} One question a "
    "reply; do what does not depend on it first.",
    AskInput,
    put_question,
)

ASSUME = AgentTool(
    "assume",
    f"Write down an assumption: nobody can be asked in this delivery. {_WHEN} Decide yourself, record it with this "
    "tool and go on; it is listed in the pull request.",
    AssumeInput,
    record_assumption,
)
