"""The gate on changes that are written down as files before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from tamper_change import PYTEST, Change, Judge, Tree, told

from perdure.adapters.project.tamper import Tampered


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all changes: they share nothing but their objects."""
    return tmp_path_factory.mktemp("tamper") / "repository.git"


@pytest.fixture
def look(repository: Path) -> Judge:
    """The whole of what the gate says about a change."""

    def judge(before: Tree, after: Tree, *commands: str) -> Tampered:
        return Change(repository, before, after).judge(*(commands or (PYTEST,)))

    return judge


@pytest.fixture
def hits(look: Judge) -> Judge:
    """Its hits alone, as `rule: title`."""

    def judge(before: Tree, after: Tree, *commands: str) -> list[str]:
        return told(look(before, after, *commands))

    return judge
