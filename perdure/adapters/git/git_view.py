"""The repository that commands of one delivery see in the vault's place: base and own branch, and nothing else. The
worker writes it before commands are run in the sandbox, which shows it to them.

The vault holds every delivery's checkpoints, and with them the conversations of authors and reviewers: `git cat-file`
in it would read them all. A view holds packs of exactly what is reachable. The base branch's history is the larger part
and is packed once for all deliveries of that branch; a later base adds one small pack to it.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perdure.adapters.git.command import Git, redact
from perdure.adapters.git.vault import BARE, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import GitView
from perdure.adapters.system.directories import remove_path
from perdure.adapters.system.files import boot_id, hold_timed_lock, write_whole

GIT_VIEW_PACKS = 50
"""The number of packs of a base branch's history from which on they become one: git searches each of them for every
object."""


def update_view(workspace: Workspace, base: str, base_sha: str, branch: str) -> GitView:
    """Update the delivery's view, so that it shows the worktree's HEAD as `branch`, `base_sha` as the origin's `base`,
    and the tags that are reachable from either, and return it. Takes a few milliseconds and starts no git when nothing
    moved; otherwise packs and refs of the view, and the history shared by all views of the base branch, are written
    under their locks.

    Raises WorkspaceLost when the workspace has no record, LockBusy when a lock is not free in time, GitError when the
    vault lacks a commit.
    """
    admin = Path(workspace.record().admin)
    head = (admin / "HEAD").read_text().strip()
    history = _update_history(workspace.vault, base, base_sha)
    shown = workspace.private / "view.git"
    stamp = "\n".join((str(history), base_sha, head, branch, boot_id()))  # its files are not synced
    if _read_or_empty(shown / "perdure-view") != stamp:
        with workspace.lock_worktree() as lock_fd:
            if not _read_or_empty(shown / "perdure-view").endswith(boot_id()):
                remove_path(shown)  # nothing of it was synced
            _write_skeleton(shown, history, workspace.vault.url)
            tags = {f"refs/tags/{name}": sha for name, sha in workspace.vault.reachable_tags(head, base_sha).items()}
            heads = [head, *tags.values()]
            _write_pack(workspace.vault, shown / "objects", heads, [base_sha], lock_fd, sync=False)
            _write_refs(shown, {f"refs/heads/{branch}": head, f"refs/remotes/origin/{base}": base_sha, **tags})
            (shown / "worktrees" / admin.name).mkdir(parents=True, exist_ok=True)
            write_whole(shown / "perdure-view", stamp.encode(), sync=False)
    return GitView(vault_path=workspace.vault.path, view_path=shown, history=history, admin=admin)


def copy_for_setup(workspace: Workspace, view: GitView) -> GitView:
    """Copy a delivery's view, with the worktree's HEAD and index, for setup to write to, and return the copy; one from
    before is removed.

    Nothing of ours reads it afterwards, and no later command sees it: setup may leave hooks, filters and links there.
    """
    copy = workspace.private / "setup.git"
    remove_path(copy)
    shutil.copytree(view.view_path, copy)
    admin = shutil.copytree(view.admin, copy / "worktrees" / view.admin.name, dirs_exist_ok=True)
    return replace(view, view_path=copy, admin=admin, writable=True)


def _update_history(vault: Vault, base: str, base_sha: str) -> Path:
    """Update the object store that all views of a base branch share, so that it has the branch's history up to
    `base_sha` and nothing of other branches, and return its path. Does nothing when it has that commit.

    Waits for others who update it. From GIT_VIEW_PACKS packs on, one pack takes the place of all.
    """
    root = vault.path.with_suffix(".history") / hashlib.sha256(base.encode()).hexdigest()[:16]
    tips = root / "tips"
    if base_sha in _read_or_empty(tips).split():
        return root / "objects"
    with hold_timed_lock(root.with_suffix(".lock")) as lock_fd:
        packed_tips = _read_or_empty(tips).split()
        if base_sha in packed_tips:
            return root / "objects"
        packs = root / "objects" / "pack"
        if len(list(packs.glob("*.pack"))) < GIT_VIEW_PACKS:
            _write_pack(vault, root / "objects", [base_sha], packed_tips, lock_fd)
        else:  # every lookup asks each pack: one that holds all of it takes their place
            old = set(packs.iterdir())
            _write_pack(vault, root / "objects", [base_sha, *packed_tips], (), lock_fd)
            if {file for file in packs.iterdir() if file.suffix == ".pack"} - old:
                for file in old:
                    file.unlink()
        write_whole(tips, "\n".join([*packed_tips, base_sha]).encode())
    return root / "objects"


def _write_skeleton(shown: Path, history: Path, url: str) -> None:
    """Write the directories and small files of a view's repository. It finds other objects in `history`, and names
    `url`, without credentials, as its origin, as a clone does: addresses of submodules can be relative to it."""
    origin = redact(url).replace("\\", "\\\\").replace('"', '\\"')
    remote = f'[remote "origin"]\n\turl = "{origin}"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n'
    for directory in ("objects/info", "objects/pack", "refs"):
        (shown / directory).mkdir(parents=True, exist_ok=True)
    (shown / "config").write_text(BARE + remote)
    (shown / "HEAD").write_text("ref: refs/heads/none\n")
    (shown / "objects/info/alternates").write_text(f"{history}\n")


def _write_refs(shown: Path, refs: Mapping[str, str]) -> None:
    """Write the view's refs, as a packed-refs file."""
    lines = ["# pack-refs with: sorted \n", *(f"{sha} {ref}\n" for ref, sha in sorted(refs.items()))]
    write_whole(shown / "packed-refs", "".join(lines).encode(), sync=False)


def _write_pack(
    vault: Vault, objects: Path, include: Sequence[str], exclude: Sequence[str], lock_fd: int, *, sync: bool = True
) -> None:
    """Add a pack to `objects` of what is reachable in the vault from `include` and not from `exclude`; none when that
    is nothing. Leftovers of a git that was cut off are removed. Deltas are copied as they are, none are computed."""
    (objects / "pack").mkdir(parents=True, exist_ok=True)
    for leftover in (objects / "pack").glob("tmp_*"):  # of a git that was cut off: whoever holds the lock knows that
        leftover.unlink()
    # Git writes a pack beside the repository's own and renames it: across file systems that fails.
    environment = {
        "GIT_OBJECT_DIRECTORY": str(objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(vault.path / "objects"),
    }
    revisions = "".join([*(f"{sha}\n" for sha in include), *(f"^{sha}\n" for sha in exclude)])
    options = ("--revs", "--quiet", "--window=0", "--delta-base-offset", "--non-empty")
    Git(git_dir=vault.path, settings=() if sync else ("core.fsync=none",)).execute(
        "pack-objects",
        *options,
        str(objects / "pack/pack"),
        stdin=revisions.encode(),
        env=environment,
        lock_fds=(lock_fd,),
    )


def _read_or_empty(path: Path) -> str:
    """Return the text of a file, empty when it does not exist."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
