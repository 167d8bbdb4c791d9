"""What is said of an existing branch before anything is done on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.vault import Vault
from perdure.adapters.host.home import Home
from perdure.adapters.project.terms import check_branch, title_of
from perdure.models.config import RepositoryConfig
from perdure.models.contract import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.issue import Issue
from perdure.models.request import DeliveryRequest
from tests.lab import git, make_target


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """main, and three branches: `topic` with a commit and a merge on it, `merged` into main, `empty` at main."""
    path = make_target(tmp_path / "calc.git")
    work = path.with_name("calc.git-work")
    git(work, "switch", "-qc", "merged")
    git(work, "commit", "-q", "--allow-empty", "-m", "Old work")
    git(work, "switch", "-q", "main")
    git(work, "merge", "-q", "--no-ff", "-m", "Merge merged", "merged")
    git(work, "switch", "-qc", "topic", "main^")
    git(work, "commit", "-q", "--allow-empty", "-m", "Subtract   numbers")
    git(work, "merge", "-q", "--no-ff", "-m", "Merge main into topic", "main")
    git(work, "branch", "empty", "main")
    git(work, "push", "-q", str(path), "--all")
    return path


@pytest.fixture
def vault(tmp_path: Path, origin: Path) -> Vault:
    vault = Vault.open(Home(tmp_path / "home"), str(origin))
    vault.fetch()
    return vault


def looked_at(vault: Vault, branch: str, *phases: str) -> None:
    request = DeliveryRequest(repository=vault.url, request="x", branch=branch)
    head = vault.fetch_branch(branch)
    assert head is not None
    check_branch(vault, request, phases, "main", vault.fetch()[1], head)


def terms(vault: Vault, branch: str, **more: object) -> Contract:
    head, base_sha = vault.fetch_branch(branch), vault.fetch()[1]
    told: dict[str, object] = {"delivery": "d", "repository": vault.url, "request": "", "base": "main"}
    told |= {"base_sha": base_sha, "branch": branch, "head": head, "existing": True}
    told["config"] = RepositoryConfig(version=1)
    return Contract.model_validate(told | more)


@pytest.mark.parametrize("phases", [("review",), ("ship",), ("test", "review", "ship")])
@pytest.mark.parametrize("branch", ["merged", "empty"])
def test_a_branch_that_the_base_has_already_is_neither_reviewed_nor_proposed(
    vault: Vault, branch: str, phases: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidRequest, match=f"{branch} has no commit that main has not"):
        looked_at(vault, branch, *phases)
    looked_at(vault, "topic", *phases)


@pytest.mark.parametrize("phases", [("test",), ("plan",), ("build", "test", "review", "ship")])
def test_it_can_be_tested_and_built_upon(vault: Vault, phases: tuple[str, ...]) -> None:
    looked_at(vault, "empty", *phases)


def test_the_base_is_no_branch_to_work_on(vault: Vault) -> None:
    with pytest.raises(InvalidRequest, match="main is the base itself"):
        looked_at(vault, "main", "build", "ship")


def test_without_words_the_newest_commit_that_is_no_merge_gives_the_title(vault: Vault) -> None:
    assert title_of(vault, terms(vault, "topic")) == "Subtract numbers"
    assert title_of(vault, terms(vault, "empty")) == "Merge merged", "nothing of its own: whatever is newest"


def test_words_and_issues_give_the_title_themselves(vault: Vault) -> None:
    issue = Issue(number=1, title="Heated", url="https://github.com/me/calc/issues/1")
    assert title_of(vault, terms(vault, "topic", issue=issue)) == "Heated"
    assert title_of(vault, terms(vault, "topic", request="Add sub")) == ""
    assert title_of(vault, terms(vault, "topic", existing=False)) == ""
