"""The map of the repository that a step begins with.

It is made from git's objects, never from files as they lie there: a turn that is done again gets the same bytes, and
what an agent's sandbox does not show is not in them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from perdure.adapters.agents.builtin.repository_map import MAP_FILE_BYTES, build_map
from perdure.adapters.git.checkpoint import worktree_tree
from perdure.adapters.git.object_reader import ObjectReader
from perdure.adapters.git.repository import CACHED_ANSWERS
from perdure.adapters.git.vault import Vault
from perdure.models.phases import Step
from perdure.models.steps import STEPS

MAP_MATERIAL = "repository"
"""The name of the material that the map becomes."""


def map_material(vault: Vault, checkpoint: str, step: Step) -> dict[str, str]:
    """Return the map of a checkpoint's files as a material of a step's first message; empty for steps that stay close
    to what they are given, and for a repository without files. Raises WorkspaceLost."""
    if not STEPS[step].gets_notes:
        return {}
    text = _map_text(vault, worktree_tree(vault, checkpoint))
    return {MAP_MATERIAL: text} if text else {}


@functools.lru_cache(CACHED_ANSWERS)
def _map_text(vault: Vault, tree: str) -> str:
    """Return the map of a tree's files, kept in memory for the trees asked for last; links are left out, because they
    lead elsewhere."""
    files = {path: sha for path, mode, sha in vault.list_files(tree) if mode.startswith("100")}  # links lead elsewhere
    return build_map(files, lambda paths: _read_contents(vault, {path: files[path] for path in paths}))


def _read_contents(vault: Vault, shas: Mapping[str, str]) -> dict[str, bytes]:
    """Read from the vault those of the files, path → object, that are no larger than MAP_FILE_BYTES."""
    reader = ObjectReader(vault.git)
    try:
        contents = reader.read_objects(list(shas.values()), MAP_FILE_BYTES, MAP_FILE_BYTES * len(shas))
        return {path: data for path, (_, data) in zip(shas, contents, strict=True) if data is not None}
    finally:
        reader.close()
