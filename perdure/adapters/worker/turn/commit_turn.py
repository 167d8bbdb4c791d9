"""The end of a turn: the snapshot of what it made, and the ref; after that it has happened."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkpoint import NestedRepository
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.turn.adopt import turn_record
from perdure.adapters.worker.turn.agent import Message, TurnContext
from perdure.models.crash import CrashPoint
from perdure.models.ids import run_ref
from perdure.models.steps import STEPS
from perdure.models.turn import SUMMARY_LIMIT, Outcome, TurnInput, TurnResult


async def commit_turn(
    turn: TurnContext, transcript: list[Message], result: TurnResult, agent: dict[str, str] | None = None
) -> TurnResult:
    """Write the turn's checkpoint and move the run's ref to it: after this the turn has happened. Returns the result
    with the checkpoint, what was spent, and which messages from people it read.

    `agent`: where the memory of an agent that is not the built-in one is, for turn.json. Nested `.git` entries are
    removed from the worktree, and the agent is told so. Raises Superseded or WorkCutOff, and errors of the ref: then
    the turn has not happened.
    """
    session, work = turn.session, turn.work
    read_ids = tuple(message.id for message in work.messages) if STEPS[work.step].gets_messages else ()
    result = result.model_copy(update={"spend": await in_thread(session.spend_log.total_spend), "notes": read_ids})
    session.check()
    record_fields = turn_record(work, result) | ({"agent": agent} if agent else {})

    def write_snapshot() -> str:
        return checkpoints.snapshot_worktree(
            session.workspace, parent=work.checkpoint, turn=record_fields, transcript=transcript, changed=changed
        )

    # Reading steps could not have written (their worktree was read-only), and a turn without tools did not.
    changed = STEPS[work.step].writes and (result.outcome is None or agent is not None)
    try:
        commit = await in_thread(write_snapshot)
    except NestedRepository as nested:
        # Git would store a nested repository as an empty link and lose its files (holes.md H16): the agent is told.
        await in_thread(session.remove_nested_git, nested.paths)
        transcript = [*transcript[:-1], _append_removal_note(transcript[-1], nested.paths)]
        commit = await in_thread(write_snapshot)
    session.check()
    await in_thread(session.vault.move_ref, run_ref(work.delivery, turn.run_id), commit, work.checkpoint)
    crash_point(CrashPoint.AFTER_SNAPSHOT)
    return result.model_copy(update={"checkpoint": commit})


def _append_removal_note(message: Message, paths: Sequence[str]) -> Message:
    """Return the user message with a note that these nested repositories were removed; any other message as it is."""
    note = f"Removed {', '.join(paths)}: version control is kept for you, a repository inside it is not possible."
    if message["role"] != "user" or isinstance(message["content"], str):
        return message
    return {**message, "content": [*message["content"], {"type": "text", "text": note}]}


def turn_summary(work: TurnInput, description: str, outcome: Outcome | None, miss_reason: str) -> str:
    """Return a turn's summary for people, at most SUMMARY_LIMIT characters: its number, why the cache missed, and how
    the step ended or else what the turn did."""
    ending = (outcome.summary or str(outcome.ending)) if outcome is not None else ""
    summary = ending or description or "goes on"
    return f"turn {work.turn} · {miss_reason and miss_reason + ' · '}{summary}"[:SUMMARY_LIMIT]
