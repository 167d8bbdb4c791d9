"""The one way a delivery's commits get to the remote: never over anybody else's."""

from __future__ import annotations

from perdure.adapters.git.branch import push
from perdure.adapters.git.door import redact
from perdure.adapters.git.first import FIRST_COMMIT
from perdure.adapters.git.remote import Heads, remote_heads, remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.crash import crash_point
from perdure.models.contract import Contract
from perdure.models.crash import CrashPoint
from perdure.models.errors import Diverged, ForgeRefused


def publish(vault: Vault, contract: Contract, *, branch: str, head: str, tested: str = "", again: str) -> bool:
    """Bring `head` to the remote as `branch`; False when it is there already. Safe to repeat.

    An existing branch only goes forward, from where the delivery began on it. One that the delivery made itself may be
    replaced as long as nobody else's commits are on it: a rewound delivery does so.

    tested  the tree that tests ran on, which must be what `head` holds; empty: not tested
    again   the command that tries once more, for messages

    Raises ForgeRefused, ForgeUnavailable, Diverged.
    """
    if tested and tested != vault.tree_of(head):
        raise Diverged(f"tests ran on tree {tested[:12]}, which is not what {head[:12]} holds")
    url, existing = contract.repository, contract.existing or contract.head not in ("", contract.base_sha)
    heads = publish_first(vault, contract)
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
        if tip is None or not _between(vault, contract.head, tip, head, branch):
            raise _moved(contract, branch, tip, again)
    elif tip is not None and not made_by(vault, contract.delivery, branch, contract.base_sha, tip, contract.forked):
        raise ForgeRefused(
            f"branch {branch} on the remote holds commits that are not this delivery's ({tip[:12]})",
            where=url,
            fix=f"rename or delete that branch, then: {again}",
        )
    try:
        push(vault, url, head, branch, tip)
    except ForgeRefused:
        now = remote_tip(url, branch, vault.keys) if existing else tip
        if now != tip:  # somebody was faster, between the look and the push
            raise _moved(contract, branch, now, again) from None
        raise
    return True


def publish_first(vault: Vault, contract: Contract) -> Heads:
    """Make FIRST_COMMIT the base branch where the delivery is built on it and the repository still has no branch;
    return its branches as they are then. Safe to repeat, and for several deliveries at once.

    Raises ForgeRefused when somebody else has pushed a first commit meanwhile: nothing of theirs is in what was built.
    """
    url = contract.repository
    heads = remote_heads(url, vault.keys)
    if contract.base_sha != FIRST_COMMIT:
        return heads
    if not heads.branches:
        try:
            push(vault, url, FIRST_COMMIT, contract.base, None, unborn=True)
        except ForgeRefused:
            if not remote_heads(url, vault.keys).branches:
                raise
        crash_point(CrashPoint.AFTER_FIRST_COMMIT)
        heads = remote_heads(url, vault.keys)
    tip = heads.branches.get(contract.base)
    # fetched, so that the vault knows of this branch: `perdure gc` asks those it knows for what was merged
    if tip is not None and vault.fetch_branch(contract.base) == tip and vault.is_ancestor(FIRST_COMMIT, tip):
        return heads
    there = f"{contract.base} ({tip[:12]})" if tip is not None else f"branch {min(heads.branches, default='none')}"
    raise ForgeRefused(
        f"the repository was empty when this began, and somebody else has begun it with {there}",
        where=redact(url),
        fix=f"nothing was overwritten: perdure diff {contract.delivery} shows what was built; deliver anew",
    )


def try_out(vault: Vault, contract: Contract, heads: Heads | None = None) -> None:
    """Ask the remote, before anything is paid for, whether it would let us push there: what can be known without
    pushing. `heads`: its branches, where they have just been looked at. Raises ForgeRefused, ForgeUnavailable."""
    heads = heads or remote_heads(contract.repository, vault.keys)
    if contract.base_sha == FIRST_COMMIT and not heads.branches:
        push(vault, contract.repository, FIRST_COMMIT, contract.base, None, options=("--dry-run",))
    tip = heads.branches.get(contract.branch)
    start = contract.head or contract.base_sha
    push(vault, contract.repository, start, contract.branch, tip, options=("--dry-run",))


def commits_between(vault: Vault, older: str, newer: str) -> int:
    """Return the number of commits `newer` has that `older` has not."""
    return int(vault.git.text("rev-list", "--count", "--end-of-options", newer, f"^{older}"))


def _between(vault: Vault, began: str, tip: str, head: str, branch: str) -> bool:
    """True where the branch is where the delivery began, or where an earlier push of the same commits left it.

    One that was put back behind where it began has lost a commit on purpose: it must not come back with ours.
    """
    if tip == began:
        return vault.is_ancestor(began, head)
    if vault.fetch_branch(branch) != tip:
        return False
    return vault.is_ancestor(began, tip) and vault.is_ancestor(tip, head)


def made_by(vault: Vault, delivery: str, branch: str, base_sha: str, tip: str, older: tuple[str, ...] = ()) -> bool:
    """True when a branch of the remote is this delivery's own: its tip, and every commit it has and the base has not,
    carry the delivery's trailer. One that somebody made at the base, or that is an ancestor of our work, is not.

    older  deliveries that it was forked from: commits of theirs may be below its own
    """
    if vault.fetch_branch(branch) != tip:
        return False
    told = "--format=by %(trailers:key=Perdure-Delivery,valueonly,separator=%x2C)"
    newest = vault.git.text("log", "-1", told, "--end-of-options", tip)
    others = vault.git.text("log", told, "--end-of-options", tip, f"^{base_sha}")
    ours = f"by {delivery}"
    return newest == ours and {*others.splitlines()} <= {ours, *(f"by {one}" for one in older)}


def _moved(contract: Contract, branch: str, tip: str | None, again: str) -> ForgeRefused:
    if tip is None:
        return ForgeRefused(
            f"branch {branch} is not on the remote any more",
            where=contract.repository,
            fix=f"push it again at {contract.head[:12]}, then: {again}",
        )
    return ForgeRefused(
        f"branch {branch} has moved meanwhile: it is at {tip[:7]}, this work began at {contract.head[:7]}",
        where=contract.repository,
        fix="nothing was overwritten; the same command once more begins from the branch as it is now",
    )
