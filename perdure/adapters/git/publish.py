"""The ways out of the vault: commits made on a delivery's branch from its checkpoints, and their push to the remote,
which never overwrites commits of others. Also what is checked before: the branch's name, whose commits it holds, and
whether the remote would accept a push. Used by activities and other adapters. Landing on a shared branch is in
`git.landing`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from perdure.adapters.git.checkouts import filtered_paths
from perdure.adapters.git.checkpoint import is_at_checkpoint, restore_checkpoint, worktree_tree
from perdure.adapters.git.command import Git, GitError, redact, redact_and_shorten
from perdure.adapters.git.credentials import main_line, push_fix
from perdure.adapters.git.filters import configured_filters, transfer_lfs_objects
from perdure.adapters.git.foreign_repository import receive_pack_options
from perdure.adapters.git.remote import FIRST_COMMIT, Heads, remote_failure, remote_heads, remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
from perdure.models.delivery.turn import Contract
from perdure.models.errors import Diverged, ForgeRefused, ForgeUnavailable
from perdure.text import shell_word


def commit_checkpoint(workspace: Workspace, *, checkpoint: str, parent: str, message: str) -> tuple[str, str]:
    """Make a commit of a checkpoint's files on top of `parent` and return (commit, tree); the commit is empty when the
    tree is the parent's own. No ref is moved.

    `parent` is the workspace's base commit or a commit made here before. The worktree is restored to the checkpoint if
    it is not there. Unlike a checkpoint, a commit holds the repository's own normal forms (line endings by
    .gitattributes; filters are not run). Raises WorkspaceLost when the vault does not have the checkpoint, or the
    workspace has no record.
    """
    if not is_at_checkpoint(workspace, checkpoint):
        restore_checkpoint(workspace, checkpoint)
    record, vault = workspace.record(), workspace.vault
    index = workspace.private / "commit.index"
    git = Git(vault.path, workspace.path, vault.path, index)
    with workspace.lock_worktree() as lock_fd:
        index.unlink(missing_ok=True)
        git.execute("read-tree", record.base_sha, lock_fds=(lock_fd,))
        _stage_changes(git, record.exact_base, worktree_tree(vault, checkpoint), lock_fd)
        if filters := configured_filters(git):
            _stage_refiltered(git, vault, record.base_sha, filters, lock_fd)
            os.sync()  # git-lfs syncs nothing
        tree = git.execute("write-tree", lock_fds=(lock_fd,)).text
        if tree == vault.tree_of(parent):
            return "", tree
        crash_point(CrashPoint.INSIDE_COMMIT)
        commit = git.execute("commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(errors="replace"))
    return commit.text, tree


def _stage_changes(git: Git, before: str, after: str, lock_fd: int) -> None:
    """Update the index from the worktree for the paths whose bytes differ between the trees `before` and `after`, and
    for no others.

    A repository whose files never took the form that their attributes ask for would otherwise see all of them changed.
    """
    listed = git.execute("diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after).stdout.split(b"\0")[
        :-1
    ]
    status = dict(zip(listed[1::2], listed[::2], strict=True))
    for option, deleted in (("--force-remove", True), ("--add", False)):
        paths = b"".join(path + b"\0" for path, change in status.items() if (change == b"D") is deleted)
        if paths:
            git.execute("update-index", "--replace", option, "-z", "--stdin", stdin=paths, lock_fds=(lock_fd,))


def _stage_refiltered(git: Git, vault: Vault, base_sha: str, filters: frozenset[str], lock_fd: int) -> None:
    """Update the index from the worktree for the files that have, or had on the base, one of these filters, and another
    one there: their .gitattributes have changed, so that a checkout would write other bytes than the checkpoint has."""
    old, new = (filtered_paths(vault, tree) for tree in (base_sha, git.text("write-tree")))
    changed = {
        path for path in {*old, *new} if old.get(path) != new.get(path) and {old.get(path), new.get(path)} & filters
    }
    paths = b"".join(os.fsencode(path) + b"\0" for path in sorted(changed))
    git.execute("update-index", "--remove", "-z", "--stdin", stdin=paths, lock_fds=(lock_fd,))


def find_commit(vault: Vault, branch_ref: str, parent: str, trailers: Mapping[str, str]) -> str | None:
    """Return the commit on a branch of the vault whose parent is `parent` and that carries all these trailers; None
    when there is none. A retry finds by it the commit of an attempt that was killed."""
    tip = vault.read_ref(branch_ref)
    child = vault.first_parent_child(parent, tip) if tip else None
    if child is None:
        return None
    output = vault.git.text("log", "-1", "--format=%(trailers:only,unfold)", "--end-of-options", child)
    commit_trailers = {tuple(line.split(": ", 1)) for line in output.splitlines()}
    return child if set(trailers.items()) <= commit_trailers else None


def is_branch_name(vault: Vault, name: str) -> bool:
    """Return True when git allows the name for a branch and does not read it as another ref (`HEAD`, `-…`,
    `refs/…`)."""
    if name == "HEAD" or name.startswith(("-", "refs/")):
        return False
    return vault.is_ref_name(f"refs/heads/{name}")


def conflicting_branch(heads: Iterable[str], branch: str) -> str | None:
    """Return one of the branches `heads` beside which `branch` cannot exist, or None. git keeps branches as files in
    folders, so that `a` and `a/b` exclude each other."""
    return next((h for h in heads if h != branch and f"{branch}/".startswith(f"{h}/")), None) or next(
        (h for h in heads if h.startswith(f"{branch}/")), None
    )


def push_commit(
    vault: Vault,
    url: str,
    sha: str,
    branch: str,
    expected: str | None,
    *,
    options: tuple[str, ...] = (),
    unborn: bool = False,
) -> None:
    """Push a commit to `url` as `branch`, which must be at `expected` (None: must not exist) or already at `sha`; what
    git-lfs stores for it before, where that filter runs.

    options  `--dry-run` asks whether the remote would accept the push, and moves nothing
    unborn   a checkout there may be on this branch, before its first commit: an empty commit changes no file of it

    A repository that was renamed on the same server is pushed to at its new address. Raises ForgeRefused when the
    branch holds other commits, another branch's name is in its way, it is protected, or we may not push;
    ForgeUnavailable when the remote does not answer or breaks off.
    """
    target = f"refs/heads/{branch}"
    lease = f"--force-with-lease={target}:{expected or ''}"
    credential = vault.keys.credential(url)
    flags = (*options, *receive_pack_options(url, unborn=unborn), lease)
    command = ("push", "--porcelain", "--no-verify", *flags, "--", url, f"{sha}:{target}")
    if "--dry-run" not in options:
        refs = f"{sha} {sha} {target} {expected or '0' * 40}\n".encode()  # what git gives the hook of git-lfs
        transfer_lfs_objects(vault.git, url, "pre-push", "origin", url, keys=vault.keys, stdin=refs)
    try:
        result = vault.git.for_owner().execute(*command, ok=(0, 1), credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error
    if result.returncode == 0:
        return
    remote = remote_heads(url, vault.keys)
    heads = remote.branches
    if heads.get(branch) == sha:  # the line broke after the push, and git or its curl tried again in vain
        return
    reasons = [
        line.rpartition("\t")[2]
        for line in redact_and_shorten(result.stdout.decode(errors="replace")).splitlines()
        if line[:1] == "!"
    ]
    if remote.moved_to and urlsplit(remote.moved_to)[:2] == urlsplit(url)[:2]:
        # Renamed: git goes on at the old address when it was asked for a password on its way to the new one.
        push_commit(vault, remote.moved_to, sha, branch, expected, options=options, unborn=unborn)
        return
    if not reasons or reasons[0].startswith("[remote failure]"):  # cut in the middle: nobody said no
        message = main_line(result.stderr) or "it ended without an answer"
        raise ForgeUnavailable(f"the remote broke off: {message}", where=redact(url))
    raise _push_refusal(url, branch, expected, heads, reasons[0], result.stderr)


def _push_refusal(
    url: str, branch: str, expected: str | None, heads: Mapping[str, str], reason: str, stderr: str
) -> ForgeRefused:
    """Return the error for a push that the remote did not accept, with what a person can do about it.

    `heads` are the remote's branches now; `reason` is git's own: `[remote rejected] (hook declined)`.
    """
    where = f"{redact(url)} {branch}"
    if other := conflicting_branch(heads, branch):
        return ForgeRefused(
            f"the remote has a branch {other}, so that {branch} cannot exist beside it",
            where=where,
            fix=f"rename {other} on the remote, or set [git] branch to another name",
        )
    if heads.get(branch) != expected:
        return ForgeRefused(
            f"the remote's branch {branch} holds commits that Perdure did not make",
            where=where,
            fix="rename or delete that branch, or set [git] branch to another name",
        )
    remote_lines = [line for line in stderr.splitlines() if line.startswith("remote: ")]
    message = main_line("\n".join(remote_lines)) or reason
    fix = push_fix("\n".join([*remote_lines, reason]))
    return ForgeRefused(f"the remote does not take the branch {branch}: {message}", where=where, fix=fix)


def publish_branch(
    vault: Vault, contract: Contract, *, branch: str, head: str, tested_tree: str = "", retry_command: str
) -> bool:
    """Push `head` to the remote as `branch` and return True; return False when it is there already. Safe to repeat.

    Push the first commit before, where the repository is still empty. The base and the default branch are refused. An
    existing branch only goes forward, from where the delivery began on it: refused where it is gone or has moved. A
    branch that the delivery made itself may be replaced as long as nobody else's commits are on it: a rewound delivery
    does so.

    tested_tree    the tree that tests ran on, which must be what `head` holds; empty: not tested
    retry_command  the command that tries once more, for messages

    Raises ForgeRefused for what is refused here or by the remote, and where the base shares no commit with `head` any
    more; ForgeUnavailable when the remote does not answer; Diverged where `head` does not hold the tested tree.
    """
    if tested_tree and tested_tree != vault.tree_of(head):
        raise Diverged(f"tests ran on tree {tested_tree[:12]}, which is not what {head[:12]} holds")
    url, existing = contract.repository, contract.existing or contract.head not in ("", contract.base_sha)
    heads = publish_first_commit(vault, contract)
    check_base_kept(vault, contract, heads, head, retry_command)
    tip = heads.branches.get(branch)
    if tip == head:
        return False
    if branch in (contract.base, heads.default):
        raise ForgeRefused(
            f"{branch} is the {'base' if branch == contract.base else 'default'} branch: nobody delivers onto it",
            where=url,
            fix="set [git] branch to a name of its own, and deliver anew under another id",
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


def check_base_kept(vault: Vault, contract: Contract, heads: Heads, head: str, retry_command: str) -> None:
    """Raise ForgeRefused where the base branch was rewritten on the remote, and no longer has commits that `head` was
    built on: a request to merge the two would bring them back. A base that went on, or is gone, passes."""
    base_tip = heads.branches.get(contract.base)
    if base_tip in (None, contract.base_sha) or contract.base_sha == FIRST_COMMIT:
        return
    fetched, shared = vault.fetch_branch(contract.base), vault.merge_base(contract.base_sha, head)
    if fetched and (dropped := count_commits(vault, fetched, shared)):
        are = "commit that this was built on is" if dropped == 1 else "commits that this was built on are"
        raise ForgeRefused(
            f"{contract.base} was rewritten meanwhile: {dropped} {are} not in it any more ({shared[:12]})",
            where=contract.repository,
            fix=f"deliver anew under another id; or put the old branch back, then: {retry_command}",
        )


def publish_first_commit(vault: Vault, contract: Contract) -> Heads:
    """Push FIRST_COMMIT as the base branch where the delivery is built on it and the repository still has no branch;
    return the remote's branches afterwards. Nothing is pushed for any other delivery. Safe to repeat, and for several
    at once.

    Raises ForgeRefused when somebody else has pushed a first commit meanwhile, for nothing of theirs is in what was
    built, or when the remote does not take it; ForgeUnavailable when it does not answer.
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
        fix=f"nothing was overwritten: perdure diff {shell_word(contract.delivery)} shows what was built; deliver anew",
    )


def check_push_allowed(vault: Vault, contract: Contract, heads: Heads | None = None) -> None:
    """Ask the remote by dry runs, before anything is paid for, whether it would accept the delivery's pushes, as far as
    that can be known without pushing. Nothing is moved there.

    `heads` are its branches, where they have just been fetched. Raises ForgeRefused when it would not accept them;
    ForgeUnavailable when it does not answer.
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
    not, carry the delivery's trailer. Fetches the branch for this; False when its commit is no longer `tip`.

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
