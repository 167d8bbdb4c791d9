"""A bare origin with one commit, a home, a vault and a workspace."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_server import GitServer

from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from tests.repositories import git, make_origin


@pytest.fixture(scope="session")
def first_origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_origin(tmp_path_factory.mktemp("first") / "origin.git")


@pytest.fixture
def origin(first_origin: Path, tmp_path: Path) -> Path:
    return shutil.copytree(first_origin, tmp_path / "origin.git")


@pytest.fixture
def server(origin: Path, tmp_path: Path) -> Iterator[GitServer]:
    """Of `origin`, as me/calc."""
    shutil.copytree(origin, tmp_path / "hub/me/calc.git")
    with GitServer(tmp_path / "hub") as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def vault(home: Home, origin: Path) -> Vault:
    return Vault.open_or_create(home, str(origin))


@pytest.fixture
def workspace(home: Home, vault: Vault) -> Workspace:
    _, base = vault.fetch()
    return Workspace.create(home, vault, "demo-1", base)


@pytest.fixture
def commits(home: Home, tmp_path: Path) -> tuple[Vault, str, str]:
    """A vault with two commits: the second changes, adds and removes a file."""
    origin = make_origin(
        tmp_path / "two.git", {"a.py": b"x = 1\n", "src/b.py": b"y = 1\n", "src/deep/c.sh": b"#!/bin/sh\n"}
    )
    first = Vault.open_or_create(home, str(origin)).fetch()[1]
    git(tmp_path, "clone", "-q", str(origin), "clone")
    clone = tmp_path / "clone"
    (clone / "a.py").write_text("x = 2\n")
    (clone / "new.py").write_text("z = 1\n")
    (clone / "src" / "deep" / "c.sh").unlink()
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "second")
    git(clone, "push", "-q")
    return Vault.open_or_create(home, str(origin)), first, Vault.open_or_create(home, str(origin)).fetch()[1]


@pytest.fixture
def kept(commits: tuple[Vault, str, str], tmp_path: Path) -> CheckoutPool:
    return CheckoutPool(commits[0], kept_results(Home(tmp_path), "checkouts"), min_files=1)
