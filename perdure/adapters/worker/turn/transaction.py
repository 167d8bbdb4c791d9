"""One turn of an agentic step as a transaction, which its activity calls: lease the workspace, adopt a turn that was
taken already, restore the checkpoint, let the agent take the turn. The agent commits it."""

from __future__ import annotations

from temporalio import activity

from perdure.adapters.agents.builtin import conversation
from perdure.adapters.agents.builtin.user_messages import add_earlier_messages, add_user_messages
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.attempt import update_heartbeat
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.turn.agent import Agent, TurnContext, adopt_turn
from perdure.adapters.worker.turn.builtin_agent import BuiltInAgent
from perdure.adapters.worker.turn.cli_agent import CliAgent
from perdure.adapters.worker.turn.materials import (
    map_material,
    material_texts,
    review_promises,
    shown_pages,
    without_pictures,
)
from perdure.models.base import Message
from perdure.models.config.repository import BUILT_IN
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import TurnInput, TurnResult
from perdure.models.ids import run_ref


async def take_turn(host: Host, work: TurnInput) -> TurnResult:
    """Carry out one turn and return its result, or the recorded one when it was carried out before. An agent's process
    that waits for another turn, or in a changed worktree, is stopped.

    Raises ModelUnavailable and WorkCutOff, which are retried; Superseded, Diverged, WorkspaceLost, ModelRefusesUs,
    BudgetReached, RepliesCut, DiskFull, SandboxUnavailable, BadInput, and SetupFailed or NoPorts where the workspace
    had to be rebuilt.
    """
    run_id = activity.info().workflow_run_id or ""
    ref = run_ref(work.delivery, run_id)
    update_heartbeat(turn=work.turn)
    waiting = await host.waiting_agents.claim(work, run_id)
    try:
        async with host.open_session(work.delivery, work.contract, spares=waiting is not None) as session:
            await in_thread(session.vault.remove_stale_locks, ref)
            if (recorded_result := await in_thread(adopt_turn, session.vault, ref, work)) is not None:
                return recorded_result
            if waiting is not None and not await in_thread(
                checkpoints.is_at_checkpoint, session.workspace, work.checkpoint
            ):
                await waiting.stop()  # something of it has gone on writing
                waiting = None
            await in_thread(session.restore, work.checkpoint)
            messages = await _build_conversation(session, work)
            promised = await in_thread(review_promises, session.vault, work, session.contract, messages)
            agent_name = getattr(session.contract.config.steps, work.step).agent
            agent: Agent = BuiltInAgent() if agent_name == BUILT_IN else CliAgent()
            process, waiting = waiting, None
            return await agent.run_turn(TurnContext(host, session, work, run_id, messages, promised), process)
    finally:
        if waiting is not None:
            await waiting.stop()


async def _build_conversation(session: WorkspaceSession, work: TurnInput) -> list[Message]:
    """Return the conversation so far: from the checkpoint, or the opening message of a step's first turn, made of its
    materials, the app's pages and the repository's map. What people have said since stands at its end."""
    pending_messages = work.messages if STEPS[work.step].gets_messages else ()
    if work.turn > 1:
        return add_user_messages(
            await in_thread(checkpoints.read_transcript, session.vault, work.checkpoint), pending_messages
        )
    materials = await in_thread(material_texts, session.vault, work.delivery, without_pictures(work.materials))
    app_pages = await in_thread(shown_pages, session.vault, work.delivery, work.materials)
    materials |= await in_thread(map_material, session.vault, work.checkpoint, work.step)
    base_results, _ = await in_thread(session.base_test_results)
    opening = conversation.opening_message(work.step, session.contract, materials, app_pages, base_results)
    return add_user_messages(
        [add_earlier_messages(opening, work.delivered_messages) if STEPS[work.step].gets_messages else opening],
        pending_messages,
    )
