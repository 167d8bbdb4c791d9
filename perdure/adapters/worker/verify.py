"""The evidence of `perdure verify` on a host: checkpoints and commits of a delivery, read again object by object from
the vault; its journal and spend log, counted again. Nothing is judged or changed here. Used by the activities that
collect the evidence."""

from __future__ import annotations

from collections import Counter

from perdure.adapters.git.checkouts import exact_tree, filtered_paths
from perdure.adapters.git.checkpoint import read_turn
from perdure.adapters.git.command import GitError
from perdure.adapters.git.credentials import main_line
from perdure.adapters.git.filters import configured_filters
from perdure.adapters.git.vault import Vault
from perdure.adapters.worker.host import Host
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.verify import CheckpointFact, CommitFact, LedgerFact
from perdure.models.limits import VERIFY_PAGE
from perdure.text import escape_path

_DIFFERS_SHOWN = 2
"""Files that are named of one commit, 80 characters of each: enough to know where to look."""


def checkpoints_to(vault: Vault, tip: str) -> tuple[list[str], str]:
    """Return the checkpoints from the first one to `tip`, oldest first, and an empty text; where they cannot be listed,
    none, and the reason."""
    if not tip or not vault.has_commit(tip):
        return [], f"checkpoint {tip[:12]} is not in the vault"
    try:
        return vault.git.text("rev-list", "--first-parent", "--reverse", "--end-of-options", tip).splitlines(), ""
    except GitError as error:
        return [], main_line(error.stderr)


def missing_object(vault: Vault, tip: str) -> str:
    """Say what is missing below a checkpoint, in git's words; empty: nothing is."""
    return next(iter(vault.find_damage(tip).splitlines()), "")


def checkpoint_facts(vault: Vault, checkpoints: list[str], offset: int) -> tuple[CheckpointFact, ...]:
    """Return what the checkpoints of one page, VERIFY_PAGE from `offset` on, record about themselves: delivery, step,
    attempt and turn; empty or 0 where one records none."""
    facts = []
    for commit in checkpoints[offset : offset + VERIFY_PAGE]:
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


def turn_usages(vault: Vault, checkpoints: list[str]) -> list[tuple[str, Usage]]:
    """Return (`implement 1, turn 3`, what its reply cost) of every turn among the checkpoints."""
    usages = []
    for commit in checkpoints:
        turn = read_turn(vault, commit)
        if "turn" in turn:
            usage = Usage.model_validate(turn["result"].get("usage", {}))
            usages.append((f"{turn['step']} {turn['attempt']}, turn {turn['turn']}", usage))
    return usages


def start_differences(vault: Vault, start: str, first: str) -> tuple[str, ...] | None:
    """Return files that prepare's checkpoint holds otherwise than a checkout of `start` would, at most _DIFFERS_SHOWN,
    each path cut to 80 characters; None when one of the two is empty, or it or a file of it is not in the vault.

    They are compared by the commits' objects, so that nothing which ever lay in a worktree can speak for itself.
    """
    if not (start and first and vault.has_commit(start) and vault.has_commit(first)):
        return None
    try:
        changed_paths = _changed_paths(vault, exact_tree(vault, start), f"{first}:tree")
        changed_paths = _without_unfiltered(vault, start, changed_paths, f"{first}:tree")
    except GitError:  # the commits are there, their files are not
        return None
    return tuple(escape_path(path)[:80] for path in changed_paths[:_DIFFERS_SHOWN])


def is_kept(vault: Vault, delivery: str, tip: str) -> bool:
    """Return whether a ref of the delivery keeps the checkpoint from being lost."""
    return any(vault.is_ancestor(tip, run_tip) for run_tip in vault.list_refs(f"refs/perdure/{delivery}/").values())


def commits_between(vault: Vault, start: str, head: str) -> list[str]:
    """Return every commit that `head` has and `start` does not, oldest first; a merge's other side among them."""
    listed = vault.git.text("rev-list", "--reverse", "--topo-order", "--end-of-options", head, f"^{start}")
    return listed.splitlines()


def commit_facts(
    vault: Vault, commit_shas: list[str], start: str, made_from: dict[str, str], first: str
) -> tuple[CommitFact, ...]:
    """Return each commit beside the checkpoint it was made from.

    made_from  commit → checkpoint, as history has it
    first      prepare's checkpoint: the files of `start`, byte for byte; empty when it is not known
    """
    return tuple(_commit_fact(vault, commit, start, made_from.get(commit, ""), first) for commit in commit_shas)


def _commit_fact(vault: Vault, commit: str, start: str, checkpoint: str, first: str) -> CommitFact:
    """Return a commit's parents, its delivery and step as its trailers name them, whether its checkpoint is in the
    vault with all its files, and the first files that it has otherwise than the checkpoint."""
    arguments = ("log", "-1", "--format=%P%n%(trailers:only,unfold)", "--end-of-options", commit)
    parents, *lines = vault.git.text(*arguments).splitlines() or [""]
    trailers = dict(line.split(": ", 1) for line in lines if ": " in line)
    has_checkpoint = bool(checkpoint) and vault.has_commit(checkpoint)
    differs: tuple[str, ...] = ()
    try:
        differs = _differing_files(vault, start, commit, first, checkpoint)[:_DIFFERS_SHOWN] if has_checkpoint else ()
    except GitError:  # it is there, and its files are not
        has_checkpoint = False
    return CommitFact(
        commit=commit,
        parents=tuple(parents.split()),
        delivery=trailers.get("Perdure-Delivery", "")[:100],
        step=trailers.get("Perdure-Step", "")[:40],
        checkpoint=has_checkpoint,
        differs=differs,
    )


def _differing_files(vault: Vault, start: str, commit: str, first: str, checkpoint: str) -> tuple[str, ...]:
    """Return the files that a commit has otherwise than its checkpoint, each path cut to 80 characters.

    A checkpoint holds bytes, a commit the repository's normal forms. So a file counts only when the commit has changed
    it since `start` or the checkpoint has since `first` (any file where the vault has no `first`), and line ends never
    count. Raises GitError when the vault lacks one of the trees.
    """
    commit_tree, checkpoint_tree = exact_tree(vault, commit), f"{checkpoint}:tree"
    suspects = set(_changed_paths(vault, commit_tree, checkpoint_tree))
    if not suspects:
        return ()
    touched = suspects
    if first and vault.has_commit(first):
        touched = {
            *_changed_paths(vault, f"{start}^{{tree}}", f"{commit}^{{tree}}"),
            *_changed_paths(vault, f"{first}:tree", checkpoint_tree),
        }
    differing = []
    for path in _without_unfiltered(vault, commit, sorted(suspects & touched), checkpoint_tree):
        in_commit, in_checkpoint = vault.read_file(commit_tree, path), vault.read_file(checkpoint, f"tree/{path}")
        if (
            in_commit is None
            or in_checkpoint is None
            or _normalize_line_ends(in_commit) != _normalize_line_ends(in_checkpoint)
        ):
            differing.append(escape_path(path)[:80])
    return tuple(differing)


def _without_unfiltered(vault: Vault, commit: str, paths: list[str], checkpoint_tree: str) -> list[str]:
    """Return these paths, which a checkpoint has otherwise than a checkout of a commit, without those that it has as
    the commit stores them, where a filter of .gitattributes runs now: it did not when the checkpoint was made."""
    if not paths or not (filters := configured_filters(vault.git)):
        return paths
    stored, names = _changed_paths(vault, f"{commit}^{{tree}}", checkpoint_tree), filtered_paths(vault, commit)
    return [path for path in paths if path in stored or names.get(path) not in filters]


def _changed_paths(vault: Vault, a: str, b: str) -> list[str]:
    """Return the paths that differ between two trees."""
    return vault.git.execute("diff-tree", "-r", "-z", "--no-renames", "--name-only", a, b).names


def _normalize_line_ends(data: bytes) -> bytes:
    """Return the data with LF in place of CRLF."""
    return data.replace(b"\r\n", b"\n")


_LISTED = 5


def ledger_fact(host: Host, delivery: str, turns: list[tuple[str, Usage]], deaths: tuple[str, ...]) -> LedgerFact:
    """Return what journal and spend log of this host say, counted again: what was survived and paid, turns without a
    settled reply, and deaths that the journal does not have; of both lists at most _LISTED.

    turns   name and usage of the turns that happened
    deaths  attempts that were reported as died: `<activity id>/<attempt>`
    """
    log, receipt = host.spend_log(delivery), host.receipt(delivery)
    settled = log.settled_usages()
    # A reply is settled with what its turn says it cost: each turn must find one of its own, whatever was paid besides.
    unclaimed = Counter(usage.model_dump_json() for usage in settled)
    unpaid = []
    for name, usage in turns:
        if unclaimed[line := usage.model_dump_json()] > 0:
            unclaimed[line] -= 1
        else:
            unpaid.append(name)
    # An attempt is `<run>/<activity id>/<attempt>/<worker>`; a rewound run's history tells of the run before it, too.
    begun_attempts = {"/".join(attempt.split("/")[1:3]) for attempt in host.journal(delivery).attempts()}
    return LedgerFact(
        worker_deaths=receipt.worker_deaths,
        turns_redone=receipt.turns_redone,
        replies_paid_twice=receipt.replies_paid_twice,
        replies_cut=receipt.replies_cut,
        settled=len(settled),
        spend=log.total_spend(),
        kept_usage=sum((usage for _, usage in turns), Usage()),
        turns=len(turns),
        unpaid=tuple(unpaid[:_LISTED]),
        unknown_deaths=tuple([attempt for attempt in deaths if attempt not in begun_attempts][:_LISTED]),
    )
