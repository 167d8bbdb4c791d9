"""The repository that commands of one delivery see in the vault's place: base and own branch, and nothing else.

The vault holds every delivery's checkpoints, and with them the conversations of authors and reviewers: `git cat-file`
in it would read them all. A view holds packs of exactly what is reachable. The base branch's history is the larger part
and is packed once for all deliveries of that branch; a later base adds one small pack to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.adapters.git.door import Git
from perdure.adapters.git.locks import locked
from perdure.adapters.git.vault import BARE, Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.sandbox.base import GitView
from perdure.adapters.system.boot import boot
from perdure.adapters.system.files import write_whole

GIT_VIEW_PACKS = 50
"""Packs of a base branch's history before they become one: git asks each of them for every object it looks up."""


def view(workspace: Workspace, base: str, base_sha: str, branch: str) -> GitView:
    """Bring the delivery's view up to its HEAD. A few milliseconds when nothing moved, no git started."""
    admin = Path(workspace.record().admin)
    head = (admin / "HEAD").read_text().strip()
    history = _history(workspace.vault, base, base_sha)
    shown = workspace.private / "view.git"
    wanted = "\n".join((str(history), base_sha, head, branch, boot()))  # its small files are not synced
    if _read(shown / "perdure-view") != wanted:
        with workspace.alone() as held:
            _fill(shown, history)
            _pack(workspace.vault, shown / "objects", [head], [base_sha], held)
            _refs(shown, {f"refs/heads/{branch}": head, f"refs/remotes/origin/{base}": base_sha})
            (shown / "worktrees" / admin.name).mkdir(parents=True, exist_ok=True)
            write_whole(shown / "perdure-view", wanted.encode())
    return GitView(at=workspace.vault.path, shown=shown, history=history, admin=admin)


def _history(vault: Vault, base: str, base_sha: str) -> Path:
    """An object store with the base branch's history up to `base_sha` at least; it has nothing of other branches."""
    root = vault.path.with_suffix(".history") / hashlib.sha256(base.encode()).hexdigest()[:16]
    tips = root / "tips"
    if base_sha in _read(tips).split():
        return root / "objects"
    with locked(root.with_suffix(".lock")) as held:
        known = _read(tips).split()
        if base_sha in known:
            return root / "objects"
        packs = root / "objects" / "pack"
        if len(list(packs.glob("*.pack"))) < GIT_VIEW_PACKS:
            _pack(vault, root / "objects", [base_sha], known, held)
        else:  # every lookup asks each pack: one that holds all of it takes their place
            old = set(packs.iterdir())
            _pack(vault, root / "objects", [base_sha, *known], (), held)
            if {file for file in packs.iterdir() if file.suffix == ".pack"} - old:
                for file in old:
                    file.unlink()
        write_whole(tips, "\n".join([*known, base_sha]).encode())
    return root / "objects"


def _fill(shown: Path, history: Path) -> None:
    for directory in ("objects/info", "objects/pack", "refs"):
        (shown / directory).mkdir(parents=True, exist_ok=True)
    (shown / "config").write_text(BARE)
    (shown / "HEAD").write_text("ref: refs/heads/none\n")
    (shown / "objects/info/alternates").write_text(f"{history}\n")


def _refs(shown: Path, refs: Mapping[str, str]) -> None:
    lines = ["# pack-refs with: sorted \n", *(f"{sha} {ref}\n" for ref, sha in sorted(refs.items()))]
    write_whole(shown / "packed-refs", "".join(lines).encode())


def _pack(vault: Vault, objects: Path, wanted: Sequence[str], known: Sequence[str], held: int) -> None:
    """Add what is reachable from `wanted` and not from `known`. Deltas are taken over as they are, none are sought."""
    (objects / "pack").mkdir(parents=True, exist_ok=True)
    for torn in (objects / "pack").glob("tmp_*"):  # of one that was cut off; whoever holds the lock knows that
        torn.unlink()
    # Git writes a pack beside the repository's own and renames it: across file systems that fails.
    here = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(vault.path / "objects")}
    asked = "".join([*(f"{sha}\n" for sha in wanted), *(f"^{sha}\n" for sha in known)])
    options = ("--revs", "--quiet", "--window=0", "--delta-base-offset", "--non-empty")
    Git(git_dir=vault.path).run(
        "pack-objects", *options, str(objects / "pack/pack"), stdin=asked.encode(), env=here, hold=(held,)
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
