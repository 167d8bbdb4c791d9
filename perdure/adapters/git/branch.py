"""The ways out of the vault: commits on the delivery's branch, and the push."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from perdure.adapters.git.checkpoint import is_at, restore, worktree_tree
from perdure.adapters.git.door import Git, GitError, readable, redact
from perdure.adapters.git.refusals import main_line, push_fix
from perdure.adapters.git.remote import remote_failure, remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.visit import receiving
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.crash import crash_point
from perdure.models.crash import CrashPoint
from perdure.models.errors import ForgeRefused, ForgeUnavailable


def commit_tree(workspace: Workspace, *, checkpoint: str, parent: str, message: str) -> tuple[str, str]:
    """Commit a checkpoint's files onto `parent` and return (commit, tree); the commit is empty when nothing changed.

    `parent` is the workspace's base commit or a commit made here before. The worktree is brought to the checkpoint if
    it is not there. Unlike a checkpoint, a commit holds the repository's own normal forms (line endings by
    .gitattributes; filters are not run). No ref is moved.
    """
    if not is_at(workspace, checkpoint):
        restore(workspace, checkpoint)
    record, vault = workspace.record(), workspace.vault
    index = workspace.private / "commit.index"
    git = Git(vault.path, workspace.path, vault.path, index)
    with workspace.alone() as held:
        index.unlink(missing_ok=True)
        git.run("read-tree", record.base_sha, hold=(held,))
        _stage(git, record.exact_base, worktree_tree(vault, checkpoint), held)
        tree = git.run("write-tree", hold=(held,)).text
        if tree == vault.tree_of(parent):
            return "", tree
        crash_point(CrashPoint.INSIDE_COMMIT)
        made = git.run("commit-tree", tree, "-p", parent, "-F", "-", stdin=message.encode(errors="replace"))
    return made.text, tree


def _stage(git: Git, before: str, after: str, held: int) -> None:
    """Put what differs byte for byte, and nothing else, into the index.

    A repository whose files never took the form their attributes ask for would otherwise see all of them changed.
    """
    listed = git.run("diff-tree", "-r", "-z", "--no-renames", "--name-status", before, after).stdout.split(b"\0")[:-1]
    status = dict(zip(listed[1::2], listed[::2], strict=True))
    for option, wanted in (("--force-remove", True), ("--add", False)):
        paths = b"".join(path + b"\0" for path, how in status.items() if (how == b"D") is wanted)
        if paths:
            git.run("update-index", "--replace", option, "-z", "--stdin", stdin=paths, hold=(held,))


def find_commit(vault: Vault, branch_ref: str, parent: str, trailers: Mapping[str, str]) -> str | None:
    """The commit on a branch whose parent is `parent` and that carries all these trailers: made by a killed attempt."""
    tip = vault.read_ref(branch_ref)
    child = vault.first_parent_child(parent, tip) if tip else None
    if child is None:
        return None
    written = vault.git.text("log", "-1", "--format=%(trailers:only,unfold)", "--end-of-options", child)
    found = {tuple(line.split(": ", 1)) for line in written.splitlines()}
    return child if set(trailers.items()) <= found else None


def is_branch_name(vault: Vault, name: str) -> bool:
    """True when a branch may be called so: git allows the name, and does not read it as another ref."""
    if name == "HEAD" or name.startswith(("-", "refs/")):
        return False
    return vault.is_ref_name(f"refs/heads/{name}")


def in_the_way(heads: Iterable[str], branch: str) -> str | None:
    """A branch beside which one of this name cannot exist: git keeps them as files in folders."""
    return next((h for h in heads if h != branch and f"{branch}/".startswith(f"{h}/")), None) or next(
        (h for h in heads if h.startswith(f"{branch}/")), None
    )


def push(
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

    options  `--dry-run` asks whether we would be let in, and moves nothing
    unborn   a checkout there may be on this branch, before its first commit: an empty commit changes no file of it

    Raises ForgeRefused (a foreign branch, a name in the way, a protected branch, no permission), ForgeUnavailable.
    """
    target = f"refs/heads/{branch}"
    lease = f"--force-with-lease={target}:{expected or ''}"
    credential = vault.keys.credential(url)
    how = (*options, *receiving(url, unborn=unborn), lease)
    command = ("push", "--porcelain", "--no-verify", *how, "--", url, f"{sha}:{target}")
    try:
        done = vault.git.owner().run(*command, ok=(0, 1), credential=credential)
    except GitError as error:
        raise remote_failure(url, error, credential) from error
    if done.returncode == 0:
        return
    found = remote_heads(url, vault.keys)
    heads = found.branches
    if heads.get(branch) == sha:  # a line that broke after the push: git, or its curl, may have tried again in vain
        return
    no = [
        line.rpartition("\t")[2]
        for line in readable(done.stdout.decode(errors="replace")).splitlines()
        if line[:1] == "!"
    ]
    if found.moved_to and urlsplit(found.moved_to)[:2] == urlsplit(url)[:2]:
        # Renamed: git goes on at the old address when it was asked for a password on its way to the new one.
        push(vault, found.moved_to, sha, branch, expected, options=options, unborn=unborn)
        return
    if not no or no[0].startswith("[remote failure]"):  # cut in the middle: nobody said no
        said = main_line(done.stderr) or "it ended without an answer"
        raise ForgeUnavailable(f"the remote broke off: {said}", where=redact(url))
    raise _refusal(url, branch, expected, heads, no[0], done.stderr)


def _refusal(
    url: str, branch: str, expected: str | None, heads: Mapping[str, str], reason: str, stderr: str
) -> ForgeRefused:
    """`reason` is git's own: `[remote rejected] (hook declined)`."""
    where = f"{redact(url)} {branch}"
    if other := in_the_way(heads, branch):
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
    words = [line for line in stderr.splitlines() if line.startswith("remote: ")]
    said = main_line("\n".join(words)) or reason
    fix = push_fix("\n".join([*words, reason]))
    return ForgeRefused(f"the remote does not take the branch {branch}: {said}", where=where, fix=fix)
