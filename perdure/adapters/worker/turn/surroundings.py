"""The map of the repository that a step begins with.

It is told from git's objects, never from files as they lie there: a turn that is done again gets the same bytes, and
what an agent's sandbox does not show is not in them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from perdure.adapters.agents.builtin.repository_map import MAP_FILE_BYTES, mapped
from perdure.adapters.git.checkpoint import worktree_tree
from perdure.adapters.git.contents import Contents
from perdure.adapters.git.repository import REMEMBERED
from perdure.adapters.git.vault import Vault
from perdure.models.phases import Step
from perdure.models.steps import STEPS

MAP = "repository"
"""The name of the material that it becomes."""


def map_of(vault: Vault, checkpoint: str, step: Step) -> dict[str, str]:
    """The map as a material of a step's first message; empty for steps that stay close to what they are given, and for
    a repository without files. Raises WorkspaceLost."""
    if not STEPS[step].noted:
        return {}
    found = _map(vault, worktree_tree(vault, checkpoint))
    return {MAP: found} if found else {}


@functools.lru_cache(REMEMBERED)
def _map(vault: Vault, tree: str) -> str:
    files = {path: sha for path, mode, sha in vault.files(tree) if mode.startswith("100")}  # links lead elsewhere
    return mapped(files, lambda paths: _contents(vault, {path: files[path] for path in paths}))


def _contents(vault: Vault, shas: Mapping[str, str]) -> dict[str, bytes]:
    """Of those files that are no larger than MAP_FILE_BYTES."""
    reading = Contents(vault.git)
    try:
        read = reading.read(list(shas.values()), MAP_FILE_BYTES, MAP_FILE_BYTES * len(shas))
        return {path: data for path, (_, data) in zip(shas, read, strict=True) if data is not None}
    finally:
        reading.close()
