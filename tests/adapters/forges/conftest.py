"""A local GitHub with one repository in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from twin_repository import HEAD, TOKEN, TwinRepository, git, make_source


@pytest.fixture
async def twin(tmp_path: Path) -> AsyncIterator[TwinRepository]:
    """Whatever a test did, every request fitted GitHub's own description."""
    from tests.twins.github import GitHubTwin

    source = make_source(tmp_path)
    async with GitHubTwin(tmp_path / "hub", token=TOKEN, login="perdure-bot", scopes=("repo",)) as hub:
        hub.add_repository("me/calc", source=source)
        yield TwinRepository(hub, git(source, "rev-parse", HEAD))
        assert hub.violations == []
