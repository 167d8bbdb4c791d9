"""The turns before this one in the same step, as its checkpoints tell them."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.agents.builtin.compaction import Message, full
from perdure.adapters.agents.builtin.stuck import TREES_SEEN, Stuck, may_be_stuck, stuck
from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.ledger import Usage
from perdure.models.steps import STEPS
from perdure.models.turn import TurnInput


def trees_of(vault: Vault, work: TurnInput) -> tuple[str, ...]:
    """Trees of the files before the step's first turn and after each one since, or the newest TREES_SEEN of them."""
    count = min(work.turn, TREES_SEEN)
    listed = vault.git.text(
        "rev-list", "--first-parent", f"--max-count={count}", "--end-of-options", work.checkpoint
    ).split()
    found = vault.git.text("rev-parse", "--end-of-options", *(f"{commit}:tree" for commit in reversed(listed)))
    return tuple(line for line in found.splitlines() if not line.startswith("-"))


def circle_of(
    session: WorkspaceSession, work: TurnInput, told: Sequence[Message], *, newest: bool = True
) -> Stuck | None:
    """The circle that the step is in. `newest`: the tree after its last turn counts."""
    tests = session.contract.config.test or ()
    if not may_be_stuck(told, tests):
        return None
    trees = trees_of(session.vault, work)
    return stuck(told, trees if newest else trees[:-1], tests, writes=STEPS[work.step].writes)


def diff_of(vault: Vault, work: TurnInput) -> str:
    """The step's change of the files so far."""
    begun = f"{work.checkpoint}~{work.turn - 1}"
    return vault.diff(vault.tree_of(f"{begun}:tree"), vault.tree_of(f"{work.checkpoint}:tree"))


def is_full(vault: Vault, work: TurnInput, told: Sequence[Message], window: int) -> bool:
    """True where this turn is to make the conversation shorter: not one in which a person has just been asked or has
    said something, which is to be read where it was said."""
    if work.turn == 1 or work.said:
        return False
    result = read_turn(vault, work.checkpoint).get("result", {})
    return not result.get("question") and full(told, Usage.model_validate(result.get("usage", {})), window)


def model_of(vault: Vault, work: TurnInput) -> str:
    """The second model that this step has gone over to; empty: it works with its own."""
    return str(read_turn(vault, work.checkpoint).get("result", {}).get("model", "")) if work.turn > 1 else ""
