"""What is said of an existing branch before anything is done on it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from perdure.adapters.git.remote import remote_heads
from perdure.adapters.git.vault import Vault
from perdure.adapters.repository.terms import BranchBase, branch_names, check_branch, delivery_title
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.turn import Contract
from perdure.models.errors import InvalidRequest
from perdure.models.issue import ForgeIssue
from tests.repositories import git, make_target


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
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(origin))
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


@pytest.mark.parametrize("phases", [("review",), ("ship",), ("build", "test", "review", "ship")])
def test_a_branch_that_shares_no_commit_with_the_base_is_refused_where_the_two_are_compared(
    vault: Vault, origin: Path, phases: tuple[str, ...]
) -> None:
    git(origin, "branch", "alone", git(origin, "commit-tree", "-m", "another beginning", "main^{tree}"))
    with pytest.raises(InvalidRequest, match="alone shares no commit with main: it could not be merged") as refused:
        looked_at(vault, "alone", *phases)
    assert refused.value.fix == "name the base that it was begun from"
    looked_at(vault, "alone", "test")


@pytest.mark.parametrize("phases", [("test",), ("plan",), ("build", "test", "review", "ship")])
def test_it_can_be_tested_and_built_upon(vault: Vault, phases: tuple[str, ...]) -> None:
    looked_at(vault, "empty", *phases)


def test_the_base_is_no_branch_to_work_on(vault: Vault) -> None:
    with pytest.raises(InvalidRequest, match="main is the base itself"):
        looked_at(vault, "main", "build", "ship")


def test_without_words_the_newest_commit_that_is_no_merge_gives_the_title(vault: Vault) -> None:
    assert delivery_title(vault, terms(vault, "topic")) == "Subtract numbers"
    assert delivery_title(vault, terms(vault, "empty")) == "Merge merged", "nothing of its own: whatever is newest"


def test_words_and_issues_give_the_title_themselves(vault: Vault) -> None:
    issue = ForgeIssue(number=1, title="Heated", url="https://github.com/me/calc/issues/1")
    assert delivery_title(vault, terms(vault, "topic", issue=issue)) == "Heated"
    assert delivery_title(vault, terms(vault, "topic", request="Add sub")) == ""
    assert delivery_title(vault, terms(vault, "topic", existing=False)) == ""


def settled(vault: Vault, template: str, title: str = "Add sub", delivery: str = "calc-issue-1") -> dict[str, str]:
    base, base_sha = vault.fetch()
    ground = BranchBase(vault, remote_heads(vault.url), base, base_sha, delivery)
    issue = ForgeIssue(number=1, title=title, text="", author="eve", url="")
    request = DeliveryRequest(repository=vault.url, issue="1")
    return branch_names(template, delivery, request, issue, "perdure.toml", ground)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("main", "main is the base branch"),
        ("topic", "the remote has a branch topic already, with commits that are not this delivery's"),
        ("empty", "the remote has a branch empty already"),
        ("merged", "the remote has a branch merged already"),
        ("topic/{id}", "a branch topic, so that topic/calc-issue-1 cannot exist beside it"),
        ("HEAD", "cannot be a branch's name"),
        ("refs/heads/main", "cannot be a branch's name"),
        ("-x", "cannot be a branch's name"),
        ("a..b/{id}", "cannot be a branch's name"),
        ("{issue}~1", "cannot be a branch's name"),
    ],
)
def test_a_branch_that_could_not_be_pushed_is_refused_before_anything_is_paid_for(
    vault: Vault, template: str, words: str
) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(words)) as refused:
        settled(vault, template)
    assert "perdure/{id}" in refused.value.fix


def test_where_a_branch_is_called_perdure_the_advice_is_a_name_that_can_be_pushed(vault: Vault, origin: Path) -> None:
    git(origin, "branch", "perdure", "main")
    with pytest.raises(InvalidRequest, match="the remote has a branch perdure, so that") as refused:
        settled(vault, "perdure/{id}")
    assert "such as perdure-{id};" in refused.value.fix
    assert settled(vault, "perdure-{id}") == {"": "perdure-calc-issue-1"}


def test_the_default_branch_is_refused_where_another_one_is_the_base(vault: Vault) -> None:
    _, base_sha = vault.fetch("topic")
    ground = BranchBase(vault, remote_heads(vault.url), "topic", base_sha, "d")
    assert ground.unpushable_reason("main") == "main is the default branch: nobody delivers onto it"
    request = DeliveryRequest(repository=vault.url, request="x", base="topic", branch="main")
    head = str(vault.fetch_branch("main"))
    with pytest.raises(InvalidRequest, match="main is the default branch"):
        check_branch(vault, request, ("build", "ship"), "topic", base_sha, head, "main")
    check_branch(vault, request, ("test",), "topic", base_sha, head, "main")


@pytest.mark.parametrize("title", ["main", "Main!", "topic", "merged", "empty"])
def test_an_issues_title_never_makes_the_name_of_a_branch_that_is_there(vault: Vault, origin: Path, title: str) -> None:
    (name,) = settled(vault, "{slug}", title).values()
    assert name not in git(origin, "for-each-ref", "--format=%(refname:short)", "refs/heads/").splitlines()
    assert name.startswith(f"{title.lower().strip('!')}-")
    assert settled(vault, "{slug}", title) == {"": name}, "an attempt after a death finds the same"


def test_a_branch_of_this_very_delivery_is_its_own_and_anothers_is_not(vault: Vault, origin: Path) -> None:
    work = origin.with_name("calc.git-work")
    git(work, "switch", "-qc", "perdure/calc-issue-1", "main")
    git(work, "commit", "-q", "--allow-empty", "-m", "feat: x\n\nPerdure-Delivery: calc-issue-1\n")
    git(work, "push", "-q", str(origin), "perdure/calc-issue-1")
    assert settled(vault, "perdure/{id}") == {"": "perdure/calc-issue-1"}
    with pytest.raises(InvalidRequest, match="not this delivery's"):
        settled(vault, "perdure/calc-issue-1", delivery="calc-issue")
    git(work, "commit", "-q", "--allow-empty", "-m", "by hand")
    git(work, "commit", "-q", "--allow-empty", "-m", "feat: y\n\nPerdure-Delivery: calc-issue-1\n")
    git(work, "push", "-q", str(origin), "perdure/calc-issue-1")
    with pytest.raises(InvalidRequest, match="not this delivery's"):
        settled(vault, "perdure/{id}")


def test_a_name_that_says_the_kind_is_settled_for_each_of_them(vault: Vault) -> None:
    assert settled(vault, "{kind}/{id}") == {
        "": "change/calc-issue-1",
        "bug": "bug/calc-issue-1",
        "feature": "feature/calc-issue-1",
        "chore": "chore/calc-issue-1",
    }
