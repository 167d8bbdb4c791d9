"""A delivery's commits reach the remote once, and never over anybody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish as branches
from perdure.adapters.git.publish import check_push_allowed, count_commits, publish_branch
from perdure.adapters.git.remote import remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.errors import Diverged, ForgeRefused
from tests.repositories import git

TOPIC = "topic"
OWN = "perdure/demo-1"
AGAIN = "perdure retry demo-1"


@pytest.fixture
def began(origin: Path) -> str:
    """Ada's branch, one commit ahead of main."""
    made = git(origin, "commit-tree", "-p", "main", "-m", "hers", "main^{tree}")
    git(origin, "update-ref", f"refs/heads/{TOPIC}", made)
    return made


@pytest.fixture
def workspace(home: Home, vault: Vault, began: str) -> Workspace:
    """On Ada's branch."""
    vault.fetch()
    assert vault.fetch_branch(TOPIC) == began
    return Workspace.create(home, vault, "demo-1", began)


@pytest.fixture
def terms(vault: Vault, began: str) -> Contract:
    return Contract(
        delivery="demo-1",
        repository=vault.url,
        request="",
        base="main",
        base_sha=vault.fetch()[1],
        head=began,
        branch=TOPIC,
        existing=True,
        config=RepositoryConfig(version=1),
    )


def commit(workspace: Workspace, parent: str, text: str = "a\n") -> str:
    (workspace.path / "a.py").write_text(text)
    checkpoint = cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[])
    message = "fix: x\n\nPerdure-Delivery: demo-1\n"
    return branches.commit_checkpoint(workspace, checkpoint=checkpoint, parent=parent, message=message)[0]


def theirs(origin: Path, parent: str, name: str = TOPIC) -> str:
    """Somebody's commit on a branch of the remote."""
    made = git(origin, "commit-tree", "-p", parent, "-m", "theirs", f"{parent}^{{tree}}")
    git(origin, "update-ref", f"refs/heads/{name}", made)
    return made


def test_an_existing_branch_goes_forward_and_a_repetition_finds_it_there(
    workspace: Workspace, terms: Contract, began: str
) -> None:
    vault = workspace.vault
    first = commit(workspace, began)
    assert publish_branch(vault, terms, branch=TOPIC, head=first, retry_command=AGAIN)
    assert not publish_branch(vault, terms, branch=TOPIC, head=first, retry_command=AGAIN), (
        "killed before it could say so"
    )
    second = commit(workspace, first, "b\n")
    assert publish_branch(
        vault, terms, branch=TOPIC, head=second, tested_tree=vault.tree_of(second), retry_command=AGAIN
    )
    assert remote_tip(vault.url, TOPIC) == second
    assert count_commits(vault, began, second) == 2


def test_nothing_is_pushed_for_a_base_that_was_begun_anew(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    went_on = theirs(origin, git(origin, "rev-parse", "main"), "main")
    assert publish_branch(workspace.vault, terms, branch=TOPIC, head=made, retry_command=AGAIN), "a base that goes on"
    orphan = git(origin, "commit-tree", "-m", "all new", f"{went_on}^{{tree}}")
    git(origin, "update-ref", "refs/heads/main", orphan)
    second = commit(workspace, made, "b\n")
    with pytest.raises(
        ForgeRefused, match="main was rewritten meanwhile: 1 commit that this was built on is"
    ) as refused:
        publish_branch(workspace.vault, terms, branch=TOPIC, head=second, retry_command=AGAIN)
    assert AGAIN in refused.value.fix
    assert remote_tip(str(origin), TOPIC) == made


@pytest.mark.parametrize("grown", [True, False])
def test_nothing_is_pushed_for_a_base_that_dropped_commits_which_the_work_was_built_on(
    workspace: Workspace, terms: Contract, origin: Path, grown: bool
) -> None:
    """They would come back with it, and a secret may be in them."""
    vault, kept = workspace.vault, terms.base_sha
    base = theirs(origin, theirs(origin, kept, "main"), "main")
    assert vault.fetch()[1] == base
    own = terms.model_copy(update={"branch": OWN, "existing": False, "base_sha": base, "head": base})
    made = commit(workspace, base)
    git(origin, "update-ref", "refs/heads/main", kept)
    if grown:
        git(origin, "update-ref", "refs/heads/main", git(origin, "commit-tree", "-p", kept, "-m", "x", "main^{tree}"))
    with pytest.raises(ForgeRefused, match=f"main was rewritten .*: 2 commits .* not in it any more .{base[:12]}"):
        publish_branch(vault, own, branch=OWN, head=made, retry_command=AGAIN)
    assert remote_tip(str(origin), OWN) is None
    git(origin, "update-ref", "refs/heads/main", base)
    assert publish_branch(vault, own, branch=OWN, head=made, retry_command=AGAIN), "the old branch was put back"
    git(origin, "update-ref", "refs/heads/main", kept)
    with pytest.raises(ForgeRefused, match="main was rewritten"):  # killed before its pull request was opened
        publish_branch(vault, own, branch=OWN, head=made, retry_command=AGAIN)


def test_an_existing_branch_does_not_lose_what_the_base_dropped_and_it_never_had(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    dropped = theirs(origin, terms.base_sha, "main")
    assert workspace.vault.fetch()[1] == dropped
    git(origin, "update-ref", "refs/heads/main", terms.base_sha)
    went_on = terms.model_copy(update={"base_sha": dropped})
    assert publish_branch(workspace.vault, went_on, branch=TOPIC, head=commit(workspace, began), retry_command=AGAIN)


def test_a_branch_that_moved_meanwhile_is_left_alone(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    tip = theirs(origin, began)
    with pytest.raises(ForgeRefused, match=f"has moved meanwhile: it is at {tip[:7]}") as refused:
        publish_branch(workspace.vault, terms, branch=TOPIC, head=made, retry_command=AGAIN)
    assert "begins from the branch as it is now" in refused.value.fix
    assert remote_tip(str(origin), TOPIC) == tip


def test_what_somebody_put_on_top_of_an_earlier_push_stays(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    first = commit(workspace, began)
    publish_branch(workspace.vault, terms, branch=TOPIC, head=first, retry_command=AGAIN)
    tip = theirs(origin, first)
    with pytest.raises(ForgeRefused, match="has moved meanwhile"):
        publish_branch(workspace.vault, terms, branch=TOPIC, head=commit(workspace, first, "b\n"), retry_command=AGAIN)
    assert remote_tip(str(origin), TOPIC) == tip


def test_a_rewound_delivery_does_not_replace_what_it_pushed_to_somebodys_branch(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    first = commit(workspace, began)
    publish_branch(workspace.vault, terms, branch=TOPIC, head=first, retry_command=AGAIN)
    with pytest.raises(ForgeRefused, match="has moved meanwhile"):
        publish_branch(
            workspace.vault, terms, branch=TOPIC, head=commit(workspace, began, "other\n"), retry_command=AGAIN
        )
    assert remote_tip(str(origin), TOPIC) == first


def test_a_commit_that_was_taken_off_the_branch_does_not_come_back_with_ours(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    git(origin, "update-ref", f"refs/heads/{TOPIC}", f"{began}^")
    with pytest.raises(ForgeRefused, match="has moved meanwhile"):
        publish_branch(workspace.vault, terms, branch=TOPIC, head=made, retry_command=AGAIN)


def test_a_branch_that_is_gone_is_not_made_again(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    git(origin, "update-ref", "-d", f"refs/heads/{TOPIC}")
    with pytest.raises(ForgeRefused, match="not on the remote any more") as refused:
        publish_branch(workspace.vault, terms, branch=TOPIC, head=made, retry_command=AGAIN)
    assert refused.value.fix == f"push it again at {began[:12]}, then: {AGAIN}"
    assert remote_tip(str(origin), TOPIC) is None


def test_a_push_that_comes_between_our_look_and_our_push_wins(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    tip = git(origin, "commit-tree", "-p", began, "-m", "theirs", f"{began}^{{tree}}")
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/{TOPIC} {tip}\n")
    hook.chmod(0o755)
    with pytest.raises(ForgeRefused, match="has moved meanwhile"):
        publish_branch(workspace.vault, terms, branch=TOPIC, head=made, retry_command=AGAIN)
    assert remote_tip(str(origin), TOPIC) == tip


def test_a_protected_branch_is_refused_in_the_remotes_words(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho topic is protected >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(ForgeRefused, match="topic is protected"):
        publish_branch(workspace.vault, terms, branch=TOPIC, head=commit(workspace, began), retry_command=AGAIN)
    assert remote_tip(str(origin), TOPIC) == began


def test_what_was_not_tested_is_not_what_is_pushed(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    with pytest.raises(Diverged):
        publish_branch(workspace.vault, terms, branch=TOPIC, head=made, tested_tree="0" * 40, retry_command=AGAIN)
    assert remote_tip(str(origin), TOPIC) == began


def test_a_branch_of_its_own_is_made_and_replaced_by_a_rewound_delivery_but_never_over_others(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    vault, base = workspace.vault, terms.base_sha
    own = terms.model_copy(update={"branch": OWN, "existing": False, "head": base})
    first, second = commit(workspace, base), commit(workspace, base, "other\n")
    assert publish_branch(vault, own, branch=OWN, head=first, retry_command=AGAIN)
    assert publish_branch(vault, own, branch=OWN, head=second, retry_command=AGAIN)
    tip = theirs(origin, base, OWN)
    with pytest.raises(ForgeRefused, match="not this delivery's") as refused:
        publish_branch(vault, own, branch=OWN, head=second, retry_command=AGAIN)
    assert refused.value.fix == f"rename or delete that branch, then: {AGAIN}"
    assert remote_tip(str(origin), OWN) == tip


def test_terms_of_an_older_release_tell_an_existing_branch_by_where_they_begin(
    workspace: Workspace, terms: Contract, began: str, origin: Path
) -> None:
    made = commit(workspace, began)
    theirs(origin, began)
    old = terms.model_copy(update={"existing": False})
    with pytest.raises(ForgeRefused, match="has moved meanwhile"):
        publish_branch(workspace.vault, old, branch=TOPIC, head=made, retry_command=AGAIN)


@pytest.mark.parametrize("name", ["main", "trunk"])
def test_nothing_is_ever_pushed_onto_the_base_or_the_default_branch(
    workspace: Workspace, terms: Contract, origin: Path, name: str
) -> None:
    vault, base = workspace.vault, terms.base_sha
    git(origin, "update-ref", "refs/heads/trunk", base)
    git(origin, "symbolic-ref", "HEAD", "refs/heads/trunk")
    own = terms.model_copy(update={"branch": name, "existing": False, "head": base})
    with pytest.raises(ForgeRefused, match="nobody delivers onto it"):
        publish_branch(vault, own, branch=name, head=commit(workspace, base), retry_command=AGAIN)
    assert remote_tip(str(origin), name) == base


def test_a_branch_that_somebody_made_where_the_delivery_began_is_not_its_own(
    workspace: Workspace, terms: Contract, origin: Path
) -> None:
    base = terms.base_sha
    git(origin, "update-ref", f"refs/heads/{OWN}", base)
    own = terms.model_copy(update={"branch": OWN, "existing": False, "head": base})
    with pytest.raises(ForgeRefused, match="not this delivery's"):
        publish_branch(workspace.vault, own, branch=OWN, head=commit(workspace, base), retry_command=AGAIN)
    assert remote_tip(str(origin), OWN) == base


def test_trying_out_a_push_moves_nothing_and_hears_what_a_push_would(
    workspace: Workspace, terms: Contract, origin: Path, tmp_path: Path
) -> None:
    own = terms.model_copy(update={"branch": OWN, "existing": False, "head": terms.base_sha})
    check_push_allowed(workspace.vault, own)
    assert remote_tip(str(origin), OWN) is None
    origin.rename(tmp_path / "away.git")
    with pytest.raises(ForgeRefused, match="does not appear to be a git repository"):
        check_push_allowed(workspace.vault, own)
