"""The turns before this one in the same step, read from its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.adapters.agents.builtin.circles import TREES_SEEN, DetectedCircle, find_circle, may_be_in_circle
from perdure.adapters.agents.builtin.compaction import Message, is_window_full
from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.session import WorkspaceSession
from perdure.models.ledger import Usage
from perdure.models.steps import STEPS
from perdure.models.turn import TurnInput


def trees_of(vault: Vault, work: TurnInput) -> tuple[str, ...]:
    """Return the trees of the files before the step's first turn and after each one since, or the newest TREES_SEEN of
    them."""
    count = min(work.turn, TREES_SEEN)
    commits = vault.git.text(
        "rev-list", "--first-parent", f"--max-count={count}", "--end-of-options", work.checkpoint
    ).split()
    listing = vault.git.text("rev-parse", "--end-of-options", *(f"{commit}:tree" for commit in reversed(commits)))
    return tuple(line for line in listing.splitlines() if not line.startswith("-"))


def circle_of(
    session: WorkspaceSession, work: TurnInput, messages: Sequence[Message], *, with_last_tree: bool = True
) -> DetectedCircle | None:
    """Return the circle that the step is in, None for none. `with_last_tree`: the tree after its last turn counts."""
    tests = session.contract.config.test or ()
    if not may_be_in_circle(messages, tests):
        return None
    trees = trees_of(session.vault, work)
    return find_circle(messages, trees if with_last_tree else trees[:-1], tests, writes=STEPS[work.step].writes)


def step_diff(vault: Vault, work: TurnInput) -> str:
    """Return the step's change of the files so far as a unified diff."""
    first_commit = f"{work.checkpoint}~{work.turn - 1}"
    return vault.diff(vault.tree_of(f"{first_commit}:tree"), vault.tree_of(f"{work.checkpoint}:tree"))


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
