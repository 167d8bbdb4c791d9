"""A turn of an agent with a command line of its own: one model request let through, its tools, and the checkpoint of
tree and session. The process itself is in `process`, and for the Agent Client Protocol in `acp_agent`.

A turn is over when the agent makes the request of the next one: the tree and the session are then those after this
turn's tools. The agent waits for the next turn to answer that request; after a death, or a message from people, it is
started again with the memory that the checkpoint holds.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

from perdure.adapters.agents.builtin.answers import (
    fallback_classification,
    free_text_summary,
    parse_answer,
    schema_for,
    schema_request,
)
from perdure.adapters.agents.builtin.opening import compact_transcript, roles_of, system_prompt
from perdure.adapters.agents.builtin.progress import DetectedCircle, last_warning
from perdure.adapters.agents.builtin.review import ReviewedChange, ReviewPromises
from perdure.adapters.agents.builtin.tools.tool_calls import describe_reply, is_empty_reply, texts_in
from perdure.adapters.agents.builtin.user_messages import add_user_messages
from perdure.adapters.agents.cli_process import AgentClaim, AgentStartRequest
from perdure.adapters.agents.presets import read_preset
from perdure.adapters.agents.proxied.upstream import WIRE_VARIABLES, Upstream
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.turn.agent import TurnContext, circle_of, commit_turn, step_diff, turn_summary
from perdure.adapters.worker.turn.materials import review_change
from perdure.adapters.worker.turn.paid_replies import PaidReplies
from perdure.adapters.worker.turn.process import AgentProcess
from perdure.adapters.worker.turn.request_gate import GatedTurn
from perdure.adapters.worker.waiting_agents import AgentPosition, WaitingAgent
from perdure.models.base import Message
from perdure.models.budget.ledger import Usage
from perdure.models.config.preset import Preset
from perdure.models.config.repository import SandboxGrade
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import Ending, Outcome, TurnInput, TurnResult
from perdure.models.errors import BudgetReached, ModelRefusesUs, SandboxUnavailable, WorkCutOff
from perdure.models.ids import run_ref
from perdure.models.phases import Step

_GO_ON = "Go on."
_ANEW = "You have worked on this in a session that could not be brought back."


class CliAgent:
    """An agent with a command line of its own, or the Agent Client Protocol: its memory is part of the checkpoint."""

    async def run_turn(self, turn: TurnContext, waiting: WaitingAgent | None) -> TurnResult:
        """Let the agent take one turn, commit it with the agent's session, and return its result. `waiting`: the
        agent's process as the turn before left it; None: it is started.

        An agent that goes on is kept waiting for its next turn. It is stopped when the step is over, on any error, and
        when it has to be warned of a circle (a repetition without progress), which it can be told only as it starts. A
        step that goes on in circles after that ends as LOOPING. Raises ModelRefusesUs, BadInput or SandboxUnavailable
        where the agent cannot run here, ModelUnavailable, RepliesCut or DiskFull where its model does not answer,
        WorkCutOff where it was ended from outside, WorkspaceLost where its session is too large, Superseded; and
        BudgetReached, with the worktree at the turn's checkpoint again, because people look at it meanwhile.
        """
        session, work = turn.session, turn.work
        process = waiting if isinstance(waiting, AgentProcess) else None
        circle = await in_thread(_find_circle, turn)
        warning = circle.warning or "" if circle is not None else ""
        if warning and process is not None:  # it takes words when it begins
            await process.stop()
            process = None
        try:
            agent_turn = await _run_agent_turn(turn, process, warning)
        except BudgetReached:  # people may take long to answer: what they look at meanwhile is a checkpoint
            await in_thread(session.restore, work.checkpoint)
            raise
        try:
            outcome = None
            if agent_turn.claim is not None:
                change = await in_thread(review_change, session.vault, work) if work.step is Step.REVIEW else None
                outcome, document = _outcome_of(work, agent_turn.claim, change, turn.promised)
                if document is not None:
                    artifact = await in_thread(session.vault.put_artifact, work.delivery, document)
                    outcome = outcome.model_copy(update={"artifact": artifact})
            elif circle is not None and circle.must_end:
                outcome = Outcome(ending=Ending.LOOPING, summary=free_text_summary(str(circle)))
            reply = [agent_turn.reply] if agent_turn.reply is not None else []
            result = TurnResult(
                checkpoint="",
                summary=turn_summary(work, describe_reply(*reply) if reply else "", outcome, ""),
                usage=agent_turn.usage,
                outcome=outcome,
                waited_s=round(agent_turn.waited_s, 1),
            )
            sealed = await commit_turn(turn, [*agent_turn.messages, *reply], result, agent=agent_turn.memory)
        except BaseException:
            await agent_turn.agent.stop()
            raise
        if outcome is None:
            position = AgentPosition(turn.run_id, work.step, work.attempt, work.turn, sealed.checkpoint)
            turn.host.waiting_agents.keep(work.delivery, position, agent_turn.agent)
        else:
            await agent_turn.agent.stop()
        return sealed


@dataclass(frozen=True)
class _AgentTurn:
    """A turn that an agent has taken.

    reply     the model's message; None: it asked for nothing
    messages  the conversation that it answers, in the shape of our transcripts
    claim     how the agent says that it ended, as far as that is believed; None while it goes on
    memory    the artifact that holds its session, the session's id, permissions it asked for: for turn.json
    waited_s  seconds for which the pace of the key held it back
    """

    reply: Message | None
    messages: list[Message]
    claim: AgentClaim | None
    memory: dict[str, str]
    usage: Usage
    waited_s: float
    agent: AgentProcess


async def _run_agent_turn(turn: TurnContext, waiting: AgentProcess | None, warning: str) -> _AgentTurn:
    """Let the step's agent take this turn; return its request and the reply, what it says about its end, and its
    memory, stored in the vault.

    waiting  the agent's process as the turn before left it; None: it is started, with the checkpoint's memory
    warning  what it is told about its circle as it starts; empty: nothing

    Raises BadInput, SandboxUnavailable and ModelRefusesUs where it cannot run here; ModelUnavailable, RepliesCut,
    DiskFull or ModelRefusesUs where its model does not answer; BudgetReached where it asked for more than is left;
    WorkCutOff where it was ended from outside; WorkspaceLost where its session is too large. The agent is stopped then.
    """
    host, session, work = turn.host, turn.session, turn.work
    agent = waiting or await _start_agent(turn, warning)
    try:
        await in_thread(checkpoints.mark_dirty, session.workspace)
        waited_before = agent.waited_s
        gated_turn = await agent.run_turn(
            work, turn.run_id, lambda reply: update_heartbeat(doing=describe_reply(*host.redact_blocks([reply])))
        )
        if gated_turn.reply is None and gated_turn.failure is not None:
            raise gated_turn.failure
        process_end = agent.process_end
        if process_end is not None and (process_end.died or process_end.failure):
            raise WorkCutOff(
                f"{agent.preset.title} was ended from outside: {process_end.failure or agent.last_error_line()}"
            )
        claim = None if agent.is_running else _check_claim(agent, gated_turn, await agent.read_claim())
        session_artifact = await in_thread(session.vault.put_artifact, work.delivery, await agent.pack_memory())
        messages = host.redact_blocks(gated_turn.request.messages) if gated_turn.request is not None else turn.messages
        reply = host.redact_blocks([gated_turn.reply.message])[0] if gated_turn.reply is not None else None
        usage = gated_turn.reply.usage if gated_turn.reply is not None else Usage()
        output = await agent.read_claim()
        memory = {"session": output.session or agent.session, "files": session_artifact, **agent.permissions()}
        return _AgentTurn(reply, messages, claim, memory, usage, agent.waited_s - waited_before, agent)
    except BaseException:
        await agent.stop()
        raise


async def _start_agent(turn: TurnContext, warning: str) -> AgentProcess:
    """Start the step's agent for this turn, with the session that the checkpoint holds from the second turn on, and
    return its process. `warning`: what it is told about its circle; empty: nothing.

    Raises ModelRefusesUs without a key for its model, SandboxUnavailable outside the full sandbox, BadInput when there
    is no such preset or its program is not installed.
    """
    host, session, work, settings = turn.host, turn.session, turn.work, turn.settings
    preset = (await in_thread(read_preset, settings.agent)).preset
    upstream = _upstream_for(host, preset)
    if session.sandbox.grade is not SandboxGrade.FULL:
        raise SandboxUnavailable(f"{preset.title} runs in the full sandbox alone", fix="perdure doctor")
    recorded_memory = await in_thread(_recorded_memory, turn)
    schema = schema_for(work.step, with_promises=turn.promised is not None, roles=roles_of(session.contract))
    asked_schema = schema if preset.abilities.answers == "asked" else None
    start = AgentStartRequest(
        prompt=_turn_prompt(turn, warning) + (schema_request(asked_schema) if asked_schema else ""),
        model=settings.model,
        session=recorded_memory.get("session")
        or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{run_ref(work.delivery, turn.run_id)}")),
        resumed=work.turn > 1,
        schema=schema,
        writes=STEPS[work.step].writes,
        max_tokens=settings.max_tokens,
        effort=work.effort or settings.effort or "",
        restart_prompt=await in_thread(_fresh_session_prompt, turn, warning)
        if preset.output == "acp" and work.turn > 1
        else "",
    )
    memory = None
    if start.resumed:
        memory = await in_thread(session.vault.get_artifact, work.delivery, recorded_memory["files"])
    books = PaidReplies(session.replies, session.spend_log, await in_thread(host.pace_of, upstream))
    update_heartbeat(doing=f"{preset.title} begins")
    process_class = await in_thread(_load_acp_class) if preset.output == "acp" else AgentProcess
    return await process_class.start(session, preset, start, memory, upstream, books)


def _load_acp_class() -> type[AgentProcess]:
    """Import and return the class for agents of the Agent Client Protocol. It is called in a thread, and only where one
    is run: the protocol's types take a third of all that a worker imports."""
    from perdure.adapters.worker.turn.acp_agent import AcpAgentProcess

    return AcpAgentProcess


def _check_claim(agent: AgentProcess, turn: GatedTurn, claim: AgentClaim) -> AgentClaim:
    """Return what the agent says about its end; `well` only where it says so and has asked its model, and was not ended
    for too much output, a resource limit or its behaviour. Else `error` says why it is not well."""
    process_end, reason = agent.process_end, agent.fault
    if process_end is not None and process_end.truncated:
        reason = "it printed without end"
    elif process_end is not None and process_end.over:
        reason = f"it was {process_end.over}"
    elif not reason and turn.reply is None:
        reason = claim.error or "it ended without having asked its model"
    elif not reason and turn.reply is not None and is_empty_reply(turn.reply.message):
        reason = "its model's last reply was empty: no tool call, no words"
    elif not reason and not claim.well:
        reason = claim.error or agent.last_error_line() or "it ended without a result"
    return replace(claim, well=not reason, error=f"{agent.preset.title}: {reason}" if reason else "")


def _outcome_of(
    work: TurnInput, claim: AgentClaim, change: ReviewedChange | None, promised: ReviewPromises | None
) -> tuple[Outcome, bytes | None]:
    """Return the step's outcome from what the agent said at its end, and the answer as a document to be stored, None
    for free text and without a valid answer. An agent that did not end well has FAILED, one with an answer of the wrong
    shape is INVALID; it is not asked again."""
    if not claim.well:
        return Outcome(ending=Ending.FAILED, summary=free_text_summary(claim.error)), None
    if STEPS[work.step].answer is None:
        return Outcome(summary=free_text_summary(claim.text)), None
    try:
        return parse_answer(work.step, claim.answer or _json_object_in(claim.text), change, promised, is_last=True)
    except ValueError as problem:
        if work.step is Step.CLASSIFY:
            return fallback_classification(claim.answer or claim.text), None
        return Outcome(ending=Ending.INVALID, summary=free_text_summary(f"{work.step}: {problem}")), None


def _json_object_in(text: str) -> str:
    """Return the JSON object that stands in an answer, whatever is around it; the text itself where there is none."""
    first, last = text.find("{"), text.rfind("}")
    return text[first : last + 1] if -1 < first < last else text


def _upstream_for(host: Host, preset: Preset) -> Upstream:
    """Return the model API that this worker has for an agent. Raises ModelRefusesUs where it has no key for it."""
    if (upstream := host.upstreams.get(preset.wire)) is None:
        names = " or ".join(WIRE_VARIABLES[preset.wire].key_headers)
        raise ModelRefusesUs(
            f"this worker has no key for the model of {preset.title}",
            where=names,
            fix="set it in the worker's environment and restart the worker",
        )
    return upstream


def _recorded_memory(turn: TurnContext) -> dict[str, str]:
    """Return what the checkpoint's turn.json says about the agent's session: its id and the artifact of its files;
    empty in a first turn."""
    if turn.work.turn == 1:
        return {}
    recorded: dict[str, str] = checkpoints.read_turn(turn.session.vault, turn.work.checkpoint)["agent"]
    return recorded


def _find_circle(turn: TurnContext) -> DetectedCircle | None:
    """Return the circle (a repetition without progress) that the agent is in, as far as the results of its calls are
    known: those of the last turn come with its next request, so the tree after the last turn does not count, either.
    None: in none, in a first turn, and where people have just said something."""
    if turn.work.turn == 1 or turn.work.messages:
        return None
    return circle_of(turn.session, turn.work, turn.messages, with_last_tree=False)


def _step_rules(turn: TurnContext) -> str:
    """Return the system prompt of the turn's step."""
    return system_prompt(turn.work.step, turn.session.contract.prompts.get(turn.work.step))


def _turn_prompt(turn: TurnContext, warning: str) -> str:
    """Return the prompt an agent is started with: the step's rules and its opening in a first turn, later what people
    have said, or else the warning or a word to go on."""
    if turn.work.turn == 1:
        return f"{_step_rules(turn)}\n\n{_last_message_text(turn.messages)}"
    pending_messages = turn.work.messages if STEPS[turn.work.step].gets_messages else ()
    content = [] if pending_messages else [{"type": "text", "text": warning or _GO_ON}]
    return _last_message_text(add_user_messages([{"role": "user", "content": content}], pending_messages))


def _fresh_session_prompt(turn: TurnContext, warning: str) -> str:
    """Return the prompt for an agent whose session could not be brought back: the first prompt again, with what was
    done since, and `warning`, or else the last warning about a circle in the conversation, if any."""
    rules, warning = _step_rules(turn), warning or last_warning(turn.messages)
    diff = step_diff(turn.session.vault, turn.work)
    before, _, rest = _last_message_text(compact_transcript(turn.messages, diff, _ANEW)).partition(_ANEW)
    # The agent may have put words of its own before ours, and this may be the second time.
    return rules + before.rpartition(rules)[2] + _ANEW + rest.rpartition(_ANEW)[2] + (warning and f"\n\n{warning}")


def _last_message_text(messages: list[Message]) -> str:
    """Return the text of the last message."""
    return "\n\n".join(texts_in(messages[-1]))
