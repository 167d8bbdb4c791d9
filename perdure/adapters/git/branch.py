"""The ways out of the vault: commits made on a delivery's branch from its checkpoints, and the push to a remote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from perdure.adapters.git.checkpoint import is_at_checkpoint, restore_checkpoint, worktree_tree
from perdure.adapters.git.command import Git, GitError, redact, redact_and_shorten
from perdure.adapters.git.foreign_repository import receive_pack_options
from perdure.adapters.git.refusals import main_line, push_fix
from perdure.adapters.git.remote import remote_failure, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
from perdure.models.errors import ForgeRefused, ForgeUnavailable


def commit_checkpoint(workspace: Workspace, *, checkpoint: str, parent: str, message: str) -> tuple[str, str]:
    """Make a commit of a checkpoint's files on top of `parent` and return (commit, tree); the commit is empty when the
    tree is the parent's own.

    `parent` is the workspace's base commit or a commit made here before. The worktree is restored to the checkpoint if
    it is not there. Unlike a checkpoint, a commit holds the repository's own normal forms (line endings by
    .gitattributes; filters are not run). No ref is moved.
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


def find_commit(vault: Vault, branch_ref: str, parent: str, trailers: Mapping[str, str]) -> str | None:
    """Return the commit on a branch whose parent is `parent` and that carries all these trailers, made by an attempt
    that was killed; None when there is none."""
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
    """Push a commit to `url` as `branch`, which must be at `expected` (None: must not exist) or already at `sha`.

    options  `--dry-run` asks whether the remote would accept the push, and moves nothing
    unborn   a checkout there may be on this branch, before its first commit: an empty commit changes no file of it

    A repository that was renamed on the same server is pushed to at its new address. Raises ForgeRefused (the branch
    holds other commits, a name in the way, a protected branch, no permission), ForgeUnavailable.
    """
    target = f"refs/heads/{branch}"
    lease = f"--force-with-lease={target}:{expected or ''}"
    credential = vault.keys.credential(url)
    flags = (*options, *receive_pack_options(url, unborn=unborn), lease)
    command = ("push", "--porcelain", "--no-verify", *flags, "--", url, f"{sha}:{target}")
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
