"""The only way in which a delivery's commits get to the remote: never over anybody else's."""

from __future__ import annotations

from perdure.adapters.git.branch import push_commit
from perdure.adapters.git.command import redact
from perdure.adapters.git.initial_commit import FIRST_COMMIT
from perdure.adapters.git.remote import Heads, remote_heads, remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged, ForgeRefused


def publish_branch(
    vault: Vault, contract: Contract, *, branch: str, head: str, tested_tree: str = "", retry_command: str
) -> bool:
    """Push `head` to the remote as `branch` and return True; return False when it is there already. Safe to repeat.

    An existing branch only goes forward, from where the delivery began on it. A branch that the delivery made itself
    may be replaced as long as nobody else's commits are on it: a rewound delivery does so.

    tested_tree    the tree that tests ran on, which must be what `head` holds; empty: not tested
    retry_command  the command that tries once more, for messages

    Raises ForgeRefused, ForgeUnavailable, and Diverged where `head` does not hold the tested tree.
    """
    if tested_tree and tested_tree != vault.tree_of(head):
        raise Diverged(f"tests ran on tree {tested_tree[:12]}, which is not what {head[:12]} holds")
    url, existing = contract.repository, contract.existing or contract.head not in ("", contract.base_sha)
    heads = publish_first_commit(vault, contract)
    tip = heads.branches.get(branch)
    if tip == head:
        return False
    if branch in (contract.base, heads.default):
        raise ForgeRefused(
            f"{branch} is the {'base' if branch == contract.base else 'default'} branch: nobody delivers onto it",
            where=url,
            fix="set [git] branch to a name of its own, and deliver anew with --id NAME",
        )
    if existing:
        if tip is None or not _is_between(vault, contract.head, tip, head, branch):
            raise _branch_moved(contract, branch, tip, retry_command)
    elif tip is not None and not is_made_by(
        vault, contract.delivery, branch, contract.base_sha, tip, contract.forked_from
    ):
        raise ForgeRefused(
            f"branch {branch} on the remote holds commits that are not this delivery's ({tip[:12]})",
            where=url,
            fix=f"rename or delete that branch, then: {retry_command}",
        )
    try:
        push_commit(vault, url, head, branch, tip)
    except ForgeRefused:
        now = remote_tip(url, branch, vault.keys) if existing else tip
        if now != tip:  # somebody was faster, between the look and the push
            raise _branch_moved(contract, branch, now, retry_command) from None
        raise
    return True


def publish_first_commit(vault: Vault, contract: Contract) -> Heads:
    """Push FIRST_COMMIT as the base branch where the delivery is built on it and the repository still has no branch;
    return the remote's branches afterwards. Safe to repeat, and for several deliveries at once.

    Raises ForgeRefused when somebody else has pushed a first commit meanwhile: nothing of theirs is in what was built.
    """
    url = contract.repository
    heads = remote_heads(url, vault.keys)
    if contract.base_sha != FIRST_COMMIT:
        return heads
    if not heads.branches:
        try:
            push_commit(vault, url, FIRST_COMMIT, contract.base, None, unborn=True)
        except ForgeRefused:
            if not remote_heads(url, vault.keys).branches:
                raise
        crash_point(CrashPoint.AFTER_FIRST_COMMIT)
        heads = remote_heads(url, vault.keys)
    tip = heads.branches.get(contract.base)
    # fetched, so that the vault knows of this branch: `perdure gc` asks those it knows for what was merged
    if tip is not None and vault.fetch_branch(contract.base) == tip and vault.is_ancestor(FIRST_COMMIT, tip):
        return heads
    first_branch = (
        f"{contract.base} ({tip[:12]})" if tip is not None else f"branch {min(heads.branches, default='none')}"
    )
    raise ForgeRefused(
        f"the repository was empty when this began, and somebody else has begun it with {first_branch}",
        where=redact(url),
        fix=f"nothing was overwritten: perdure diff {contract.delivery} shows what was built; deliver anew",
    )


def check_push_allowed(vault: Vault, contract: Contract, heads: Heads | None = None) -> None:
    """Ask the remote by dry runs, before anything is paid for, whether it would accept the delivery's pushes, as far as
    that can be known without pushing.

    `heads` are its branches, where they have just been fetched. Raises ForgeRefused, ForgeUnavailable.
    """
    heads = heads or remote_heads(contract.repository, vault.keys)
    if contract.base_sha == FIRST_COMMIT and not heads.branches:
        push_commit(vault, contract.repository, FIRST_COMMIT, contract.base, None, options=("--dry-run",))
    tip = heads.branches.get(contract.branch)
    start = contract.head or contract.base_sha
    push_commit(vault, contract.repository, start, contract.branch, tip, options=("--dry-run",))


def count_commits(vault: Vault, older: str, newer: str) -> int:
    """Return the number of commits `newer` has that `older` has not."""
    return int(vault.git.text("rev-list", "--count", "--end-of-options", newer, f"^{older}"))


def _is_between(vault: Vault, began: str, tip: str, head: str, branch: str) -> bool:
    """Return True where the branch's commit `tip` is where the delivery began, or where an earlier push of the same
    commits left it; `head` must descend from it. Fetches the branch for this.

    A branch that was put back behind `began` has lost a commit on purpose, which must not come back with ours: False.
    """
    if tip == began:
        return vault.is_ancestor(began, head)
    if vault.fetch_branch(branch) != tip:
        return False
    return vault.is_ancestor(began, tip) and vault.is_ancestor(tip, head)


def is_made_by(
    vault: Vault, delivery: str, branch: str, base_sha: str, tip: str, forked_from: tuple[str, ...] = ()
) -> bool:
    """Return True when a branch of the remote is this delivery's own: its tip, and every commit it has and the base has
    not, carry the delivery's trailer. Fetches the branch for this.

    A branch that somebody made at the base, or that is an ancestor of our work, is not the delivery's own.

    forked_from  deliveries that it was forked from: commits of theirs may be below its own
    """
    if vault.fetch_branch(branch) != tip:
        return False
    log_format = "--format=by %(trailers:key=Perdure-Delivery,valueonly,separator=%x2C)"
    newest = vault.git.text("log", "-1", log_format, "--end-of-options", tip)
    others = vault.git.text("log", log_format, "--end-of-options", tip, f"^{base_sha}")
    ours = f"by {delivery}"
    return newest == ours and {*others.splitlines()} <= {ours, *(f"by {key}" for key in forked_from)}


def _branch_moved(contract: Contract, branch: str, tip: str | None, retry_command: str) -> ForgeRefused:
    """Return the error for a branch that is not where the work began: it is at `tip` now, or (None) it is gone."""
    if tip is None:
        return ForgeRefused(
            f"branch {branch} is not on the remote any more",
            where=contract.repository,
            fix=f"push it again at {contract.head[:12]}, then: {retry_command}",
        )
    return ForgeRefused(
        f"branch {branch} has moved meanwhile: it is at {tip[:7]}, this work began at {contract.head[:7]}",
        where=contract.repository,
        fix="nothing was overwritten; the same command once more begins from the branch as it is now",
    )
