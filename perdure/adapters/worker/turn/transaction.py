"""One turn, exactly: lease, adopt, restore, ask, write down, run tools, snapshot, report (DESIGN §4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from temporalio import activity

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.compaction import may_begin_anew
from perdure.adapters.agents.builtin.conversation import Continue, RunTools, StepFinished
from perdure.adapters.agents.builtin.errors import OVERLOADED
from perdure.adapters.agents.builtin.model import Reply
from perdure.adapters.agents.builtin.promised import Promised
from perdure.adapters.agents.builtin.said import heard, reminded
from perdure.adapters.agents.builtin.stuck import stuck
from perdure.adapters.agents.builtin.tools import describe, run_calls
from perdure.adapters.agents.chosen import second_model
from perdure.adapters.agents.prices import window_of
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.live import Standing, Waiting
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.adopt import adopt
from perdure.adapters.worker.turn.anew import begin_anew
from perdure.adapters.worker.turn.ask import ask_model
from perdure.adapters.worker.turn.buy import Books
from perdure.adapters.worker.turn.by_agent import agent_turn, outcome_of
from perdure.adapters.worker.turn.history import is_full, model_of, trees_of
from perdure.adapters.worker.turn.materials import change_of, pages, promised_of, texts, texts_only
from perdure.adapters.worker.turn.misses import last_message, miss, note_message
from perdure.adapters.worker.turn.process import AgentProcess
from perdure.adapters.worker.turn.seal import read_by, seal, summary_of
from perdure.adapters.worker.turn.surroundings import map_of
from perdure.models.config import BUILT_IN
from perdure.models.crash import CrashPoint
from perdure.models.decisions import Question
from perdure.models.errors import BudgetReached, ModelUnavailable
from perdure.models.ids import run_ref
from perdure.models.ledger import Usage
from perdure.models.phases import Step
from perdure.models.steps import STEPS
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult

Message = dict[str, Any]


async def take_turn(host: Host, work: TurnInput) -> TurnResult:
    """Carry out one turn and return its result, or the recorded one when it was carried out before.

    Raises Superseded, Diverged, WorkspaceLost, ModelUnavailable and WorkCutOff (retryable), ModelRefusesUs,
    SandboxUnavailable.
    """
    run_id = activity.info().workflow_run_id or ""
    ref = run_ref(work.delivery, run_id)
    now_doing(turn=work.turn)
    waiting = await host.waiting.take(work, run_id)
    try:
        async with host.session(work.delivery, work.contract, spares=waiting is not None) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            if (taken := await in_thread(adopt, session.vault, ref, work)) is not None:
                return taken
            if waiting is not None and not await in_thread(checkpoints.is_at, session.workspace, work.checkpoint):
                await waiting.stop()  # something of it has gone on writing
                waiting = None
            await in_thread(session.restore, work.checkpoint)
            told = await _told(session, work)
            promised = await in_thread(promised_of, session.vault, work, session.contract, told)
            if getattr(session.contract.config.steps, work.step).agent == BUILT_IN:
                return await _by_model(host, session, work, told, promised)
            agent, waiting = waiting, None
            return await _by_agent(host, session, work, told, promised, agent)
    finally:
        if waiting is not None:
            await waiting.stop()


async def _by_model(
    host: Host, session: WorkspaceSession, work: TurnInput, told: list[Message], promised: Promised | None
) -> TurnResult:
    """The turn of the built-in agent: a reply, and its tool calls."""
    run_id = activity.info().workflow_run_id or ""
    second = await in_thread(model_of, session.vault, work)
    spare = "" if second else second_model(session.contract.config, work.step)
    model = second or getattr(session.contract.config.steps, work.step).model
    if await in_thread(is_full, session.vault, work, told, host.model_or_refuse().window or window_of(model)):
        return await begin_anew(host, session, work, told, second)
    _, tests_s = await in_thread(session.tested)
    question = conversation.question_for(work.step, session.contract, told, promised, tests_s, work.effort, second)
    after = await in_thread(last_message, session.directory, work)
    question = replace(question, after=after if host.model_or_refuse().diagnoses else None)
    books = Books(session.replies, session.spend, await in_thread(host.pace))
    try:
        reply = await ask_model(books, host.model_or_refuse(), question, work, run_id)
    except ModelUnavailable as error:
        if not spare or error.limited != OVERLOADED:
            raise
        over = await begin_anew(host, session, work, told, spare, f"its {OVERLOADED}")
        return over.model_copy(update={"waited_s": round(books.waited, 1)})
    await in_thread(note_message, session.directory, work, reply)
    session.check()
    acted = await _act(host, session, work, told, reply, promised)
    ending = acted.outcome.ending if acted.outcome is not None else None
    if ending is Ending.CONTEXT and may_begin_anew(told):
        return await begin_anew(host, session, work, told, second, usage=reply.usage)
    if ending is Ending.REFUSED and spare and acted.outcome is not None:
        return await begin_anew(host, session, work, told, spare, acted.outcome.summary, usage=reply.usage)
    did, missed = describe(*host.redacted([reply.message])), miss(reply, question.after)
    result = TurnResult(
        checkpoint="",
        summary=summary_of(work, did, acted.outcome, missed),
        usage=reply.usage,
        spend=await in_thread(session.spend.total),
        notes=read_by(work),
        outcome=acted.outcome,
        question=acted.question,
        assumption=acted.assumption,
        model=second,
    )
    transcript = [*told, reply.message, *acted.said]
    sealed = await seal(session, work, run_ref(work.delivery, run_id), transcript, result)
    return sealed.model_copy(update={"waited_s": round(books.waited, 1)})


async def _by_agent(
    host: Host,
    session: WorkspaceSession,
    work: TurnInput,
    told: list[Message],
    promised: Promised | None,
    waiting: Waiting | None,
) -> TurnResult:
    """The turn of an agent with a command line of its own: its memory is part of the checkpoint."""
    run_id = activity.info().workflow_run_id or ""
    there = waiting if isinstance(waiting, AgentProcess) else None
    try:
        took = await agent_turn(host, session, work, run_id, told, promised, there)
    except BudgetReached:  # people may take long to answer: what they look at meanwhile is a checkpoint
        await in_thread(session.restore, work.checkpoint)
        raise
    try:
        outcome = None
        if took.told is not None:
            change = await in_thread(change_of, session.vault, work) if work.step is Step.REVIEW else None
            outcome, document = outcome_of(work, took.told, change, promised)
            if document is not None:
                artifact = await in_thread(session.vault.put_artifact, work.delivery, document)
                outcome = outcome.model_copy(update={"artifact": artifact})
        reply = [took.reply] if took.reply is not None else []
        result = TurnResult(
            checkpoint="",
            summary=summary_of(work, describe(*reply) if reply else "", outcome, ""),
            usage=took.turn.reply.usage if took.turn.reply is not None else Usage(),
            spend=await in_thread(session.spend.total),
            notes=read_by(work),
            outcome=outcome,
        )
        transcript = [*took.said, *reply]
        sealed = await seal(session, work, run_ref(work.delivery, run_id), transcript, result, agent=took.memory)
    except BaseException:
        await took.agent.stop()
        raise
    if outcome is None:
        host.waiting.keep(
            work.delivery, Standing(run_id, work.step, work.attempt, work.turn, sealed.checkpoint), took.agent
        )
    else:
        await took.agent.stop()
    return sealed.model_copy(update={"waited_s": round(took.waited_s, 1)})


@dataclass(frozen=True)
class _Acted:
    """The consequence of a reply: words back, the step's end, a question to a person or an assumption instead."""

    said: tuple[Message, ...] = ()
    outcome: Outcome | None = None
    question: Question | None = None
    assumption: str = ""


async def _told(session: WorkspaceSession, work: TurnInput) -> list[Message]:
    """The conversation so far: from the checkpoint, or the opening message of a step's first turn; and what people have
    said since."""
    said = work.said if STEPS[work.step].hears else ()
    if work.turn > 1:
        return heard(await in_thread(checkpoints.read_transcript, session.vault, work.checkpoint), said)
    materials = await in_thread(texts, session.vault, work.delivery, texts_only(work.materials))
    seen = await in_thread(pages, session.vault, work.delivery, work.materials)
    materials |= await in_thread(map_of, session.vault, work.checkpoint, work.step)
    went, _ = await in_thread(session.tested)
    first = conversation.opening(work.step, session.contract, materials, seen, went)
    return heard([reminded(first, work.told) if STEPS[work.step].hears else first], said)


async def _act(
    host: Host, session: WorkspaceSession, work: TurnInput, told: list[Message], reply: Reply, promised: Promised | None
) -> _Acted:
    """Do what the reply asks for: its tool calls carried out, a word back, or the step's end."""
    change = await in_thread(change_of, session.vault, work) if work.step is Step.REVIEW else None
    config = session.contract.config
    # A word back is another turn: where there is none, a step that has ended would become one without an end.
    tests = config.test or () if work.turn < config.limits.turns_per_step else ()
    trees = await in_thread(trees_of, session.vault, work)
    circle = await in_thread(lambda: stuck(told, trees, config.test or (), writes=STEPS[work.step].writes))
    step = conversation.after_reply(work.step, reply, told, change, promised, tests, circle)
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
