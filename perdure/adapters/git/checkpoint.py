"""Checkpoints: the exact bytes of a worktree and the transcript after a turn, as one commit in the vault; written,
read, and restored into the worktree, for the worker, its turns and the activities. Which checkpoint a delivery is at is
a ref, which is moved elsewhere.

A checkpoint's tree is {tree/, transcript/0001.json…, turn.json, sidecar.json}. It is made through a git directory of
its own (the shadow: the vault's objects, attributes switched off), so that bytes stay what they are. Covered: every
path that .gitignore does not ignore, with content, mode bits 0777 and symbolic links, and empty directories. Not
covered: HIDDEN names, what setup made, owners, times, hard links, files in the directory of a submodule.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure.adapters.git.checkouts import submodule_paths
from perdure.adapters.git.command import GitError
from perdure.adapters.git.messages import StoredMessage, compact_json, read_messages
from perdure.adapters.git.objects import TREE, LooseObjects, ObjectStore, TreeEntry
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import (
    HIDDEN,
    PORTS_FILE,
    Workspace,
    WorkspaceRecord,
    checkpoint_pathspecs,
    is_shadow_intact,
    open_shadow,
    reset_shadow_files,
)
from perdure.adapters.git.worktree_scan import Sidecar, apply_sidecar, readable_worktree, remove_special
from perdure.models.errors import PerdureError, WorkspaceLost

FORMAT = 1
_INDEX_DIGEST = 20  # bytes, of git's SHA-1

CACHED_TREES = 8192
"""Checkpoints whose tree a process remembers: 80 deliveries of 100 turns, 2 MB."""


class NestedRepository(PerdureError):
    """The error that the worktree has `.git` entries below its root, for which git would store an empty link instead of
    files, or names that git takes for one (`git~1`) and refuses. `paths` are relative to the worktree."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        super().__init__(
            f"nested repositories cannot be kept: {', '.join(self.paths[:5])}",
            fix="remove these .git entries (the files beside them may stay)",
        )


def write_initial_checkpoint(
    workspace: Workspace, turn: Mapping[str, Any], tree: str = "", parent: str | None = None
) -> str:
    """Write the checkpoint that a delivery begins from and return its commit. No ref is moved, and the worktree is
    neither read nor changed: restore it to the checkpoint afterwards.

    It holds no transcript, and the base commit's files, byte for byte; or those of `tree`, as a checkout writes them,
    where the delivery begins anew after the checkpoint `parent`. Raises WorkspaceLost when no `tree` is given and the
    workspace has no record.
    """
    vault, tree = workspace.vault, tree or workspace.record().exact_base
    with vault.objects.write_together() as objects:
        sidecar = objects.write_blob(Sidecar(empty=submodule_paths(vault, tree)).to_json())
        return _write_commit(objects, tree, sidecar, turn, parent=parent)


def snapshot_worktree(
    workspace: Workspace,
    *,
    parent: str | None,
    turn: Mapping[str, Any],
    transcript: Sequence[Mapping[str, Any]],
    changed: bool = True,
) -> str:
    """Write a checkpoint of the worktree's files, the transcript and the turn, and return its commit; no ref is moved.
    The worktree then counts as being at it (see is_at_checkpoint).

    transcript  the whole conversation: messages that the parent has at the same place are not written again
    changed     False when the turn could not have written: the parent's tree is taken as it is

    Waits for the worktree's lock. Raises NestedRepository, having written nothing that anything refers to, where the
    worktree has a `.git` below its root; WorkspaceLost when the vault does not have the parent, or the workspace has no
    record.
    """
    known_blobs = set(transcript_blobs(workspace.vault, parent)) if parent else set()

    def write_message(objects: ObjectStore, message: Mapping[str, Any]) -> str:
        if isinstance(message, StoredMessage) and message.sha in known_blobs:
            return message.sha
        return objects.write_blob(compact_json(message), known_blobs)

    with workspace.lock_worktree() as lock_fd:
        with workspace.vault.objects.write_together() as objects:
            if changed or parent is None:
                tree, sidecar = _write_files(workspace, objects, lock_fd)
            else:
                tree = workspace.vault.tree_of(f"{parent}:tree")
                sidecar = objects.write_blob(_read_blob(workspace.vault, parent, "sidecar.json"))
            messages = [write_message(objects, message) for message in transcript]
            commit = _write_commit(objects, tree, sidecar, turn, messages, parent)
        if is_shadow_intact(workspace.shadow):
            _marker_path(workspace).write_text(_marker_text(workspace, commit))
    return commit


def restore_checkpoint(workspace: Workspace, checkpoint: str) -> None:
    """Make the worktree exactly what the checkpoint holds; everything else is removed but what setup made and
    `.ports.env`.

    Waits for the git of a killed predecessor. Raises WorkspaceLost when the vault does not have the checkpoint, or the
    workspace has no record.
    """
    record = workspace.record()
    tree, sidecar = worktree_tree(workspace.vault, checkpoint), read_sidecar(workspace.vault, checkpoint)
    with workspace.lock_worktree() as lock_fd:
        _put_files(workspace, record, tree, sidecar, lock_fd)
        _marker_path(workspace).write_text(_marker_text(workspace, checkpoint))


def restore_base(workspace: Workspace) -> None:
    """Make the worktree what a fresh checkout of the base commit is; everything else is removed but what setup made and
    `.ports.env`. It is then at no checkpoint. Waits for the worktree's lock; raises WorkspaceLost without a record."""
    record = workspace.record()
    with workspace.lock_worktree() as lock_fd:
        _put_files(
            workspace,
            record,
            record.exact_base,
            Sidecar(empty=submodule_paths(workspace.vault, record.exact_base)),
            lock_fd,
        )


def mark_dirty(workspace: Workspace) -> None:
    """Record that something may write from now on: until the next snapshot or restore the worktree is at no checkpoint.

    Call it before a turn's first tool. A change of files that .gitignore ignores cannot be seen; this is how it is
    known that a turn which was rolled back may have left some.
    """
    _marker_path(workspace).unlink(missing_ok=True)


def is_at_checkpoint(workspace: Workspace, checkpoint: str, *, written_by_us_alone: bool = False) -> bool:
    """Return True where the worktree is at this checkpoint and nothing was written since; False also where git or the
    disk fails. Takes some milliseconds, 0.1 s at 50,000 files, and waits for the worktree's lock. Raises WorkspaceLost
    without a record.

    written_by_us_alone  the caller knows that no process has been in the worktree since the snapshot: our own marker
                         decides, and no file is looked at
    """
    try:
        if not is_shadow_intact(workspace.shadow) or _marker_path(workspace).read_text() != _marker_text(
            workspace, checkpoint
        ):
            return False
        if written_by_us_alone:
            return True
        record = workspace.record()
        with workspace.lock_worktree() as lock_fd:
            git = open_shadow(workspace, record.exact_base, lock_fd)
            exclusions = [*(f"--exclude={name}" for name in HIDDEN), *_exclude_options(record)]
            # git compares the content of files whose time differs. That the index is the checkpoint's, the marker has
            # shown.
            changes = git.execute(
                *("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"),
                *exclusions,
                lock_fds=(lock_fd,),
            )
            return not changes.names
    except (OSError, GitError):
        return False


def read_turn(vault: Vault, checkpoint: str) -> dict[str, Any]:
    """Return the record of the turn that a checkpoint was made after (its `turn.json`). Raises WorkspaceLost when the
    vault does not have it."""
    turn: dict[str, Any] = json.loads(_read_blob(vault, checkpoint, "turn.json"))
    return turn


def read_sidecar(vault: Vault, checkpoint: str) -> Sidecar:
    """Return the file modes and empty directories that a checkpoint recorded. Raises WorkspaceLost when the vault does
    not have it."""
    return Sidecar.from_json(_read_blob(vault, checkpoint, "sidecar.json"))


def read_transcript(vault: Vault, checkpoint: str) -> list[StoredMessage]:
    """Return the messages of the conversation up to a checkpoint, in order; empty when it has none. Raises
    WorkspaceLost when the vault does not have it."""
    try:
        return read_messages(vault, transcript_blobs(vault, checkpoint))
    except GitError as error:
        raise _checkpoint_lost(vault, checkpoint) from error


def worktree_tree(vault: Vault, checkpoint: str) -> str:
    """Return the git tree of the worktree's files in a checkpoint. Raises WorkspaceLost when the vault does not have
    it."""
    try:
        return vault.tree_of(f"{checkpoint}:tree")
    except GitError as error:
        raise _checkpoint_lost(vault, checkpoint) from error


def worktree_trees(vault: Vault, checkpoint: str, count: int) -> tuple[str, ...]:
    """Return the git trees of the worktree's files in a checkpoint and in those before it, oldest first, at most
    `count`. Raises GitError where one is missing."""
    trees, commit = list[str](), checkpoint
    try:
        while commit and len(trees) < count:
            tree, commit = _tree_and_parent(vault.loose, commit)
            trees.append(tree)
        return tuple(reversed(trees))
    except LookupError:  # packed, or damaged: git knows
        names = vault.git.text(
            "rev-list", "--first-parent", f"--max-count={count}", "--end-of-options", checkpoint
        ).split()
        listing = vault.git.text("rev-parse", "--end-of-options", *(f"{name}:tree" for name in reversed(names)))
        return tuple(line for line in listing.splitlines() if not line.startswith("-"))


@lru_cache(CACHED_TREES)
def _tree_and_parent(loose: LooseObjects, checkpoint: str) -> tuple[str, str]:
    """Return the tree of the worktree's files in a checkpoint, and the checkpoint before it, empty where there is none.
    Raises LookupError where git has to be asked."""
    tree, parents = loose.resolve_path(f"{checkpoint}:tree"), loose.parents_of(checkpoint)
    if tree is None or parents is None:
        raise LookupError(checkpoint)
    return tree, next(iter(parents), "")


def _put_files(workspace: Workspace, record: WorkspaceRecord, tree: str, sidecar: Sidecar, lock_fd: int) -> None:
    """Give the worktree exactly these files, modes and empty directories, and remove the marker, so that it is at no
    checkpoint; only what setup made and `.ports.env` stay beside them. The caller holds the worktree's lock."""
    setup_paths = _setup_paths(record)
    _marker_path(workspace).unlink(missing_ok=True)
    git = open_shadow(workspace, record.exact_base, lock_fd)
    remove_special(workspace.path, (), setup_paths)
    reset_shadow_files(git, tree, lock_fd)
    git.execute("clean", "-ffdxq", *_exclude_options(record), lock_fds=(lock_fd,))
    apply_sidecar(workspace.path, sidecar, (), setup_paths)


def _write_files(workspace: Workspace, objects: ObjectStore, lock_fd: int) -> tuple[str, str]:
    """Write the worktree's files, and their modes and empty directories, to the vault, and return (tree, blob of the
    modes). Special files are left out. Raises NestedRepository where the worktree has a `.git` below its root."""
    record = workspace.record()
    git = open_shadow(workspace, record.exact_base, lock_fd)
    with readable_worktree(workspace.path, (*HIDDEN, PORTS_FILE), _setup_paths(record)) as surface:
        if surface.nested:
            raise NestedRepository(surface.nested)
        if surface.special:  # git stops at a file that has become a FIFO
            removed = b"".join(os.fsencode(path) + b"\0" for path in surface.special)
            git.execute("update-index", "--force-remove", "-z", "--stdin", stdin=removed, lock_fds=(lock_fd,))
        git.execute(
            "add", "--all", "--", *checkpoint_pathspecs([*record.setup_paths, *surface.special]), lock_fds=(lock_fd,)
        )
    tree = git.execute("write-tree", lock_fds=(lock_fd,)).text
    return tree, objects.write_blob(surface.sidecar.to_json())


def _write_commit(
    objects: ObjectStore,
    tree: str,
    sidecar: str,
    turn: Mapping[str, Any],
    transcript: Sequence[str] = (),
    parent: str | None = None,
) -> str:
    """Write the commit of a checkpoint from its parts and return it.

    `tree` and `sidecar` are the hashes of the files and of their modes; `transcript` lists the blobs of the messages,
    in order.
    """
    entries = [TreeEntry("tree", tree, TREE), TreeEntry("sidecar.json", sidecar)]
    entries.append(TreeEntry("turn.json", objects.write_blob(compact_json(turn))))
    if transcript:
        numbered = [TreeEntry(f"{number:04d}.json", sha) for number, sha in enumerate(transcript, start=1)]
        entries.append(TreeEntry("transcript", objects.write_tree(numbered), TREE))
    return objects.write_commit(objects.write_tree(entries), [parent] if parent else [], _commit_message(turn))


def _marker_path(workspace: Workspace) -> Path:
    """Return the path of the marker: a file that names the checkpoint the worktree is at, and is absent when it is at
    none."""
    return workspace.shadow / "at"


def _marker_text(workspace: Workspace, checkpoint: str) -> str:
    """Return the text of the marker file for a checkpoint: its commit, and the digest at the end of the shadow's index,
    which differs as soon as the index is no longer that of the checkpoint's files."""
    with (workspace.shadow / "index").open("rb") as index:
        index.seek(-_INDEX_DIGEST, os.SEEK_END)
        return f"{checkpoint} {index.read().hex()}"


def _commit_message(turn: Mapping[str, Any]) -> str:
    """Return the commit message: the turn's own summary, for people with `git log`, and the format's number."""
    result = turn.get("result")
    summary = turn.get("summary") or (result.get("summary") if isinstance(result, Mapping) else None) or "checkpoint"
    return f"{' '.join(str(summary).split())}\n\nPerdure-Format: {FORMAT}"


def _setup_paths(record: WorkspaceRecord) -> tuple[str, ...]:
    """Return the paths that setup made and the ports file, which are in no checkpoint and which a restore leaves
    alone."""
    return (*record.setup_paths, PORTS_FILE)


def _exclude_options(record: WorkspaceRecord) -> list[str]:
    """Return git's options that leave out what setup made."""
    return [f"--exclude=/{_escape_pattern(path)}" for path in _setup_paths(record)]


def _escape_pattern(path: str) -> str:
    """Return a path as a .gitignore pattern that matches only itself."""
    return "".join(f"\\{character}" if character in "\\*?[]!# " else character for character in path)


def transcript_blobs(vault: Vault, checkpoint: str) -> list[str]:
    """Return the hashes of a checkpoint's messages, in order; empty where it has none. Raises WorkspaceLost when the
    vault does not have the checkpoint."""
    top = vault.loose.tree_of(checkpoint)
    if (entries := vault.loose.tree_entries(top) if top else None) is not None:
        _, folder = entries.get("transcript", ("", ""))
        if not folder:
            return []
        if (messages := vault.loose.tree_entries(folder)) is not None:
            return [messages[name][1] for name in sorted(messages, key=lambda name: int(Path(name).stem))]
    listed = vault.git.execute("ls-tree", "-z", "--end-of-options", checkpoint, "transcript/", ok=(0, 128))
    if listed.returncode:
        raise _checkpoint_lost(vault, checkpoint)
    numbered = (line.partition("\t") for line in listed.names)
    by_number = {int(Path(path).stem): header.split()[2] for header, _, path in numbered}
    return [by_number[number] for number in sorted(by_number)]


def _read_blob(vault: Vault, checkpoint: str, name: str) -> bytes:
    """Return the content of a file at the top of a checkpoint's tree. Raises WorkspaceLost when the vault does not have
    it."""
    data = vault.read_file(checkpoint, name)
    if data is None:
        raise _checkpoint_lost(vault, checkpoint)
    return data


def _checkpoint_lost(vault: Vault, checkpoint: str) -> WorkspaceLost:
    """Return the error for a checkpoint that the vault does not have."""
    return WorkspaceLost(f"checkpoint {checkpoint[:12]} is not in the vault", where=str(vault.path))
