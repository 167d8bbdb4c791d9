"""What setup made is in no checkpoint, whatever the agent's .gitignore says about it."""

from __future__ import annotations

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.workspace import Workspace


@pytest.mark.parametrize("name", [".venv", "build", "a b", "[x]", "*star", "back\\slash", "éclair", "!bang", "deep/er"])
def test_what_setup_made_is_left_out_also_where_gitignore_names_it(workspace: Workspace, name: str) -> None:
    made = workspace.path / name
    made.mkdir(parents=True)
    (made / "file").write_text("made by setup")
    workspace.finish_setup()
    ignored = "".join(f"\\{c}" if c in "\\*?[]! " else c for c in name)
    (workspace.path / ".gitignore").write_text(f"/{ignored}\n")
    (workspace.path / "x").write_text("kept")
    commit = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    listed = workspace.vault.git.execute("ls-tree", "-r", "-z", "--name-only", f"{commit}:tree").names
    assert "x" in listed
    assert not [path for path in listed if path.startswith(name)]
