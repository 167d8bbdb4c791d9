"""A turn of the built-in agent: a reply of the model, its tool calls, why the model's cache has missed, and the
conversation replaced by a shorter one when it was too long or another model takes over. What all agents share is in
`agent`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.conversation import Continue, RunTools, StepFinished
from perdure.adapters.agents.builtin.errors import OVERLOADED, ConversationTooLong, SummaryRefused
from perdure.adapters.agents.builtin.model import Model, ModelRequest, Reply, max_cost_usd, max_total_tokens
from perdure.adapters.agents.builtin.opening import COMPACTED, TAKEN_OVER, can_restart, compact_transcript
from perdure.adapters.agents.builtin.tools import describe_reply, run_calls
from perdure.adapters.agents.builtin.tools.tool_calls import texts_in
from perdure.adapters.agents.prices import window_of
from perdure.adapters.agents.resolve_agents import second_model
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.turn.agent import (
    TurnContext,
    circle_of,
    commit_turn,
    needs_compaction,
    second_model_of,
    step_diff,
    turn_summary,
)
from perdure.adapters.worker.turn.materials import review_change
from perdure.adapters.worker.turn.paid_replies import PaidReplies, ReplyRequest, sample_of
from perdure.adapters.worker.waiting_agents import WaitingAgent
from perdure.models.base import Message
from perdure.models.budget.ledger import Usage
from perdure.models.crash import CrashPoint
from perdure.models.delivery.decisions import Question
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.errors import ModelUnavailable
from perdure.models.ids import digest
from perdure.models.phases import Step
from perdure.models.rules.allowance import day_limits_only
from perdure.text import redact_known

COMPACTING = "conversation made shorter"
SUMMED_UP = f"{COMPACTING}, with the model's summary"


async def restart_conversation(
    turn: TurnContext, model: str = "", reason: str = "", reply: Reply | None = None
) -> TurnResult:
    """Commit a turn whose transcript is one new, shorter message, the step's opening and what has become of the work
    since, and return its result; no tool runs and nothing is asked. A second model starts with such a conversation,
    because what a model has thought is bound to it.

    model   that the step goes on with; empty: its own
    reason  for going over to that model now; empty: the conversation was too long
    reply   that showed that the model cannot go on, or is the summary, whose usage the turn counts; None: nothing was
            asked

    Raises Superseded or WorkCutOff when the worktree is not this attempt's any more.
    """
    summary = reply.summary if reply is not None else ""
    message = f"goes on with {model}: {reason}" if reason else SUMMED_UP if summary else COMPACTING
    update_heartbeat(doing=message)
    messages, diff = turn.messages, await in_thread(step_diff, turn.session.vault, turn.work)
    [opening] = turn.host.redact_blocks(
        compact_transcript(messages, diff, TAKEN_OVER if reason else COMPACTED, summary) if messages[1:] else messages
    )
    crash_point(CrashPoint.DURING_COMPACTION)
    result = TurnResult(
        checkpoint="",
        summary=turn_summary(turn.work, message, None, ""),
        usage=reply.usage if reply is not None else Usage(),
        model=model,
    )
    return await commit_turn(turn, [opening], result)


_SHOWN_CHARS = 80

TAIL_CHARS = 1500
"""Most characters of a reply's newest words in a heartbeat, a screen; the server keeps an attempt's last one alone."""


async def ask_model(books: PaidReplies, model: Model, question: ModelRequest, work: TurnInput, run_id: str) -> Reply:
    """Return the reply to this question in this turn: the stored one when it was received before, else the API's, paid
    for and written down. The newest words of the reply are shown in the heartbeats as it comes.

    Raises ModelUnavailable or ModelRefusesUs as the API answers, RepliesCut when the reply broke off too often,
    BudgetReached when the day's budget does not cover it, DiskFull when it could not be written down.
    """

    async def ask(on_begun: Callable[[], None]) -> Reply:
        return await model.ask(question, on_first_event=on_begun, on_text=StreamTail().add)

    reply_request = await in_thread(_reply_request, question, work, run_id)  # a long conversation is megabytes to hash
    return await books.get_or_buy(reply_request, ask, Reply.from_json)


def _reply_request(question: ModelRequest, work: TurnInput, run_id: str) -> ReplyRequest:
    """Return the request for the reply to a question: the name it is kept under, the digest of its bytes, the most it
    can cost, and the day's budget, which has to cover that."""
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
    """The newest words of a stream, for those who watch: whole ones, because a stream comes in pieces of words, and
    without this process's secrets. Of an answer in JSON nobody is shown more than a line."""

    def __init__(self) -> None:
        self._end, self._is_answer = "", False

    def add(self, text: str) -> None:
        """Add text of the stream, and show its newest words in the attempt's heartbeats: a line of them as `doing`, and
        up to TAIL_CHARS as `reply_tail`, once they are whole."""
        self._is_answer |= not self._end.strip() and text.lstrip().startswith("{")
        # A secret is whole here before its beginning is cut off: it is shorter than the rest that is kept.
        self._end = redact_known(self._end + text)[-TAIL_CHARS:]
        if newest := last_whole_words(self._end):
            update_heartbeat(doing=newest)
        if not self._is_answer and (whole := _WHOLE_WORDS.match(self._end)):
            update_heartbeat(reply_tail=whole[0])


_WHOLE_WORDS = re.compile(r".*\s", re.DOTALL)


def last_whole_words(text: str) -> str:
    """Return at most _SHOWN_CHARS from the end of a text, from the beginning of a word, on one line."""
    line = " ".join(text.split())
    if len(line) <= _SHOWN_CHARS:
        return line
    _, _, rest = line[-_SHOWN_CHARS - 1 :].partition(" ")
    return rest or line[-_SHOWN_CHARS:]


MISS_TOKENS = 8192
"""Tokens of a prompt from which on a cache miss is told: smaller ones may be too small for a model to cache (2,048 to
4,096 on some), and cost little."""

_FILE = "last-message.json"


class BuiltInAgent:
    """The built-in agent: no process waits for it, its memory is the conversation in the checkpoint."""

    async def run_turn(self, turn: TurnContext, waiting: WaitingAgent | None) -> TurnResult:
        """Ask the model once, act on its reply, commit the turn, and return its result. `waiting`, another agent's
        process, is stopped.

        Where the conversation fills the model's window, or the model is overloaded or refuses and the step has a second
        one, the turn starts the conversation again instead, shorter. Raises ModelUnavailable, ModelRefusesUs (also
        without a key), RepliesCut, BudgetReached or DiskFull where there is no reply, SandboxUnavailable where its
        tools cannot run, and Superseded or WorkCutOff when the worktree is not this attempt's any more.
        """
        if waiting is not None:
            await waiting.stop()
        host, session, work, messages, promised = turn.host, turn.session, turn.work, turn.messages, turn.promised
        second_model_name = await in_thread(second_model_of, session.vault, work)
        spare_model = "" if second_model_name else second_model(session.contract.config, work.step)
        model = second_model_name or turn.settings.model
        must_compact = await in_thread(
            needs_compaction, session.vault, work, messages, host.require_model().window or window_of(model)
        )
        _, tests_s = await in_thread(session.base_test_results)
        question = conversation.model_request_for(
            work.step,
            session.contract,
            messages,
            promised,
            tests_s,
            work.effort,
            second_model_name,
            asks_schema=host.require_model().asks_schema,
        )
        previous_id = await in_thread(previous_message_id, session.directory, work)
        question = replace(
            question, after=previous_id if host.require_model().supports_diagnostics else None, compact=must_compact
        )
        books = PaidReplies(session.replies, session.spend_log, await in_thread(host.pace_of, host.require_model()))
        try:
            reply = await ask_model(books, host.require_model(), question, work, turn.run_id)
        except ModelUnavailable as error:
            if not spare_model or error.limit_reason != OVERLOADED:
                raise
            restarted = await restart_conversation(turn, spare_model, f"its {OVERLOADED}")
            return restarted.model_copy(update={"waited_s": round(books.waited_s, 1)})
        except SummaryRefused:
            return await restart_conversation(turn, second_model_name)
        except ConversationTooLong:
            if not can_restart(messages):
                raise
            return await restart_conversation(turn, second_model_name)
        if must_compact:
            return await restart_conversation(turn, second_model_name, reply=reply)
        await in_thread(record_message_id, session.directory, work, reply)
        session.check()
        effect = await _act_on_reply(turn, reply, question.schema)
        ending = effect.outcome.ending if effect.outcome is not None else None
        if ending is Ending.CONTEXT and can_restart(messages):
            return await restart_conversation(turn, second_model_name, reply=reply)
        if ending is Ending.REFUSED and spare_model and effect.outcome is not None:
            return await restart_conversation(turn, spare_model, effect.outcome.summary, reply=reply)
        description, miss_reason = (
            describe_reply(*host.redact_blocks([reply.message])),
            cache_miss_reason(reply, question.after),
        )
        result = TurnResult(
            checkpoint="",
            summary=turn_summary(work, description, effect.outcome, miss_reason),
            usage=reply.usage,
            outcome=effect.outcome,
            question=effect.question,
            assumption=effect.assumption,
            model=second_model_name,
            waited_s=round(books.waited_s, 1),
        )
        return await commit_turn(turn, [*messages, reply.message, *effect.messages], result)


@dataclass(frozen=True)
class _ReplyEffect:
    """The consequence of a reply: messages back to the model, the step's end, a question to a person or an assumption
    instead."""

    messages: tuple[Message, ...] = ()
    outcome: Outcome | None = None
    question: Question | None = None
    assumption: str = ""


async def _act_on_reply(turn: TurnContext, reply: Reply, schema: dict[str, Any] | None) -> _ReplyEffect:
    """Do what the reply asks for, and return the consequence: tool calls are run in the sandbox, a message goes back to
    the model, or the step ends, its document stored as an artifact. `schema`: of the step's answer. Results, question
    and assumption are without this worker's secrets.

    Before tools run, the worktree is marked as changed. Raises Superseded, SandboxUnavailable and WorkCutOff from the
    tools.
    """
    host, session, work, messages = turn.host, turn.session, turn.work, turn.messages
    change = await in_thread(review_change, session.vault, work) if work.step is Step.REVIEW else None
    config = session.contract.config
    # A word back is another turn: where there is none, a step that has ended would become one without an end.
    tests = config.test or () if work.turn < config.limits.turns_per_step else ()
    circle = await in_thread(circle_of, session, work, messages)
    step = conversation.decide_next(work.step, reply, messages, change, turn.promised, tests, circle, schema)
    if isinstance(step, StepFinished):
        if step.document is None:
            return _ReplyEffect(outcome=step.outcome)
        artifact = await in_thread(session.vault.put_artifact, work.delivery, step.document)
        return _ReplyEffect(outcome=step.outcome.model_copy(update={"artifact": artifact}))
    if isinstance(step, Continue):
        return _ReplyEffect((step.user_message,))
    assert isinstance(step, RunTools)
    [message] = host.redact_blocks([reply.message])
    update_heartbeat(doing=describe_reply(message), reply_tail="\n\n".join(texts_in(message))[-TAIL_CHARS:])
    await in_thread(checkpoints.mark_dirty, session.workspace)
    toolbox = session.make_toolbox(
        conversation.known_file_versions(messages),
        writable=STEPS[work.step].writes,
        on_spawn=lambda: crash_point(CrashPoint.DURING_TOOL),
        label=f"{work.step}-{work.attempt}-{work.turn}",
    )
    toolbox.questions = session.contract.config.delivery.questions
    results = await run_calls(reply.message, toolbox, work.step)
    results_message = conversation.results_message(host.redact_blocks(results), [*messages, reply.message], circle)
    # Both go into history and to people: no more than a tool's result may they hold a secret of this worker.
    questions = host.redact_blocks([toolbox.question.model_dump(mode="json")] if toolbox.question else [])
    [assumption] = host.redact_blocks([{"said": "\n".join(toolbox.assumptions)}])
    return _ReplyEffect(
        (results_message,), None, Question.model_validate(questions[0]) if questions else None, assumption["said"]
    )


def previous_message_id(directory: Path, work: TurnInput) -> str | None:
    """Return the id of the reply of the turn before this one; None in a first turn, and where another host took that
    turn. For diagnosis alone: nothing that is decided may depend on it."""
    try:
        stored = json.loads((directory / _FILE).read_bytes())
        return str(stored["id"]) if stored["of"] == _turn_key(work, work.turn - 1) and stored["id"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_message_id(directory: Path, work: TurnInput, reply: Reply) -> None:
    """Write down the id of this turn's reply for the next turn; a power cut may take it, for it is for diagnosis
    alone."""
    content = json.dumps({"of": _turn_key(work, work.turn), "id": reply.id}).encode()
    write_whole(directory / _FILE, content, sync=False)


def cache_miss_reason(reply: Reply, previous_id: str | None) -> str:
    """Return why the model's cache missed, as "cache missed: …" (a miss costs ten times a hit); empty where it did not,
    the prompt was below MISS_TOKENS, or nobody knows what was sent before (`previous_id` None)."""
    if previous_id is None or reply.usage.prompt_tokens < MISS_TOKENS:
        return ""
    if reply.missed:
        return f"cache missed: {reply.missed}"
    return "cache missed: expired" if reply.usage.cache_read_tokens == 0 else ""


def _turn_key(work: TurnInput, turn: int) -> list[str | int]:
    """Return what names a turn of this step and attempt, as JSON."""
    return [str(work.step), work.attempt, turn]
