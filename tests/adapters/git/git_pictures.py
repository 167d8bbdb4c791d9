"""What a checkpoint promises about a tree, taken without git, and how these tests take a checkpoint."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home

Node = tuple[str, int, bytes]


def picture(root: Path) -> dict[str, Node]:
    """Everything about a tree that a checkpoint promises, taken without git."""
    seen: dict[str, Node] = {}
    for directory, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(directory, name)
            key = str(path.relative_to(root))
            mode = path.lstat().st_mode
            if key == ".git":
                continue
            if stat.S_ISLNK(mode):
                seen[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(mode):
                seen[key] = ("directory", stat.S_IMODE(mode), b"")
            elif stat.S_ISREG(mode):
                if not mode & stat.S_IRUSR:
                    path.chmod(0o600)
                seen[key] = ("file", stat.S_IMODE(mode), path.read_bytes())
                if not mode & stat.S_IRUSR:
                    path.chmod(stat.S_IMODE(mode))
            else:
                seen[key] = ("special", 0, b"")
    return seen


def take(workspace: Workspace, parent: str | None = None, **more: object) -> str:
    transcript = more.get("transcript", [])
    assert isinstance(transcript, list)
    return cp.snapshot_worktree(workspace, parent=parent, turn={"summary": "turn"}, transcript=transcript)


def fresh(vault: Vault, commit: str, at: Path) -> dict[str, Node]:
    """The files of a checkout that no other has been before."""
    CheckoutPool.for_vault(Home(at.with_name("none")), vault, keeps_new=False).check_out(commit, at)
    return picture(at)
