"""A turn of an agent with a command line of its own: one request let through, its tools, and the checkpoint of both.

A turn is over when the agent asks for the next one: the tree and the session are then those after this turn's tools.
It waits for the next turn to answer it; after a death, or words from people, it is begun again with the checkpoint's
memory.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, replace

from perdure.adapters.agents.builtin.answers import read_answer, schema_for, written_summary
from perdure.adapters.agents.builtin.compaction import compacted
from perdure.adapters.agents.builtin.opening import roles_of, system_prompt
from perdure.adapters.agents.builtin.places import Change
from perdure.adapters.agents.builtin.promised import Promised
from perdure.adapters.agents.builtin.said import heard
from perdure.adapters.agents.builtin.stuck import Stuck, warned
from perdure.adapters.agents.builtin.tools.run import describe, texts_in
from perdure.adapters.agents.cli.launch import Asking
from perdure.adapters.agents.cli.output import AgentSaid
from perdure.adapters.agents.presets import read_preset
from perdure.adapters.agents.proxied.upstream import VARIABLES, Upstream
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.live import Standing, Waiting
from perdure.adapters.worker.pace import Pace
from perdure.adapters.worker.turn.agent import Message, TurnToTake
from perdure.adapters.worker.turn.buy import Books
from perdure.adapters.worker.turn.held import Turn
from perdure.adapters.worker.turn.history import circle_of, diff_of
from perdure.adapters.worker.turn.materials import change_of
from perdure.adapters.worker.turn.process import AgentProcess
from perdure.adapters.worker.turn.seal import seal, summary_of
from perdure.models.config import SandboxGrade
from perdure.models.errors import BudgetReached, ModelRefusesUs, SandboxUnavailable, WorkCutOff
from perdure.models.ids import run_ref
from perdure.models.ledger import Usage
from perdure.models.phases import Step
from perdure.models.preset import Preset
from perdure.models.steps import STEPS
from perdure.models.turn import Ending, Outcome, TurnInput, TurnResult

_GO_ON = "Go on."
_ANEW = "You have worked on this in a session that could not be brought back."
_ANSWER = "\n\nEnd with one JSON object that follows this JSON Schema, and with nothing beside it:\n{schema}"


class CommandLine:
    """An agent with a command line of its own, or the Agent Client Protocol: its memory is part of the checkpoint."""

    async def take(self, turn: TurnToTake, waiting: Waiting | None) -> TurnResult:
        session, work = turn.session, turn.work
        there = waiting if isinstance(waiting, AgentProcess) else None
        circle = await in_thread(_circle, turn)
        word = circle.word or "" if circle is not None else ""
        if word and there is not None:  # it takes words when it begins
            await there.stop()
            there = None
        try:
            took = await _taken(turn, there, word)
        except BudgetReached:  # people may take long to answer: what they look at meanwhile is a checkpoint
            await in_thread(session.restore, work.checkpoint)
            raise
        try:
            outcome = None
            if took.told is not None:
                change = await in_thread(change_of, session.vault, work) if work.step is Step.REVIEW else None
                outcome, document = _outcome_of(work, took.told, change, turn.promised)
                if document is not None:
                    artifact = await in_thread(session.vault.put_artifact, work.delivery, document)
                    outcome = outcome.model_copy(update={"artifact": artifact})
            elif circle is not None and circle.over:
                outcome = Outcome(ending=Ending.LOOPING, summary=written_summary(str(circle)))
            reply = [took.reply] if took.reply is not None else []
            result = TurnResult(
                checkpoint="",
                summary=summary_of(work, describe(*reply) if reply else "", outcome, ""),
                usage=took.usage,
                outcome=outcome,
                waited_s=round(took.waited_s, 1),
            )
            sealed = await seal(turn, [*took.said, *reply], result, agent=took.memory)
        except BaseException:
            await took.agent.stop()
            raise
        if outcome is None:
            standing = Standing(turn.run_id, work.step, work.attempt, work.turn, sealed.checkpoint)
            turn.host.waiting.keep(work.delivery, standing, took.agent)
        else:
            await took.agent.stop()
        return sealed


@dataclass(frozen=True)
class _AgentTurn:
    """A turn that an agent has taken.

    reply    the model's message; None: it asked for nothing
    said     the conversation that it answers, in the shape of our transcripts
    told     how the agent ended; None while it goes on
    memory   the artifact that holds its session, the session's id, permissions it asked for: for turn.json
    """

    reply: Message | None
    said: list[Message]
    told: AgentSaid | None
    memory: dict[str, str]
    usage: Usage
    waited_s: float
    agent: AgentProcess


async def _taken(turn: TurnToTake, waiting: AgentProcess | None, word: str) -> _AgentTurn:
    """Let the step's agent take this turn. `waiting`: the agent as it stands after the turn before; else it is begun,
    or begun again with the memory of the checkpoint, and a `word`.

    Raises BadInput, SandboxUnavailable and ModelRefusesUs where it cannot run here; ModelUnavailable, RepliesCut and
    others as the model is asked; BudgetReached where it asked for more than is left; WorkCutOff where it was ended from
    outside.
    """
    host, session, work = turn.host, turn.session, turn.work
    agent = waiting or await _begun(turn, word)
    try:
        await in_thread(checkpoints.leave, session.workspace)
        before = agent.waited
        held = await agent.take(work, turn.run_id, lambda reply: now_doing(doing=describe(*host.redacted([reply]))))
        if held.reply is None and held.failure is not None:
            raise held.failure
        ran = agent.finished
        if ran is not None and (ran.died or ran.failure):
            raise WorkCutOff(f"{agent.preset.title} was ended from outside: {ran.failure or agent.errors()}")
        told = None if agent.runs else _believed(agent, held, await agent.said())
        kept = await in_thread(session.vault.put_artifact, work.delivery, await agent.memory())
        asked = host.redacted(held.asked.messages) if held.asked is not None else turn.told
        reply = host.redacted([held.reply.message])[0] if held.reply is not None else None
        usage = held.reply.usage if held.reply is not None else Usage()
        said = await agent.said()
        memory = {"session": said.session or agent.session, "files": kept, **agent.permissions()}
        return _AgentTurn(reply, asked, told, memory, usage, agent.waited - before, agent)
    except BaseException:
        await agent.stop()
        raise


async def _begun(turn: TurnToTake, word: str) -> AgentProcess:
    host, session, work, settings = turn.host, turn.session, turn.work, turn.settings
    preset = (await in_thread(read_preset, settings.agent)).preset
    upstream = _upstream(host, preset)
    if session.sandbox.grade is not SandboxGrade.FULL:
        raise SandboxUnavailable(f"{preset.title} runs in the full sandbox alone", fix="perdure doctor")
    before = await in_thread(_memory, turn)
    schema = schema_for(work.step, promised=turn.promised is not None, roles=roles_of(session.contract))
    wanted = schema if preset.abilities.answers == "asked" else None
    asking = Asking(
        prompt=_prompt(turn, word) + (_ANSWER.format(schema=json.dumps(wanted)) if wanted else ""),
        model=settings.model,
        session=before.get("session") or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_ref(work.delivery, turn.run_id)}")),
        resumed=work.turn > 1,
        schema=schema,
        writes=STEPS[work.step].writes,
        max_tokens=settings.max_tokens,
        effort=work.effort or settings.effort or "",
        anew=await in_thread(_anew, turn, word) if preset.output == "acp" and work.turn > 1 else "",
    )
    memory = None
    if asking.resumed:
        memory = await in_thread(session.vault.get_artifact, work.delivery, before["files"])
    books = Books(session.replies, session.spend, await in_thread(Pace.of, host.home, upstream))
    now_doing(doing=f"{preset.title} begins")
    kind = await in_thread(_spoken) if preset.output == "acp" else AgentProcess
    return await kind.begin(session, preset, asking, memory, upstream, books)


def _spoken() -> type[AgentProcess]:
    """In a thread, and only where one is run: the protocol's types take a third of all that a worker imports."""
    from perdure.adapters.worker.turn.spoken import SpokenAgent

    return SpokenAgent


def _believed(agent: AgentProcess, turn: Turn, said: AgentSaid) -> AgentSaid:
    """The end of an agent: a claim is believed only where nothing speaks against it."""
    ran, why = agent.finished, agent.fault
    if ran is not None and ran.truncated:
        why = "it printed without end"
    elif ran is not None and ran.over:
        why = f"it was {ran.over}"
    elif not why and turn.reply is None:
        why = said.error or "it ended without having asked its model"
    elif not why and not said.well:
        why = said.error or agent.errors() or "it ended without a result"
    return replace(said, well=not why, error=f"{agent.preset.title}: {why}" if why else "")


def _outcome_of(
    work: TurnInput, told: AgentSaid, change: Change | None, promised: Promised | None
) -> tuple[Outcome, bytes | None]:
    """The step's end from what the agent said in the end."""
    if not told.well:
        return Outcome(ending=Ending.FAILED, summary=written_summary(told.error)), None
    if STEPS[work.step].answer is None:
        return Outcome(summary=written_summary(told.text)), None
    try:
        return read_answer(work.step, told.answer or _object_in(told.text), change, promised, last=True)
    except ValueError as problem:
        return Outcome(ending=Ending.INVALID, summary=written_summary(f"{work.step}: {problem}")), None


def _object_in(text: str) -> str:
    """The JSON object that stands in an answer, whatever is around it; the text itself where there is none."""
    first, last = text.find("{"), text.rfind("}")
    return text[first : last + 1] if -1 < first < last else text


def _upstream(host: Host, preset: Preset) -> Upstream:
    if (found := host.upstreams.get(preset.wire)) is None:
        names = " or ".join(VARIABLES[preset.wire].keys)
        raise ModelRefusesUs(
            f"this worker has no key for the model of {preset.title}",
            where=names,
            fix="set it in the worker's environment and restart the worker",
        )
    return found


def _memory(turn: TurnToTake) -> dict[str, str]:
    """The session at the checkpoint; nothing in a first turn."""
    if turn.work.turn == 1:
        return {}
    found: dict[str, str] = checkpoints.read_turn(turn.session.vault, turn.work.checkpoint)["agent"]
    return found


def _circle(turn: TurnToTake) -> Stuck | None:
    """The circle it is in, as far as the results of its calls are known: those of the last turn come with its next
    request, so the tree that it left is not looked at, either. None where people have just spoken."""
    if turn.work.turn == 1 or turn.work.said:
        return None
    return circle_of(turn.session, turn.work, turn.told, newest=False)


def _rules(turn: TurnToTake) -> str:
    return system_prompt(turn.work.step, turn.session.contract.prompts.get(turn.work.step))


def _prompt(turn: TurnToTake, word: str) -> str:
    """The step's rules and its opening in a first turn, later what people have said, or a word to go on."""
    if turn.work.turn == 1:
        return f"{_rules(turn)}\n\n{_texts(turn.told)}"
    said = turn.work.said if STEPS[turn.work.step].hears else ()
    content = [] if said else [{"type": "text", "text": word or _GO_ON}]
    return _texts(heard([{"role": "user", "content": content}], said))


def _anew(turn: TurnToTake, word: str) -> str:
    """The first prompt again, with what was done since, and the word about the circle it was in, if any."""
    rules, word = _rules(turn), word or warned(turn.told)
    diff = diff_of(turn.session.vault, turn.work)
    before, _, rest = _texts(compacted(turn.told, diff, _ANEW)).partition(_ANEW)
    # The agent may have put words of its own before ours, and this may be the second time.
    return rules + before.rpartition(rules)[2] + _ANEW + rest.rpartition(_ANEW)[2] + (word and f"\n\n{word}")


def _texts(messages: list[Message]) -> str:
    return "\n\n".join(texts_in(messages[-1]))
