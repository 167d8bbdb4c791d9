"""Look before acting: a turn whose checkpoint exists is taken over, not done again."""

from __future__ import annotations

from typing import Any

from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.vault import RefMoved, Vault
from perdure.models.errors import Diverged
from perdure.models.turn import TurnInput, TurnResult

FORMAT = 1
"""The format of `turn.json` in a checkpoint; readers accept every format that was ever released (holes.md H37)."""


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

    The server may be behind the vault by any number of turns (a power cut rolled its database back, holes.md H12): the
    turn's checkpoint is then somewhere on the ref's first-parent path, and each turn adopts its own. The run's ref is
    absent after a reset, a retry or in a first turn: it is created at the input checkpoint, never at a guess (H19).
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
    if child is None:
        raise Diverged(f"{ref} is at {tip[:12]}, which does not contain {work.checkpoint[:12]}")
    if (broken := vault.find_damage(child)) != "":
        raise Diverged(f"checkpoint {child[:12]} is damaged: {broken}", fix="perdure retry goes on before it")
    turn = read_turn(vault, child)
    if {name: turn.get(name) for name in ("step", "attempt", "turn")} != turn_identity(work):
        raise Diverged(f"{child[:12]} is {turn.get('step')} turn {turn.get('turn')}, not {work.step} turn {work.turn}")
    return TurnResult.model_validate({**turn["result"], "checkpoint": child, "adopted": True})
