"""The agent's loop as pure functions: what to ask, and what a reply means.

A transcript is the tuple of messages so far as JSON dicts, as checkpoints hold them: without cache marks, roles
alternating, the user's first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.adapters.agents.builtin.answers import read_answer, schema_for, written_summary
from perdure.adapters.agents.builtin.model_request import ModelRequest, Reply
from perdure.adapters.agents.builtin.opening import opening, roles_of, system_prompt, user_message
from perdure.adapters.agents.builtin.places import Change
from perdure.adapters.agents.builtin.promised import Promised
from perdure.adapters.agents.builtin.stuck import Stuck
from perdure.adapters.agents.builtin.tools.ask import ASK
from perdure.adapters.agents.builtin.tools.bash import BASH
from perdure.adapters.agents.builtin.tools.read import known_version
from perdure.adapters.agents.builtin.tools.run import calls_in, calls_of, result, texts_in, times_told, tools_for
from perdure.adapters.agents.builtin.untested import untested
from perdure.adapters.agents.text import redact
from perdure.models.config import TestCommand
from perdure.models.contract import Contract
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.models.turn import SUMMARY_LIMIT, Ending, Outcome
from perdure.text import one_line

IDENTICAL_CALLS_NUDGE = 3
IDENTICAL_CALLS_STOP = 5
"""The same tool call with the same input in a row: first a word to the model, then the end of the step."""

CACHE_S = 300.0
"""The life of what was sent, after its last use, where nothing else is asked for."""

LONG_S = 240.0
"""A wait for tests that leaves a model less than a minute to write its reply before the cache is gone."""

REASKS = 1
"""Times a model may correct a structured answer that did not validate."""


__all__ = [
    "Continue",
    "Next",
    "RunTools",
    "StepFinished",
    "after_reply",
    "identical_calls",
    "nudge",
    "opening",
    "question_for",
    "redact",
    "results_message",
    "schema_for",
    "system_prompt",
    "toolbox_memory",
    "user_message",
]  # fmt: skip

Message = dict[str, Any]

REASK = "Your answer was not accepted"
"""The beginning of every re-ask; they are counted in the transcript, so that a crash does not grant another one."""

VERSIONED = ("read", "write", "edit")


@dataclass(frozen=True)
class StepFinished:
    """The step is over. `document` is to be stored as an artifact, whose hash goes into `outcome.artifact`."""

    outcome: Outcome
    document: bytes | None = None


@dataclass(frozen=True)
class RunTools:
    """Carry out the reply's tool calls, then ask again."""


@dataclass(frozen=True)
class Continue:
    """Ask again with this user message."""

    user_message: Message


Next = StepFinished | RunTools | Continue


def question_for(
    step: Step,
    contract: Contract,
    transcript: Sequence[Message],
    promised: Promised | None = None,
    tests_s: float = 0.0,
    effort: str = "",
    model: str = "",
) -> ModelRequest:
    """The next request of a step. `promised`: see after_reply; `tests_s`: the time of the test commands, in seconds;
    `effort`, `model`: others than the step's settings say."""
    settings = getattr(contract.config.steps, step)
    return ModelRequest(
        model=model or settings.model,
        max_tokens=settings.max_tokens,
        effort=effort or settings.effort,
        system=system_prompt(step, contract.prompts.get(step)),
        tools=tools_for(step, questions=contract.config.delivery.questions),
        messages=tuple(transcript),
        schema=schema_for(step, promised=promised is not None, roles=roles_of(contract)),
        hour=waits_long(transcript, tests_s),
    )


def after_reply(
    step: Step,
    reply: Reply,
    transcript: Sequence[Message],
    change: Change | None = None,
    promised: Promised | None = None,
    tests: Sequence[TestCommand] = (),
    circle: Stuck | None = None,
) -> Next:
    """Decide what follows a reply; `transcript` is what was asked, without it, `change` what a review is about, and
    `promised` what it has to answer for. `tests`: of which a step that changes files is reminded before it ends;
    `circle`: the one it is in."""
    calls = calls_in(reply.message)
    match reply.stop_reason:
        case "refusal":
            why = f" ({reply.detail})" if reply.detail else ""
            return _ended(Ending.REFUSED, f"the model refused{why}")
        case "model_context_window_exceeded":
            return _ended(Ending.CONTEXT, "the conversation no longer fits into the model's context")
        case "max_tokens":
            return _cut_off(step, reply, transcript)
        case "pause_turn" if not calls:
            return Continue(user_message("Go on."))
        case "tool_use" | "end_turn" | "stop_sequence" | "pause_turn":
            pass
        case unknown:
            return _ended(Ending.INVALID, f"the model stopped for a reason we do not know: {unknown[:40]}")
    if calls:
        if identical_calls([*transcript, reply.message]) >= IDENTICAL_CALLS_STOP:
            return _ended(Ending.LOOPING, f"the same {calls[-1]['name']} call {IDENTICAL_CALLS_STOP} times in a row")
        if circle is not None and circle.over:
            return _ended(Ending.LOOPING, str(circle))
        return RunTools()
    if STEPS[step].answer is None:
        if word := untested(step, transcript, tests):
            return Continue(user_message(word))
        return StepFinished(Outcome(summary=written_summary(_text(reply.message))))
    try:
        last = times_told(transcript, REASK) >= REASKS
        outcome, document = read_answer(step, _text(reply.message), change, promised, last=last)
    except ValueError as problem:
        told = f"it has mistakes.\n{problem}\nAnswer again with the whole JSON object."
        return _reask(transcript, told, f"{step}: {str(problem).splitlines()[0]}")
    return StepFinished(outcome, document)


def _cut_off(step: Step, reply: Reply, transcript: Sequence[Message]) -> Next:
    calls = calls_in(reply.message)
    if calls:
        text = "cut off: the reply reached its length limit, nothing of it was run; make fewer or smaller calls"
        return Continue({"role": "user", "content": [result(call, text, error=True) for call in calls]})
    if STEPS[step].answer:
        told = "it reached the length limit before its end. Answer again, shorter."
        return _reask(transcript, told, f"{step}: it reached the length limit before its end")
    return Continue(user_message("Your reply reached its length limit. Go on where it stopped."))


def _reask(transcript: Sequence[Message], told: str, summary: str) -> Next:
    """`told`: to the model; `summary`: to people, once it was asked often enough."""
    if times_told(transcript, REASK) >= REASKS:
        return _ended(Ending.INVALID, one_line(summary, SUMMARY_LIMIT))
    return Continue(user_message(f"{REASK}: {told}"))


def _ended(ending: Ending, summary: str) -> StepFinished:
    return StepFinished(Outcome(ending=ending, summary=summary))


def _text(message: Message) -> str:
    return "".join(texts_in(message)).strip()


def results_message(results: Sequence[Message], transcript: Sequence[Message], circle: Stuck | None = None) -> Message:
    """The user message that brings tool results, with a nudge when the model repeats itself or goes in a `circle`.

    `transcript` ends with the assistant message the results answer.
    """
    word = nudge(identical_calls(transcript)) or (circle.word if circle is not None else None)
    texts = [{"type": "text", "text": word}] if word else []
    return {"role": "user", "content": [*results, *texts]}


def nudge(run: int) -> str | None:
    """A word to a model that made the same call `run` times in a row; None while that is no reason to speak."""
    if run < IDENTICAL_CALLS_NUDGE:
        return None
    return (
        f"You have made this same call {run} times in a row, and its result will not change. Do something else, or "
        f"finish. At {IDENTICAL_CALLS_STOP} times the step is ended."
    )


def identical_calls(transcript: Iterable[Message]) -> int:
    """Return the number of last tool calls that are the same one with the same input."""
    run, last = 0, ""
    for call in calls_of(transcript):
        this = json.dumps([call["name"], call["input"]], sort_keys=True)
        run, last = (run + 1 if this == last else 1), this
    return run


def toolbox_memory(transcript: Iterable[Message]) -> dict[str, str]:
    """Relative path → version of every file the conversation knows, as the results of the file tools tell it."""
    known: dict[str, str] = {}
    for text in _file_results(transcript):
        if (seen := known_version(text)) is not None:
            known[seen[0]] = seen[1]
    return known


def _file_results(transcript: Iterable[Message]) -> Iterator[str]:
    """Texts of results without error of the tools that say which version of a file they saw."""
    asked: set[str] = set()
    for message in transcript:
        if message["role"] == "assistant":
            asked = {call["id"] for call in calls_in(message) if call["name"] in VERSIONED}
            continue
        for block in message["content"]:
            if block.get("type") == "tool_result" and block["tool_use_id"] in asked and not block.get("is_error"):
                yield block["content"]


def waits_long(transcript: Iterable[dict[str, Any]], tests_s: float = 0.0) -> bool:
    """True where a wait over CACHE_S is to be expected again: the tests take long, the conversation has run a command
    with so long a limit, or it has asked a person.

    tests_s  the time of all test commands on the base, in seconds
    """
    if tests_s >= LONG_S:
        return True
    return any(
        call["name"] == ASK.name or (call["name"] == BASH.name and _limit(call["input"]) > CACHE_S)
        for call in calls_of(transcript)
    )


def _limit(given: object) -> float:
    limit = given.get("timeout") if isinstance(given, dict) else None
    return float(limit) if isinstance(limit, int | float) else 0.0
