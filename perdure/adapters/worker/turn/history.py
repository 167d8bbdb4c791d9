"""The turns before this one in the same step, as its checkpoints tell them."""

from __future__ import annotations

from perdure.adapters.agents.builtin.stuck import TREES_SEEN
from perdure.adapters.git.vault import Vault
from perdure.models.turn import TurnInput


def trees_of(vault: Vault, work: TurnInput) -> tuple[str, ...]:
    """Trees of the files before the step's first turn and after each one since, or the newest TREES_SEEN of them."""
    count = min(work.turn, TREES_SEEN)
    listed = vault.git.text(
        "rev-list", "--first-parent", f"--max-count={count}", "--end-of-options", work.checkpoint
    ).split()
    found = vault.git.text("rev-parse", "--end-of-options", *(f"{commit}:tree" for commit in reversed(listed)))
    return tuple(line for line in found.splitlines() if not line.startswith("-"))
