"""A turn of the built-in agent: a reply of the model, its tool calls, and why the model's cache has missed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.compaction import may_begin_anew
from perdure.adapters.agents.builtin.conversation import Continue, RunTools, StepFinished
from perdure.adapters.agents.builtin.errors import OVERLOADED, NotSummedUp
from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.agents.builtin.tools import describe, run_calls
from perdure.adapters.agents.chosen import second_model
from perdure.adapters.agents.prices import window_of
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.live import Waiting
from perdure.adapters.worker.turn.agent import Message, TurnToTake
from perdure.adapters.worker.turn.anew import begin_anew
from perdure.adapters.worker.turn.ask import ask_model
from perdure.adapters.worker.turn.buy import Books
from perdure.adapters.worker.turn.history import circle_of, is_full, model_of
from perdure.adapters.worker.turn.materials import change_of
from perdure.adapters.worker.turn.seal import seal, summary_of
from perdure.models.crash import CrashPoint
from perdure.models.decisions import Question
from perdure.models.errors import ModelUnavailable
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult

MISS_TOKENS = 8192
"""Of a prompt: smaller ones may be too small for a model to cache (2,048 to 4,096 on some), and cost little."""

_FILE = "last-message.json"


class BuiltIn:
    """The built-in agent: no process waits for it, its memory is the conversation in the checkpoint."""

    async def take(self, turn: TurnToTake, waiting: Waiting | None) -> TurnResult:
        if waiting is not None:
            await waiting.stop()
        host, session, work, told, promised = turn.host, turn.session, turn.work, turn.told, turn.promised
        second = await in_thread(model_of, session.vault, work)
        spare = "" if second else second_model(session.contract.config, work.step)
        model = second or turn.settings.model
        full = await in_thread(is_full, session.vault, work, told, host.model_or_refuse().window or window_of(model))
        _, tests_s = await in_thread(session.tested)
        question = conversation.question_for(work.step, session.contract, told, promised, tests_s, work.effort, second)
        after = await in_thread(last_message, session.directory, work)
        question = replace(question, after=after if host.model_or_refuse().diagnoses else None, compact=full)
        books = Books(session.replies, session.spend, await in_thread(host.pace))
        try:
            reply = await ask_model(books, host.model_or_refuse(), question, work, turn.run_id)
        except ModelUnavailable as error:
            if not spare or error.limited != OVERLOADED:
                raise
            over = await begin_anew(turn, spare, f"its {OVERLOADED}")
            return over.model_copy(update={"waited_s": round(books.waited, 1)})
        except NotSummedUp:
            return await begin_anew(turn, second)
        if full:
            return await begin_anew(turn, second, reply=reply)
        await in_thread(note_message, session.directory, work, reply)
        session.check()
        acted = await _act(turn, reply)
        ending = acted.outcome.ending if acted.outcome is not None else None
        if ending is Ending.CONTEXT and may_begin_anew(told):
            return await begin_anew(turn, second, reply=reply)
        if ending is Ending.REFUSED and spare and acted.outcome is not None:
            return await begin_anew(turn, spare, acted.outcome.summary, reply=reply)
        did, missed = describe(*host.redacted([reply.message])), miss(reply, question.after)
        result = TurnResult(
            checkpoint="",
            summary=summary_of(work, did, acted.outcome, missed),
            usage=reply.usage,
            outcome=acted.outcome,
            question=acted.question,
            assumption=acted.assumption,
            model=second,
            waited_s=round(books.waited, 1),
        )
        return await seal(turn, [*told, reply.message, *acted.said], result)


@dataclass(frozen=True)
class _Acted:
    """The consequence of a reply: words back, the step's end, a question to a person or an assumption instead."""

    said: tuple[Message, ...] = ()
    outcome: Outcome | None = None
    question: Question | None = None
    assumption: str = ""


async def _act(turn: TurnToTake, reply: Reply) -> _Acted:
    """Do what the reply asks for: its tool calls carried out, a word back, or the step's end."""
    host, session, work, told = turn.host, turn.session, turn.work, turn.told
    change = await in_thread(change_of, session.vault, work) if work.step is Step.REVIEW else None
    config = session.contract.config
    # A word back is another turn: where there is none, a step that has ended would become one without an end.
    tests = config.test or () if work.turn < config.limits.turns_per_step else ()
    circle = await in_thread(circle_of, session, work, told)
    step = conversation.after_reply(work.step, reply, told, change, turn.promised, tests, circle)
    if isinstance(step, StepFinished):
        if step.document is None:
            return _Acted(outcome=step.outcome)
        artifact = await in_thread(session.vault.put_artifact, work.delivery, step.document)
        return _Acted(outcome=step.outcome.model_copy(update={"artifact": artifact}))
    if isinstance(step, Continue):
        return _Acted((step.user_message,))
    assert isinstance(step, RunTools)
    now_doing(doing=describe(*host.redacted([reply.message])))
    await in_thread(checkpoints.leave, session.workspace)
    toolbox = session.toolbox(
        conversation.toolbox_memory(told),
        writable=STEPS[work.step].writes,
        on_spawn=lambda: crash_point(CrashPoint.DURING_TOOL),
        label=f"{work.step}-{work.attempt}-{work.turn}",
    )
    toolbox.questions = session.contract.config.delivery.questions
    results = await run_calls(reply.message, toolbox, work.step)
    answer = conversation.results_message(host.redacted(results), [*told, reply.message], circle)
    # Both go into history and to people: no more than a tool's result may they hold a secret of this worker.
    asked = host.redacted([toolbox.question.model_dump(mode="json")] if toolbox.question else [])
    [assumption] = host.redacted([{"said": "\n".join(toolbox.assumed)}])
    return _Acted((answer,), None, Question.model_validate(asked[0]) if asked else None, assumption["said"])


def last_message(directory: Path, work: TurnInput) -> str | None:
    """The id of the reply of the turn before this one; None in a first turn, and where another host took it. For
    diagnosis alone: nothing that is decided may depend on it."""
    try:
        found = json.loads((directory / _FILE).read_bytes())
        return str(found["id"]) if found["of"] == _of(work, work.turn - 1) and found["id"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def note_message(directory: Path, work: TurnInput, reply: Reply) -> None:
    """Remember this turn's reply for the next one."""
    write_whole(directory / _FILE, json.dumps({"of": _of(work, work.turn), "id": reply.id}).encode())


def miss(reply: Reply, after: str | None) -> str:
    """The reason for a miss of the cache, which costs ten times a hit, in words; empty where there was none, or nobody
    knows what was sent before (`after`)."""
    if after is None or reply.usage.prompt_tokens < MISS_TOKENS:
        return ""
    if reply.missed:
        return f"cache missed: {reply.missed}"
    return "cache missed: expired" if reply.usage.cache_read_tokens == 0 else ""


def _of(work: TurnInput, turn: int) -> list[str | int]:
    return [str(work.step), work.attempt, turn]
