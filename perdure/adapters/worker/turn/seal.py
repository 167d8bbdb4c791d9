"""The end of a turn: the snapshot of what it made, and the ref; after that it has happened."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkpoint import NestedRepository
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.turn.adopt import record
from perdure.adapters.worker.turn.agent import Message, TurnToTake
from perdure.models.crash import CrashPoint
from perdure.models.ids import run_ref
from perdure.models.steps import STEPS
from perdure.models.turn import SUMMARY_LIMIT, Outcome, TurnInput, TurnResult


async def seal(
    turn: TurnToTake, transcript: list[Message], result: TurnResult, agent: dict[str, str] | None = None
) -> TurnResult:
    """The snapshot, then the ref: after this the turn has happened. The result as it is then, with what was spent and
    heard. `agent`: where the memory of another one is."""
    session, work = turn.session, turn.work
    heard = tuple(said.id for said in work.said) if STEPS[work.step].hears else ()
    result = result.model_copy(update={"spend": await in_thread(session.spend.total), "notes": heard})
    session.check()
    told = record(work, result) | ({"agent": agent} if agent else {})

    def snapshot() -> str:
        return checkpoints.snapshot(
            session.workspace, parent=work.checkpoint, turn=told, transcript=transcript, changed=changed
        )

    # Reading steps could not have written (their worktree was read-only), and a turn without tools did not.
    changed = STEPS[work.step].writes and (result.outcome is None or agent is not None)
    try:
        commit = await in_thread(snapshot)
    except NestedRepository as nested:
        # Git would store a nested repository as an empty link and lose its files (holes.md H16): the agent is told.
        await in_thread(session.drop_nested, nested.paths)
        transcript = [*transcript[:-1], _with_note(transcript[-1], nested.paths)]
        commit = await in_thread(snapshot)
    session.check()
    await in_thread(session.vault.move_ref, run_ref(work.delivery, turn.run_id), commit, work.checkpoint)
    crash_point(CrashPoint.AFTER_SNAPSHOT)
    return result.model_copy(update={"checkpoint": commit})


def _with_note(message: Message, paths: Sequence[str]) -> Message:
    words = f"Removed {', '.join(paths)}: version control is kept for you, a repository inside it is not possible."
    if message["role"] != "user" or isinstance(message["content"], str):
        return message
    return {**message, "content": [*message["content"], {"type": "text", "text": words}]}


def summary_of(work: TurnInput, did: str, outcome: Outcome | None, missed: str) -> str:
    ended = (outcome.summary or str(outcome.ending)) if outcome is not None else ""
    words = ended or did or "goes on"
    return f"turn {work.turn} · {missed and missed + ' · '}{words}"[:SUMMARY_LIMIT]
