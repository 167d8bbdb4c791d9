"""One turn, exactly: lease, adopt, restore, ask, write down, run tools, snapshot, report (DESIGN §4)."""

from __future__ import annotations

from typing import Any

from temporalio import activity

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.said import heard, reminded
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import now_doing
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.adopt import adopt
from perdure.adapters.worker.turn.agent import Agent, TurnToTake
from perdure.adapters.worker.turn.by_agent import CommandLine
from perdure.adapters.worker.turn.by_model import BuiltIn
from perdure.adapters.worker.turn.materials import pages, promised_of, texts, texts_only
from perdure.adapters.worker.turn.surroundings import map_of
from perdure.models.config import BUILT_IN
from perdure.models.ids import run_ref
from perdure.models.steps import STEPS
from perdure.models.turn import TurnInput, TurnResult

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
            told = await _conversation(session, work)
            promised = await in_thread(promised_of, session.vault, work, session.contract, told)
            named = getattr(session.contract.config.steps, work.step).agent
            agent: Agent = BuiltIn() if named == BUILT_IN else CommandLine()
            there, waiting = waiting, None
            return await agent.take(TurnToTake(host, session, work, run_id, told, promised), there)
    finally:
        if waiting is not None:
            await waiting.stop()


async def _conversation(session: WorkspaceSession, work: TurnInput) -> list[Message]:
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
