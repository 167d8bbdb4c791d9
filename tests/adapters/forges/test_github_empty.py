"""A repository on GitHub without a commit: its first pull request needs a base, which git pushes first."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path

import pytest
from twin_repository import TOKEN, TwinRepository, git

from perdure.adapters.forges.select import Forges
from perdure.adapters.git.publish import publish_branch, publish_first_commit
from perdure.adapters.git.remote import FIRST_COMMIT, write_first_commit
from perdure.adapters.git.target import resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.errors import ForgeRefused

FINE = "github_pat_11AAAAAAA0fine0grained0token0fine0grained0"
BRANCH = "perdure/d-1"
NOTE = "me/new is empty: trunk begins with an empty commit, pushed before the branch"


@pytest.fixture
def empty(twin: TwinRepository, tmp_path: Path) -> Path:
    """Where the twin keeps me/new."""
    git(tmp_path, "init", "-q", "--bare", "-b", "trunk", "nothing.git")
    twin.hub.add_repository("me/new", source=tmp_path / "nothing.git")
    twin.hub.add_token(FINE, login="ada", permissions={"me/new": "write"}, kind="fine-grained")
    return tmp_path / "hub" / "me" / "new.git"


@pytest.mark.parametrize("token", [TOKEN, FINE], ids=["classic", "fine-grained"])
async def test_an_empty_repository_is_no_obstacle_and_worth_a_word(
    twin: TwinRepository, empty: Path, token: str
) -> None:
    access = await to_thread(twin.forge(token, "me/new").check_access, "trunk", [BRANCH], empty=True)
    assert access.notes == (NOTE,)
    assert git(empty, "for-each-ref") == ""
    with pytest.raises(ForgeRefused, match="me/new has no branch trunk"):
        await to_thread(twin.forge(token, "me/new").check_access, "trunk", [BRANCH])


async def test_a_rule_that_lets_nobody_begin_the_base_is_named_before_any_money_is_spent(
    twin: TwinRepository, empty: Path
) -> None:
    twin.hub.add_ruleset("me/new", "trunk", rules=[{"type": "creation"}])
    with pytest.raises(ForgeRefused, match=r"a rule of me/new \(creation\) would refuse the push of trunk") as caught:
        await to_thread(twin.forge(name="me/new").check_access, "trunk", [BRANCH], empty=True)
    assert "or push a first commit yourself: git commit --allow-empty" in caught.value.fix


async def test_it_becomes_the_base_of_a_pull_request_and_the_default_branch(
    twin: TwinRepository, empty: Path, tmp_path: Path
) -> None:
    keys = Forges.from_environment({"PERDURE_GITHUB_URL": twin.hub.url, "PERDURE_GITHUB_TOKEN": TOKEN})
    target = await to_thread(resolve_repository, f"{twin.hub.url}/me/new", tmp_path, keys)
    assert (target.empty, target.base_branch()) == (True, ("trunk", FIRST_COMMIT))
    vault = Vault.open_or_create(Home(tmp_path / "home"), target.url, keys)
    store = vault.objects
    terms = Contract(
        delivery="d-1",
        repository=target.url,
        request="",
        base="trunk",
        base_sha=write_first_commit(store),
        branch=BRANCH,
        config=RepositoryConfig(version=1),
    )
    head = store.write_commit(store.write_tree(()), [FIRST_COMMIT], "feat: x\n\nPerdure-Delivery: d-1")
    await to_thread(publish_first_commit, vault, terms)
    await to_thread(publish_branch, vault, terms, branch=BRANCH, head=head, retry_command="")
    proposal = twin.proposal(head=BRANCH, head_sha=head, base="trunk")
    opened = await to_thread(twin.forge(name="me/new").open_or_update_pull, proposal)
    assert opened.pull_request.number == 1
    (pull,) = twin.hub.pulls("me/new")
    assert (pull["base"]["ref"], pull["base"]["sha"]) == ("trunk", FIRST_COMMIT)
    assert pull["base"]["repo"]["default_branch"] == "trunk"
