"""A bare origin with one commit, a home, a vault and a workspace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from git_repositories import make_origin

from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home


@pytest.fixture(scope="session")
def first_origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_origin(tmp_path_factory.mktemp("first") / "origin.git")


@pytest.fixture
def origin(first_origin: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first_origin, tmp_path / "origin.git")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def vault(home: Home, origin: Path) -> Vault:
    return Vault.open(home, str(origin))


@pytest.fixture
def workspace(home: Home, vault: Vault) -> Workspace:
    _, base = vault.fetch()
    return Workspace.create(home, vault, "demo-1", base)
