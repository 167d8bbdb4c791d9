"""Changes that are written down as files before and after, read as in a delivery."""

from __future__ import annotations

from pathlib import Path

import pytest
from tamper_change import Change, Judge, Tree

from perdure.adapters.checks.tamper.hints import ReviewHints


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all changes: they share nothing but their objects."""
    return tmp_path_factory.mktemp("tamper") / "repository.git"


@pytest.fixture
def hits(repository: Path) -> Judge:
    """The tests that are missing, as `rule: title`."""

    def judge(before: Tree, after: Tree, *commands: str) -> list[str]:
        return [f"{hit.rule.value}: {hit.title}" for hit in Change(repository, before, after).missing(*commands).hits]

    return judge


@pytest.fixture
def hinted(repository: Path) -> Judge:
    """All hints about a change."""

    def judge(before: Tree, after: Tree, *commands: str) -> ReviewHints:
        return Change(repository, before, after).hints(*commands)

    return judge
