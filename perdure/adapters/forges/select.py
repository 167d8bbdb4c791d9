"""Which forge belongs to a repository."""

from __future__ import annotations

from pathlib import Path

from perdure.adapters.forges.base import Forge
from perdure.adapters.forges.local import LocalForge


def forge_for(repository_url: str) -> Forge | None:
    """The forge of an origin; None when it has none that Perdure speaks to yet: the branch is pushed all the same."""
    if repository_url.startswith("file://") or Path(repository_url).is_absolute():
        return LocalForge(repository_url)
    return None
