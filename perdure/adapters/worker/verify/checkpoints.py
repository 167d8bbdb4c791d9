"""Checkpoints and commits of a delivery, read again object by object; its journal and spend log, counted again."""

from __future__ import annotations

from collections import Counter

from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.door import GitError
from perdure.adapters.git.exact import exact_tree
from perdure.adapters.git.refusals import main_line
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.host import Host
from perdure.models.ledger import Usage
from perdure.models.limits import VERIFY_PAGE
from perdure.models.verify import CheckpointFact, CommitFact, LedgerFact

_DIFFERS_SHOWN = 2
"""Files that are named of one commit, 80 characters of each: enough to know where to look."""


def way_to(vault: Vault, tip: str) -> tuple[list[str], str]:
    """The checkpoints from the first one to `tip`, oldest first; why there are none, empty when there are."""
    if not tip or not vault.has(tip):
        return [], f"checkpoint {tip[:12]} is not in the vault"
    try:
        return vault.git.text("rev-list", "--first-parent", "--reverse", "--end-of-options", tip).splitlines(), ""
    except GitError as error:
        return [], main_line(error.stderr)


def hole(vault: Vault, tip: str) -> str:
    """Say what is missing below a checkpoint, in git's words; empty: nothing is."""
    return next(iter(vault.broken(tip).splitlines()), "")


def page(vault: Vault, way: list[str], offset: int) -> tuple[CheckpointFact, ...]:
    """Return what the checkpoints of one page say about themselves."""
    facts = []
    for commit in way[offset : offset + VERIFY_PAGE]:
        turn = read_turn(vault, commit)
        facts.append(
            CheckpointFact(
                commit=commit,
                delivery=str(turn.get("delivery", ""))[:100],
                step=str(turn.get("step", ""))[:40],
                attempt=int(turn.get("attempt", 0)),
                turn=int(turn.get("turn", 0)),
            )
        )
    return tuple(facts)


def turns_of(vault: Vault, way: list[str]) -> list[tuple[str, Usage]]:
    """(`implement 1, turn 3`, what its reply cost) of every turn on the way."""
    found = []
    for commit in way:
        turn = read_turn(vault, commit)
        if "turn" in turn:
            usage = Usage.model_validate(turn["result"].get("usage", {}))
            found.append((f"{turn['step']} {turn['attempt']}, turn {turn['turn']}", usage))
    return found


def begun(vault: Vault, start: str, first: str) -> tuple[str, ...] | None:
    """Files that prepare's checkpoint holds otherwise than a checkout of `start` would; None when one is not here.

    Told from the commit's objects, so that nothing which ever lay in a worktree can speak for itself.
    """
    if not (start and first and vault.has(start) and vault.has(first)):
        return None
    try:
        changed = _changed(vault, exact_tree(vault, start), f"{first}:tree")
    except GitError:  # the commits are there, their files are not
        return None
    return tuple(path[:80] for path in changed[:_DIFFERS_SHOWN])


def held(vault: Vault, delivery: str, tip: str) -> bool:
    """True where a ref of the delivery keeps the checkpoint."""
    return any(vault.is_ancestor(tip, run) for run in vault.refs(f"refs/perdure/{delivery}/").values())


def between(vault: Vault, start: str, head: str) -> list[str]:
    """Every commit that `head` has and `start` does not, oldest first; a merge's other side among them."""
    listed = vault.git.text("rev-list", "--reverse", "--topo-order", "--end-of-options", head, f"^{start}")
    return listed.splitlines()


def commits(
    vault: Vault, listed: list[str], start: str, made_from: dict[str, str], first: str
) -> tuple[CommitFact, ...]:
    """Commits beside the checkpoints they were made from.

    made_from  commit → checkpoint, as history has it
    first      prepare's checkpoint: the files of `start`, byte for byte; empty when it is not known
    """
    return tuple(_commit(vault, commit, start, made_from.get(commit, ""), first) for commit in listed)


def _commit(vault: Vault, commit: str, start: str, checkpoint: str, first: str) -> CommitFact:
    told = ("log", "-1", "--format=%P%n%(trailers:only,unfold)", "--end-of-options", commit)
    parents, *written = vault.git.text(*told).splitlines() or [""]
    trailers = dict(line.split(": ", 1) for line in written if ": " in line)
    there = bool(checkpoint) and vault.has(checkpoint)
    differs: tuple[str, ...] = ()
    try:
        differs = _differs(vault, start, commit, first, checkpoint)[:_DIFFERS_SHOWN] if there else ()
    except GitError:  # it is there, and its files are not
        there = False
    return CommitFact(
        commit=commit,
        parents=tuple(parents.split()),
        delivery=trailers.get("Perdure-Delivery", "")[:100],
        step=trailers.get("Perdure-Step", "")[:40],
        checkpoint=there,
        differs=differs,
    )


def _differs(vault: Vault, start: str, commit: str, first: str, checkpoint: str) -> tuple[str, ...]:
    """Files that a commit has otherwise than its checkpoint.

    A checkpoint holds bytes, a commit the repository's normal forms: what neither has changed may differ, and what both
    have changed may differ in its line ends.
    """
    there, bytes_there = f"{commit}^{{tree}}", f"{checkpoint}:tree"
    suspects = set(_changed(vault, there, bytes_there))
    if not suspects:
        return ()
    touched = suspects
    if first and vault.has(first):
        touched = {*_changed(vault, f"{start}^{{tree}}", there), *_changed(vault, f"{first}:tree", bytes_there)}
    found = []
    for path in sorted(suspects & touched):
        ours, theirs = vault.show(commit, path), vault.show(checkpoint, f"tree/{path}")
        if ours is None or theirs is None or _lines(ours) != _lines(theirs):
            found.append(path[:80])
    return tuple(found)


def _changed(vault: Vault, a: str, b: str) -> list[str]:
    return vault.git.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", a, b).names


def _lines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")


_NAMED = 5


def ledger(host: Host, delivery: str, turns: list[tuple[str, Usage]], deaths: tuple[str, ...]) -> LedgerFact:
    """`turns`: name and usage of those that happened. `deaths`: attempts that were reported as died."""
    log, survived = host.spend(delivery), host.receipt(delivery)
    settled = log.settled()
    # A reply is settled with what its turn says it cost: each turn must find one of its own, whatever was paid besides.
    left = Counter(usage.model_dump_json() for usage in settled)
    unpaid = []
    for name, usage in turns:
        if left[line := usage.model_dump_json()] > 0:
            left[line] -= 1
        else:
            unpaid.append(name)
    # An attempt is `<run>/<activity id>/<attempt>/<worker>`; a rewound run's history tells of the run before it, too.
    begun = {"/".join(attempt.split("/")[1:3]) for attempt in host.journal(delivery).attempts()}
    return LedgerFact(
        worker_deaths=survived.worker_deaths,
        turns_redone=survived.turns_redone,
        replies_paid_twice=survived.replies_paid_twice,
        replies_cut=survived.replies_cut,
        settled=len(settled),
        spend=log.total(),
        kept=sum((usage for _, usage in turns), Usage()),
        turns=len(turns),
        unpaid=tuple(unpaid[:_NAMED]),
        unheard=tuple([attempt for attempt in deaths if attempt not in begun][:_NAMED]),
    )
