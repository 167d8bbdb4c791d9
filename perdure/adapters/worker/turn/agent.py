"""A turn as all agents share it: its data, the turns before it, whether it was taken already (then it is adopted, not
done again), whether the step goes in circles or its conversation is too long, and the turn's commit, after which it has
happened. Used by both agents (`builtin_agent`, `cli_agent`) and by `transaction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.adapters.agents.builtin.opening import is_window_full
from perdure.adapters.agents.builtin.progress import TREES_SEEN, DetectedCircle, find_circle, may_be_in_circle
from perdure.adapters.agents.builtin.review import ReviewPromises
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.checkpoint import NestedRepository, read_turn
from perdure.adapters.git.patch import unified_diff
from perdure.adapters.git.vault import RefMoved, Vault
from perdure.adapters.system.crash import crash_point
from perdure.adapters.system.threads import in_thread
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.session import WorkspaceSession
from perdure.adapters.worker.waiting_agents import WaitingAgent
from perdure.models.base import Message
from perdure.models.budget.ledger import Usage
from perdure.models.config.repository import SandboxGrade, StepSettings
from perdure.models.crash import CrashPoint
from perdure.models.delivery.steps import STEPS
from perdure.models.delivery.turn import SUMMARY_LIMIT, Outcome, TurnInput, TurnResult
from perdure.models.errors import Diverged
from perdure.models.ids import run_ref
from perdure.text import shorten


@dataclass(frozen=True)
class TurnContext:
    """A turn that is to be taken, with what an agent needs for it; the worktree is at the turn's checkpoint.

    messages  the conversation so far, the step's opening in a first turn, with what people have said since
    promised  tests of the base that fail on the change ("changed promises"), each of which a review has to justify;
              None: none
    """

    host: Host
    session: WorkspaceSession
    work: TurnInput
    run_id: str
    messages: list[Message]
    promised: ReviewPromises | None

    @property
    def settings(self) -> StepSettings:
        """Return the settings of the turn's step."""
        settings: StepSettings = getattr(self.session.contract.config.steps, self.work.step)
        return settings


class Agent(Protocol):
    """An agent that takes the turns of a step, built in or with a command line of its own."""

    async def run_turn(self, turn: TurnContext, waiting: WaitingAgent | None) -> TurnResult:
        """Begin, or go on from the turn's checkpoint, let one model request through, run its tools, make the next
        checkpoint, and return the turn's result.

        waiting  the agent's process as it stands after the turn before, which is this method's to use or to stop; None:
                 there is none
        """
        ...


FORMAT = 1
"""The format of `turn.json` in a checkpoint; readers accept every format that was ever released."""


def turn_identity(work: TurnInput) -> dict[str, Any]:
    """Return what makes two attempts the same turn, as fields of `turn.json`."""
    return {"step": str(work.step), "attempt": work.attempt, "turn": work.turn}


def turn_record(work: TurnInput, result: TurnResult) -> dict[str, Any]:
    """Return the content of `turn.json`: the turn's identity and its result, but for the checkpoint, which is the
    commit itself.

    That of a first turn also has the materials its step was given: later turns, whose input does not carry them, look
    them up.
    """
    result_fields = result.model_dump(mode="json", exclude={"checkpoint", "waited_s"})
    first_turn_fields = {"materials": work.materials} if work.turn == 1 else {}
    return {
        "format": FORMAT,
        "delivery": work.delivery,
        **turn_identity(work),
        **first_turn_fields,
        "result": result_fields,
    }


def turn_of_checkpoint(vault: Vault, checkpoint: str) -> tuple[str, int, int] | None:
    """Return (step, attempt, turn) of the turn that made a checkpoint; None for the first one, which prepare made."""
    turn = read_turn(vault, checkpoint)
    return (turn["step"], turn["attempt"], turn["turn"]) if "turn" in turn else None


def adopt_turn(vault: Vault, ref: str, work: TurnInput) -> TurnResult | None:
    """Return the recorded result when this turn was already taken, else None with `ref` at the turn's input checkpoint.

    The server may be behind the vault by any number of turns (a power cut rolled its database back): the
    turn's checkpoint is then somewhere on the ref's first-parent path, and each turn adopts its own. The run's ref is
    absent after a reset, a retry or in a first turn: it is created at the input checkpoint, never at a guess. A ref
    that a power cut has put back, before a checkpoint that was reported, is moved on to the input checkpoint.

    Raises Diverged when the ref does not contain the input checkpoint, or another turn or a damaged checkpoint follows
    it.
    """
    tip = vault.read_ref(ref)
    if tip is None:
        try:
            vault.move_ref(ref, work.checkpoint, None)
        except RefMoved as race:
            tip = race.actual
    if tip is None or tip == work.checkpoint:
        return None
    child = vault.first_parent_child(work.checkpoint, tip)
    if child is None and vault.is_ancestor(tip, work.checkpoint):  # a ref's new name is not synced
        vault.move_ref(ref, work.checkpoint, tip)
        return None
    if child is None:
        raise Diverged(f"{ref} is at {tip[:12]}, which does not contain {work.checkpoint[:12]}")
    if (broken := vault.find_damage(child)) != "":
        raise Diverged(f"checkpoint {child[:12]} is damaged: {broken}", fix="perdure retry goes on before it")
    turn = read_turn(vault, child)
    if {name: turn.get(name) for name in ("step", "attempt", "turn")} != turn_identity(work):
        raise Diverged(f"{child[:12]} is {turn.get('step')} turn {turn.get('turn')}, not {work.step} turn {work.turn}")
    return TurnResult.model_validate({**turn["result"], "checkpoint": child, "adopted": True})


async def commit_turn(
    turn: TurnContext, transcript: list[Message], result: TurnResult, agent: dict[str, str] | None = None
) -> TurnResult:
    """Write the turn's checkpoint and move the run's ref to it: after this the turn has happened. Returns the result
    with the checkpoint, what was spent, and which messages from people it read.

    `agent`: where the memory of an agent that is not the built-in one is, for turn.json. Nested `.git` entries are
    removed from the worktree, and the transcript's last message tells the agent so. Raises Superseded when a newer
    attempt has taken over, WorkCutOff when the worktree is gone, RefMoved or RefLocked when the ref cannot be moved:
    then the turn has not happened.
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
        # Git would store a nested repository as an empty link and lose its files: the agent is told.
        await in_thread(session.remove_nested_git, nested.paths)
        transcript = [*transcript[:-1], _append_removal_note(transcript[-1], nested.paths)]
        commit = await in_thread(write_snapshot)
    session.check()
    await in_thread(session.vault.move_ref, run_ref(work.delivery, turn.run_id), commit, work.checkpoint)
    crash_point(CrashPoint.AFTER_SNAPSHOT)
    if agent is None and session.sandbox.grade is SandboxGrade.FULL:  # else a process may go on writing
        session.lease.leave_at(commit)
    return result.model_copy(update={"checkpoint": commit})


def _append_removal_note(message: Message, paths: Sequence[str]) -> Message:
    """Return the user message with a note that these nested repositories were removed; any other message as it is."""
    note = f"Removed {', '.join(paths)}: version control is kept for you, a repository inside it is not possible."
    if message["role"] != "user" or isinstance(message["content"], str):
        return message
    return {**message, "content": [*message["content"], {"type": "text", "text": note}]}


def turn_summary(work: TurnInput, description: str, outcome: Outcome | None, miss_reason: str) -> str:
    """Return a turn's summary for people, at most SUMMARY_LIMIT characters: its number, why the cache missed
    (`miss_reason`, empty: nothing), and how the step ended, or else what the turn did, "goes on" where that is
    empty."""
    ending = (outcome.summary or str(outcome.ending)) if outcome is not None else ""
    summary = ending or description or "goes on"
    return shorten(f"turn {work.turn} · {miss_reason and miss_reason + ' · '}{summary}", SUMMARY_LIMIT)


def circle_of(
    session: WorkspaceSession, work: TurnInput, messages: Sequence[Message], *, with_last_tree: bool = True
) -> DetectedCircle | None:
    """Return the circle (a repetition without progress) that the step is in: one that must end it, or that the model is
    to be warned of; None for none. `with_last_tree`: the tree after its last turn counts."""
    tests = session.contract.config.test or ()
    if not may_be_in_circle(messages, tests):
        return None
    trees = checkpoints.worktree_trees(session.vault, work.checkpoint, min(work.turn, TREES_SEEN))
    return find_circle(messages, trees if with_last_tree else trees[:-1], tests, writes=STEPS[work.step].writes)


def step_diff(vault: Vault, work: TurnInput) -> str:
    """Return the step's change of the files so far as a unified diff."""
    first_commit = f"{work.checkpoint}~{work.turn - 1}"
    return unified_diff(vault, vault.tree_of(f"{first_commit}:tree"), vault.tree_of(f"{work.checkpoint}:tree"))


def needs_compaction(vault: Vault, work: TurnInput, messages: Sequence[Message], window: int) -> bool:
    """Return whether this turn must make the conversation shorter, because it fills the model's window of so many
    tokens. Never in a first turn, nor in one in which a person has just been asked or has said something, which is to
    be read where it was said."""
    if work.turn == 1 or work.messages:
        return False
    result = read_turn(vault, work.checkpoint).get("result", {})
    return not result.get("question") and is_window_full(
        messages, Usage.model_validate(result.get("usage", {})), window
    )


def second_model_of(vault: Vault, work: TurnInput) -> str:
    """Return the second model that this step has gone over to; empty: it works with its own."""
    return str(read_turn(vault, work.checkpoint).get("result", {}).get("model", "")) if work.turn > 1 else ""
