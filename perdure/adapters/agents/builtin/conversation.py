"""The built-in agent's loop as pure functions: the next request, what a reply means, the message with tool results, and
which files the conversation knows. Nothing is sent or run here; `perdure.adapters.worker.turn` does both by it. Other
modules of this package have the opening message, the parsing of answers and the tools.

A transcript is the tuple of messages so far as JSON dicts, as checkpoints hold them: without cache marks, roles
alternating, the user's first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from perdure.adapters.agents.builtin.answers import (
    fallback_classification,
    free_text_summary,
    parse_answer,
    schema_for,
    schema_request,
)
from perdure.adapters.agents.builtin.model_request import ModelRequest, Reply
from perdure.adapters.agents.builtin.opening import opening_message, roles_of, system_prompt, user_message
from perdure.adapters.agents.builtin.progress import DetectedCircle, untested_reminder
from perdure.adapters.agents.builtin.review import ReviewedChange, ReviewPromises
from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.files import parse_version_line
from perdure.adapters.agents.builtin.tools.tool_calls import (
    calls_in,
    calls_in_transcript,
    count_engine_texts,
    is_empty_reply,
    texts_in,
    tool_definitions,
    tool_result,
    tools_of,
    writes_call_as_text,
)
from perdure.adapters.agents.text import redact_secrets, without_thoughts
from perdure.models.base import Message
from perdure.models.config.repository import TestCommand
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import SUMMARY_LIMIT, Contract, Ending, Outcome
from perdure.models.phases import Step
from perdure.text import one_line, shorten

IDENTICAL_CALLS_NUDGE = 3
IDENTICAL_CALLS_STOP = 5
"""The number of times the same tool call with the same input may come in a row: first the model is told, then the step
ends."""

CACHE_S = 300.0
"""The life of what was sent in the API's cache after its last use, in seconds, where no longer one is requested."""

LONG_S = 240.0
"""A wait for tests that leaves a model less than a minute to write its reply before the cache is gone."""

REASKS = 1
"""The number of times a model may correct a structured answer that did not validate."""


__all__ = [
    "Continue",
    "Next",
    "RunTools",
    "StepFinished",
    "count_identical_calls",
    "decide_next",
    "known_file_versions",
    "model_request_for",
    "opening_message",
    "redact_secrets",
    "repetition_nudge",
    "results_message",
    "schema_for",
    "system_prompt",
    "user_message",
]  # fmt: skip

REASK = "Your answer was not accepted"
"""The beginning of every message that asks for a corrected answer; they are counted in the transcript, so that a crash
does not grant another one."""

VERSIONED = ("read", "write", "edit")


@dataclass(frozen=True)
class _UselessReply:
    """A kind of reply that brings a step no further: what the model is told, how often in a row, and what people are
    told when it replies so once more. `mark` begins the message and is looked for in the transcript."""

    mark: str
    advice: str
    reasks: int
    failure: str


_EMPTY = _UselessReply(
    "Your reply was empty",
    ": it called no tool and said nothing. Go on with the work; when it is done, say in words what you did.",
    reasks=2,
    failure="the model's replies were empty, 3 in a row: no tool call, no words",
)
_PAUSED = _UselessReply("Go on.", "", reasks=2, failure="the model paused 3 times in a row without a tool call")
_CUT = _UselessReply(
    "Your reply reached its length limit",
    ". Go on where it stopped, in less words or with a tool call.",
    reasks=1,
    failure="the model's replies reached their length limit, 2 in a row without a tool call: raise its max_tokens",
)
_CUT_CALL = _UselessReply(
    "cut off: the reply reached its length limit",
    ", nothing of it was run; make fewer or smaller calls",
    reasks=3,
    failure="the model's tool calls reached their length limit, 4 in a row: raise its max_tokens",
)
_CALL_AS_TEXT = _UselessReply(
    "Your reply has a tool call written as text",
    ", which runs nothing. Call the tool itself; if it was no call, say in other words what you did.",
    reasks=1,
    failure="the model wrote its tool calls as text, 2 in a row: does its server parse tool calls?",
)
_USELESS_MARKS = tuple(useless.mark for useless in (_EMPTY, _PAUSED, _CUT, _CUT_CALL, _CALL_AS_TEXT))


@dataclass(frozen=True)
class StepFinished:
    """The step is over. `document` is to be stored as an artifact, whose hash goes into `outcome.artifact`."""

    outcome: Outcome
    document: bytes | None = None


@dataclass(frozen=True)
class RunTools:
    """The reply's tool calls are to be carried out, then the model is asked again."""


@dataclass(frozen=True)
class Continue:
    """The model is to be asked again, with this user message."""

    user_message: Message


Next = StepFinished | RunTools | Continue


def model_request_for(
    step: Step,
    contract: Contract,
    transcript: Sequence[Message],
    promises: ReviewPromises | None = None,
    tests_s: float = 0.0,
    effort: str = "",
    model: str = "",
    *,
    asks_schema: bool = False,
) -> ModelRequest:
    """Return the next request of a step to the model.

    promises       the changed promises (tests of the base that fail on the change) that a review has to answer; None:
                   there are none
    tests_s        how long the test commands take, in seconds: see `expects_long_wait`
    effort, model  in place of those in the step's settings; empty: theirs
    asks_schema    the prompt asks for an answer by its schema, because the server does not hold the model to one
    """
    settings = getattr(contract.config.steps, step)
    schema = schema_for(step, with_promises=promises is not None, roles=roles_of(contract))
    system = system_prompt(step, contract.prompts.get(step))
    return ModelRequest(
        model=model or settings.model,
        max_tokens=settings.max_tokens,
        effort=effort or settings.effort,
        system=system + schema_request(schema) if asks_schema and schema is not None else system,
        tools=tool_definitions(step, questions=contract.config.delivery.questions),
        messages=tuple(transcript),
        schema=schema,
        hour=expects_long_wait(transcript, tests_s),
    )


def decide_next(
    step: Step,
    reply: Reply,
    transcript: Sequence[Message],
    change: ReviewedChange | None = None,
    promises: ReviewPromises | None = None,
    tests: Sequence[TestCommand] = (),
    circle: DetectedCircle | None = None,
    schema: dict[str, Any] | None = None,
) -> Next:
    """Decide what follows a model's reply: the step's end, its tool calls, or another message to the model.

    transcript  the messages that the reply answers
    change      what a review is about
    promises    the changed promises (tests of the base that fail on the change) that a review has to answer
    tests       test commands, of which a step that changes files is reminded before it ends; empty: it is not
    circle      a repetition without progress that the step was found in; None: none was
    schema      of the step's answer, which a second try is told; None: it is not

    The step ends with the answer, and without one when the model refused, its context is full, it stopped for an
    unknown reason, made the same call IDENTICAL_CALLS_STOP times in a row, or the circle must end. The model is asked
    again after a reply that is of no use (see _UselessReply) before the step ends as FAILED, once to test edits before
    it ends, and to correct a structured answer, REASKS times before the step ends as INVALID.
    """
    calls = calls_in(reply.message)
    match reply.stop_reason:
        case "refusal":
            detail = f" ({reply.detail})" if reply.detail else ""
            return _finish_step(Ending.REFUSED, f"the model refused{detail}")
        case "model_context_window_exceeded":
            return _finish_step(Ending.CONTEXT, "the conversation no longer fits into the model's context")
        case "max_tokens":
            return _after_length_limit(step, reply, transcript)
        case "pause_turn" if not calls:
            return _ask_again(step, _PAUSED, transcript)
        case "tool_use" | "end_turn" | "stop_sequence" | "pause_turn":
            pass
        case unknown:
            return _finish_step(
                Ending.INVALID, f"the model stopped for a reason we do not know: {shorten(unknown, 40)}"
            )
    if calls:
        if count_identical_calls([*transcript, reply.message]) >= IDENTICAL_CALLS_STOP:
            return _finish_step(
                Ending.LOOPING, f"the same {calls[-1]['name']} call {IDENTICAL_CALLS_STOP} times in a row"
            )
        if circle is not None and circle.must_end:
            return _finish_step(Ending.LOOPING, str(circle))
        return RunTools()
    text = _message_text(reply.message)
    if writes_call_as_text(text, [tool.name for tool in tools_of(step)]):
        return _ask_again(step, _CALL_AS_TEXT, transcript)
    if STEPS[step].answer is None:
        if reply.stop_reason == "tool_use" or is_empty_reply(reply.message):  # an end is said, not left unsaid
            return _ask_again(step, _EMPTY, transcript)
        if reminder := untested_reminder(step, transcript, tests):
            return Continue(user_message(reminder))
        return StepFinished(Outcome(summary=free_text_summary(text)))
    try:
        is_last = count_engine_texts(transcript, REASK) >= REASKS
        outcome, document = parse_answer(step, text, change, promises, is_last=is_last)
    except ValueError as problem:
        correction = f"it has mistakes.\n{problem}\nAnswer again with the whole JSON object."
        correction += schema_request(schema) if schema is not None else ""
        return _ask_for_answer(step, text, transcript, correction, f"{step}: {str(problem).splitlines()[0]}")
    return StepFinished(outcome, document)


def _after_length_limit(step: Step, reply: Reply, transcript: Sequence[Message]) -> Next:
    """Decide what follows a reply that reached its length limit. Its tool calls come back as errors, none of them is
    run; a structured answer is requested again, REASKS times at most; free text is to go on."""
    calls = calls_in(reply.message)
    if calls:
        next_ = _ask_again(step, _CUT_CALL, transcript)
        if isinstance(next_, StepFinished):
            return next_
        text = _CUT_CALL.mark + _CUT_CALL.advice
        return Continue({"role": "user", "content": [tool_result(call, text, is_error=True) for call in calls]})
    if STEPS[step].answer:
        correction = "it reached the length limit before its end. Answer again, shorter."
        answer = _message_text(reply.message)
        return _ask_for_answer(
            step, answer, transcript, correction, f"{step}: it reached the length limit before its end"
        )
    return _ask_again(step, _CUT, transcript)


def _ask_again(step: Step, useless: _UselessReply, transcript: Sequence[Message]) -> Next:
    """Return what the model is told after a reply of this kind; the step's end as FAILED where it was told that
    `reasks` times since its last reply that was of use."""
    told = 0
    for message in reversed(transcript):
        if message["role"] == "user":
            results = [block["content"] for block in message["content"] if block.get("is_error")]
            texts = [text for text in (*texts_in(message), *results) if text.startswith(_USELESS_MARKS)]
            if not texts:
                break
            told += any(text.startswith(useless.mark) for text in texts)
    if told >= useless.reasks:
        return _finish_step(Ending.FAILED, one_line(f"{step}: {useless.failure}", SUMMARY_LIMIT))
    return Continue(user_message(useless.mark + useless.advice))


def _ask_for_answer(step: Step, answer: str, transcript: Sequence[Message], correction: str, summary: str) -> Next:
    """Return the message that asks for a corrected answer; where that was asked REASKS times, the step's end: as
    INVALID, but of a classification with a kind all the same.

    answer  what cannot be used; correction: what the model is told; summary: what people are told when the step ends
    """
    if count_engine_texts(transcript, REASK) >= REASKS:
        if step is Step.CLASSIFY:  # it decides a branch's name and what new tests have to show: no reason to end
            return StepFinished(fallback_classification(answer))
        return _finish_step(Ending.INVALID, one_line(summary, SUMMARY_LIMIT))
    return Continue(user_message(f"{REASK}: {correction}"))


def _finish_step(ending: Ending, summary: str) -> StepFinished:
    """Return the step's end without an answer, for this reason."""
    return StepFinished(Outcome(ending=ending, summary=summary))


def _message_text(message: Message) -> str:
    """Return all texts of a message as one, without thoughts that a server left in them and outer white space."""
    return without_thoughts("".join(texts_in(message))).strip()


def results_message(
    results: Sequence[Message], transcript: Sequence[Message], circle: DetectedCircle | None = None
) -> Message:
    """Return the user message that brings tool results, and a text that warns the model when it repeats a call or goes
    in a circle.

    transcript  ends with the assistant message that the results answer
    circle      a repetition without progress that the step was found in; None: none was
    """
    nudge_text = repetition_nudge(count_identical_calls(transcript)) or (circle.warning if circle is not None else None)
    texts = [{"type": "text", "text": nudge_text}] if nudge_text else []
    return {"role": "user", "content": [*results, *texts]}


def repetition_nudge(count: int) -> str | None:
    """Return what a model is told that made the same call `count` times in a row; None below IDENTICAL_CALLS_NUDGE."""
    if count < IDENTICAL_CALLS_NUDGE:
        return None
    return (
        f"You have made this same call {count} times in a row, and its result will not change. Do something else, or "
        f"finish. At {IDENTICAL_CALLS_STOP} times the step is ended."
    )


def count_identical_calls(transcript: Sequence[Message]) -> int:
    """Return how many of the last tool calls in a row are the same one with the same input; 0 without calls."""
    calls = (
        call for message in reversed(transcript) if message["role"] == "assistant" for call in calls_in(message)[::-1]
    )
    texts = (json.dumps([call["name"], call["input"]], sort_keys=True) for call in calls)
    last = next(texts, None)
    return 0 if last is None else 1 + sum(1 for _ in takewhile(lambda text: text == last, texts))


def known_file_versions(transcript: Iterable[Message]) -> dict[str, str]:
    """Return the newest version of every file that the conversation knows, by relative path, as the successful results
    of the tools read, write and edit tell it."""
    versions: dict[str, str] = {}
    for text in _file_results(transcript):
        if (path_and_version := parse_version_line(text)) is not None:
            versions[path_and_version[0]] = path_and_version[1]
    return versions


def _file_results(transcript: Iterable[Message]) -> Iterator[str]:
    """Yield the texts of successful results of the tools read, write and edit, which say what version of a file they
    saw."""
    call_ids: set[str] = set()
    for message in transcript:
        if message["role"] == "assistant":
            call_ids = {call["id"] for call in calls_in(message) if call["name"] in VERSIONED}
            continue
        for block in message["content"]:
            if block.get("type") == "tool_result" and block["tool_use_id"] in call_ids and not block.get("is_error"):
                yield block["content"]


def expects_long_wait(transcript: Iterable[dict[str, Any]], tests_s: float = 0.0) -> bool:
    """Return whether a wait longer than CACHE_S is to be expected again: the tests take LONG_S or more, or the
    conversation has run a command with a limit over CACHE_S, or asked a person.

    tests_s  the time of all test commands on the base, in seconds
    """
    if tests_s >= LONG_S:
        return True
    return any(
        call["name"] == ASK.name or (call["name"] == BASH.name and _timeout_in(call["input"]) > CACHE_S)
        for call in calls_in_transcript(transcript)
    )


def _timeout_in(call_input: object) -> float:
    """Return the time limit in a bash call's input, in seconds; 0 where it names none."""
    timeout = call_input.get("timeout") if isinstance(call_input, dict) else None
    return float(timeout) if isinstance(timeout, int | float) else 0.0
