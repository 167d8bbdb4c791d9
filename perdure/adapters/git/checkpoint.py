"""Checkpoints: the exact bytes of a worktree and the transcript after a turn, as one commit in the vault.

A checkpoint's tree is {tree/, transcript/0001.json…, turn.json, sidecar.json}. It is made through a git directory of
its own (the shadow: the vault's objects, attributes switched off), so that bytes stay what they are. Covered: every
path that .gitignore does not ignore, with content, mode bits 0777 and symbolic links, and empty directories. Not
covered: HIDDEN names, what setup made, owners, times, hard links, files in the directory of a submodule.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.git import shadow
from perdure.adapters.git.door import GitError
from perdure.adapters.git.exact import links
from perdure.adapters.git.objects import TREE, TreeEntry
from perdure.adapters.git.record import WorkspaceRecord
from perdure.adapters.git.shadow import HIDDEN, PORTS_FILE, pathspecs
from perdure.adapters.git.surface import Sidecar, clear_special, opened, settle
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.models.errors import PerdureError, WorkspaceLost

FORMAT = 1
_INDEX_DIGEST = 20  # bytes, of git's SHA-1
Message = Mapping[str, Any]


class NestedRepository(PerdureError):
    """There are `.git` entries below the worktree's root: git would store an empty link instead of files (H16).

    Or names that git takes for one (`git~1`) and refuses. `paths` are relative to the worktree.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        super().__init__(
            f"nested repositories cannot be kept: {', '.join(self.paths[:5])}",
            fix="remove these .git entries (the files beside them may stay)",
        )


def begin(workspace: Workspace, turn: Mapping[str, Any], tree: str = "", parent: str | None = None) -> str:
    """Write the checkpoint that a delivery begins from and return its commit.

    It holds the base commit's files, byte for byte, whatever lies in the worktree now: restore to it. Or those of
    another tree, as a checkout writes them, where it begins anew after `parent`.
    """
    vault, tree = workspace.vault, tree or workspace.record().exact_base
    sidecar = vault.objects.blob(Sidecar(empty=links(vault, tree)).to_json())
    return _write(vault, tree, sidecar, turn, parent=parent)


def snapshot(
    workspace: Workspace,
    *,
    parent: str | None,
    turn: Mapping[str, Any],
    transcript: Sequence[Message],
    changed: bool = True,
) -> str:
    """Write one checkpoint and return its commit; no ref is moved.

    transcript  the whole conversation: messages the parent has at the same place are not written again
    changed     False when the turn could not have written: the parent's tree is taken as it is
    Raises NestedRepository, having written nothing that anything refers to.
    """
    objects = workspace.vault.objects
    known = set(_transcript_blobs(workspace.vault, parent)) if parent else set()
    with workspace.alone() as held:
        if changed or parent is None:
            tree, sidecar = _files(workspace, held)
        else:
            tree = workspace.vault.tree_of(f"{parent}:tree")
            sidecar = objects.blob(_blob(workspace.vault, parent, "sidecar.json"))
        commit = _write(
            workspace.vault, tree, sidecar, turn, [objects.blob(_json(m), known) for m in transcript], parent
        )
        if shadow.is_whole(workspace.shadow):
            _marker(workspace).write_text(_mark(workspace, commit))
    return commit


def restore(workspace: Workspace, checkpoint: str) -> None:
    """Make the worktree exactly what the checkpoint holds; only what setup made and `.ports.env` stay beside it.

    Waits for the git of a killed predecessor. Raises WorkspaceLost when the vault does not have the checkpoint.
    """
    record = workspace.record()
    tree, sidecar = worktree_tree(workspace.vault, checkpoint), read_sidecar(workspace.vault, checkpoint)
    with workspace.alone() as held:
        _put(workspace, record, tree, sidecar, held)
        _marker(workspace).write_text(_mark(workspace, checkpoint))


def restore_base(workspace: Workspace) -> None:
    """Make the worktree what a fresh checkout of the base commit is, with nothing beside it that setup did not make."""
    record = workspace.record()
    with workspace.alone() as held:
        _put(workspace, record, record.exact_base, Sidecar(empty=links(workspace.vault, record.exact_base)), held)


def leave(workspace: Workspace) -> None:
    """Say that something may write from now on: until the next snapshot or restore the worktree is at no checkpoint.

    Call it before a turn's first tool. What .gitignore ignores cannot be seen to have changed; this is how a
    rolled-back turn's ignored files are known to be there.
    """
    _marker(workspace).unlink(missing_ok=True)


def is_at(workspace: Workspace, checkpoint: str) -> bool:
    """True where the worktree is at a checkpoint and nothing was written since: some milliseconds."""
    try:
        if not shadow.is_whole(workspace.shadow) or _marker(workspace).read_text() != _mark(workspace, checkpoint):
            return False
        record = workspace.record()
        with workspace.alone() as held:
            git = shadow.git_for(workspace, record.exact_base, held)
            apart = [*(f"--exclude={name}" for name in shadow.HIDDEN), *_excludes(record)]
            # Of files with another time the content is compared; the index is the checkpoint's, as the mark says.
            told = git.run(
                *("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard"), *apart, hold=(held,)
            )
            return not told.names
    except (OSError, GitError):
        return False


def read_turn(vault: Vault, checkpoint: str) -> dict[str, Any]:
    """Return the turn's own record."""
    found: dict[str, Any] = json.loads(_blob(vault, checkpoint, "turn.json"))
    return found


def read_sidecar(vault: Vault, checkpoint: str) -> Sidecar:
    return Sidecar.from_json(_blob(vault, checkpoint, "sidecar.json"))


def read_transcript(vault: Vault, checkpoint: str) -> list[dict[str, Any]]:
    """The conversation up to a checkpoint. Raises WorkspaceLost when it is not here."""
    shas = _transcript_blobs(vault, checkpoint)
    blobs = [vault.loose.content("blob", sha) for sha in shas]
    if None not in blobs:
        return [json.loads(blob or b"") for blob in blobs]
    request = "".join(f"{sha}\n" for sha in shas).encode()
    try:
        return [json.loads(blob) for blob in _batch(vault.git.run("cat-file", "--batch", stdin=request).stdout)]
    except GitError as error:
        raise _lost(vault, checkpoint) from error


def worktree_tree(vault: Vault, checkpoint: str) -> str:
    """The git tree of the worktree's files in a checkpoint. Raises WorkspaceLost when it is not here."""
    try:
        return vault.tree_of(f"{checkpoint}:tree")
    except GitError as error:
        raise _lost(vault, checkpoint) from error


def _put(workspace: Workspace, record: WorkspaceRecord, tree: str, sidecar: Sidecar, held: int) -> None:
    """Make the worktree these files, modes and empty directories, and nothing else."""
    kept = _kept(record)
    _marker(workspace).unlink(missing_ok=True)
    git = shadow.git_for(workspace, record.exact_base, held)
    clear_special(workspace.path, (), kept)
    shadow.put(git, tree, held)
    git.run("clean", "-ffdxq", *_excludes(record), hold=(held,))
    settle(workspace.path, sidecar, (), kept)


def _files(workspace: Workspace, held: int) -> tuple[str, str]:
    """The worktree as (tree, sidecar blob)."""
    record = workspace.record()
    git = shadow.git_for(workspace, record.exact_base, held)
    with opened(workspace.path, (*HIDDEN, PORTS_FILE), _kept(record)) as surface:
        if surface.nested:
            raise NestedRepository(surface.nested)
        if surface.special:  # git stops at a file that has become a FIFO
            gone = b"".join(os.fsencode(path) + b"\0" for path in surface.special)
            git.run("update-index", "--force-remove", "-z", "--stdin", stdin=gone, hold=(held,))
        git.run("add", "--all", "--", *pathspecs([*record.kept, *surface.special]), hold=(held,))
    tree = git.run("write-tree", hold=(held,)).text
    return tree, workspace.vault.objects.blob(surface.sidecar.to_json())


def _write(
    vault: Vault,
    tree: str,
    sidecar: str,
    turn: Mapping[str, Any],
    transcript: Sequence[str] = (),
    parent: str | None = None,
) -> str:
    """The commit of a checkpoint; `transcript`: the blobs of its messages."""
    objects = vault.objects
    entries = [TreeEntry("tree", tree, TREE), TreeEntry("sidecar.json", sidecar)]
    entries.append(TreeEntry("turn.json", objects.blob(_json(turn))))
    if transcript:
        numbered = [TreeEntry(f"{number:04d}.json", sha) for number, sha in enumerate(transcript, start=1)]
        entries.append(TreeEntry("transcript", objects.tree(numbered), TREE))
    return objects.commit(objects.tree(entries), [parent] if parent else [], _message(turn))


def _marker(workspace: Workspace) -> Path:
    """Names the checkpoint the worktree is at, by its mark; absent when it is at none."""
    return workspace.shadow / "at"


def _mark(workspace: Workspace, checkpoint: str) -> str:
    """A checkpoint with the digest at the end of the shadow's index, which is that of the checkpoint's files."""
    with (workspace.shadow / "index").open("rb") as index:
        index.seek(-_INDEX_DIGEST, os.SEEK_END)
        return f"{checkpoint} {index.read().hex()}"


def _message(turn: Mapping[str, Any]) -> str:
    """The commit message: the turn's own summary, for people with `git log`."""
    result = turn.get("result")
    summary = turn.get("summary") or (result.get("summary") if isinstance(result, Mapping) else None) or "checkpoint"
    return f"{' '.join(str(summary).split())}\n\nPerdure-Format: {FORMAT}"


def _kept(record: WorkspaceRecord) -> tuple[str, ...]:
    return (*record.kept, PORTS_FILE)


def _excludes(record: WorkspaceRecord) -> list[str]:
    """Options that leave out what setup made."""
    return [f"--exclude=/{_escape(path)}" for path in _kept(record)]


def _escape(path: str) -> str:
    """A path as a pattern of .gitignore that matches only itself."""
    return "".join(f"\\{character}" if character in "\\*?[]!# " else character for character in path)


def _transcript_blobs(vault: Vault, checkpoint: str) -> list[str]:
    """The messages of a checkpoint, in order."""
    top = vault.loose.tree_of(checkpoint)
    if (entries := vault.loose.entries(top) if top else None) is not None:
        _, folder = entries.get("transcript", ("", ""))
        if not folder:
            return []
        if (messages := vault.loose.entries(folder)) is not None:
            return [messages[name][1] for name in sorted(messages, key=lambda name: int(Path(name).stem))]
    listed = vault.git.run("ls-tree", "-z", "--end-of-options", checkpoint, "transcript/", ok=(0, 128))
    if listed.returncode:
        raise _lost(vault, checkpoint)
    numbered = (line.partition("\t") for line in listed.names)
    by_number = {int(Path(path).stem): about.split()[2] for about, _, path in numbered}
    return [by_number[number] for number in sorted(by_number)]


def _blob(vault: Vault, checkpoint: str, name: str) -> bytes:
    data = vault.show(checkpoint, name)
    if data is None:
        raise _lost(vault, checkpoint)
    return data


def _lost(vault: Vault, checkpoint: str) -> WorkspaceLost:
    return WorkspaceLost(f"checkpoint {checkpoint[:12]} is not in the vault", where=str(vault.path))


def _batch(answer: bytes) -> Iterator[bytes]:
    """The contents in an answer of `cat-file --batch`. Raises GitError for an object that is not there."""
    at = 0
    while at < len(answer):
        header_end = answer.index(b"\n", at)
        header = answer[at:header_end].decode()
        if header.endswith(" missing"):
            raise GitError(["cat-file"], 0, header)
        size = int(header.split()[2])
        yield answer[header_end + 1 : header_end + 1 + size]
        at = header_end + 1 + size + 1


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
