"""A repository without a commit is begun with one of our own, empty and always the same; never over anybody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.forges.base import Proposal
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git.publish import check_push_allowed, commit_checkpoint, publish_branch, publish_first_commit
from perdure.adapters.git.remote import FIRST_COMMIT, remote_heads, write_first_commit
from perdure.adapters.git.retention import is_unmerged, kept_deliveries
from perdure.adapters.git.target import TargetRepository, resolve_repository
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.config.repository import RepositoryConfig
from perdure.models.delivery.turn import Contract
from perdure.models.errors import BadInput, ForgeRefused
from perdure.models.ids import branch_name
from tests.repositories import git

EMPTY = ("init", "-q", "--initial-branch=trunk")
OWN = "perdure/demo-1"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    git(tmp_path, *EMPTY, "--bare", "empty.git")
    return tmp_path / "empty.git"


def terms(vault: Vault, delivery: str = "demo-1") -> Contract:
    return Contract(
        delivery=delivery,
        repository=vault.url,
        request="",
        base="trunk",
        base_sha=write_first_commit(vault.objects),
        head=FIRST_COMMIT,
        branch=f"perdure/{delivery}",
        config=RepositoryConfig(version=1),
    )


def built(vault: Vault, delivery: str = "demo-1") -> str:
    """A delivery's commit onto the first one."""
    tree = vault.objects.write_tree(())
    return vault.objects.write_commit(tree, [FIRST_COMMIT], f"feat: x\n\nPerdure-Delivery: {delivery}", timestamp=1)


def deliver(vault: Vault, delivery: str = "demo-1") -> bool:
    contract = terms(vault, delivery)
    return publish_branch(vault, contract, branch=contract.branch, head=built(vault, delivery), retry_command="")


def branches(repository: Path) -> dict[str, str]:
    listed = git(repository, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/")
    return dict(line.split(" ") for line in listed.splitlines())


def begun_by_ada(repository: Path) -> str:
    """Her own first commit, which has nothing in common with ours."""
    tree = git(repository, "hash-object", "-w", "-t", "tree", "/dev/null")
    made = git(repository, "commit-tree", "-m", "hers", tree)
    git(repository, "update-ref", "refs/heads/trunk", made)
    return made


def test_an_empty_repository_has_the_base_that_its_head_names(tmp_path: Path, empty: Path) -> None:
    git(tmp_path, *EMPTY, "alone")
    git(tmp_path, "clone", "-q", str(empty), "clone")
    for named in (str(empty), f"file://{empty}", "alone", "clone"):
        target = resolve_repository(named, tmp_path)
        assert target.empty, named
        assert target.base_branch() == ("trunk", FIRST_COMMIT), named
        with pytest.raises(BadInput, match="did you mean trunk"):
            target.base_branch("trnk")
    assert branches(empty) == {}, "looking makes nothing"


def test_the_first_commit_is_the_same_wherever_it_is_made(tmp_path: Path, empty: Path) -> None:
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(empty))
    assert write_first_commit(vault.objects) == write_first_commit(vault.objects) == FIRST_COMMIT
    assert git(vault.path, "ls-tree", "-r", FIRST_COMMIT) == ""
    git(vault.path, "fsck", "--strict", FIRST_COMMIT)


def test_a_repository_with_nothing_but_a_tag_is_not_empty(tmp_path: Path, empty: Path) -> None:
    made = begun_by_ada(empty)
    git(empty, "update-ref", "refs/tags/v1", made)
    git(empty, "update-ref", "-d", "refs/heads/trunk")
    with pytest.raises(BadInput, match="has no branch, and is not empty: it has refs/tags/v1"):
        resolve_repository(str(empty), tmp_path)


def test_a_remote_that_does_not_tell_its_first_branch_is_refused_with_the_commands(
    tmp_path: Path, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "person").mkdir()
    (tmp_path / "person" / ".gitconfig").write_text("[protocol]\n\tversion = 0\n[init]\n\tdefaultBranch = guessed\n")
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    with pytest.raises(BadInput, match="does not tell what its first branch is called") as refused:
        resolve_repository(str(empty), tmp_path)
    assert "git push" in refused.value.fix


def test_a_name_that_no_branch_can_have_is_not_taken_over(tmp_path: Path, empty: Path) -> None:
    (empty / "HEAD").write_text("ref: refs/heads/-x\n")
    with pytest.raises(BadInput, match="no commits yet"):
        resolve_repository(str(empty), tmp_path)


@pytest.mark.parametrize(
    ("also", "says", "fix"),
    [
        ((), "your checkout has 1 uncommitted file", "git add -A && git commit -m first"),
        (("add", "-A"), "your checkout has 1 uncommitted file", "git add -A && git commit -m first"),
        (("commit", "-q", "--allow-empty", "-m", "first"), "your checkout has 1 commit", "git push -u origin HEAD"),
    ],
)
def test_what_a_checkout_holds_is_to_be_committed_and_pushed_first(
    tmp_path: Path, empty: Path, also: tuple[str, ...], says: str, fix: str
) -> None:
    git(tmp_path, "clone", "-q", str(empty), "clone")
    (tmp_path / "clone" / "mine.py").write_text("x = 1\n")
    if also:
        git(tmp_path / "clone", *also)
    with pytest.raises(BadInput, match=says) as refused:
        resolve_repository("clone", tmp_path)
    assert fix in refused.value.fix


def test_base_and_branch_are_pushed_in_this_order_and_a_death_between_them_is_made_good(
    tmp_path: Path, empty: Path
) -> None:
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(empty))
    check_push_allowed(vault, terms(vault))
    assert branches(empty) == {}, "asked for, and not made, before anything is paid for"
    publish_first_commit(vault, terms(vault))
    assert branches(empty) == {"trunk": FIRST_COMMIT}
    assert deliver(vault)
    assert not deliver(vault), "killed before it could say so"
    assert branches(empty) == {"trunk": FIRST_COMMIT, OWN: built(vault)}
    assert remote_heads(str(empty)).default == "trunk"


def test_one_with_sha_256_names_is_refused_before_anything_is_paid_for(tmp_path: Path) -> None:
    git(tmp_path, *EMPTY, "--bare", "--object-format=sha256", "long.git")
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(tmp_path / "long.git"))
    with pytest.raises(ForgeRefused, match="hash algorithm") as refused:
        check_push_allowed(vault, terms(vault))
    assert refused.value.fix == "use a repository with SHA-1 names"


def test_two_deliveries_of_two_hosts_share_the_first_commit_and_one_may_be_merged_before_the_other_ships(
    tmp_path: Path, empty: Path
) -> None:
    one, other = (Vault.open_or_create(Home(tmp_path / name), str(empty)) for name in ("one", "other"))
    terms(other, "demo-2")
    assert deliver(one, "demo-1")
    git(empty, "update-ref", "refs/heads/trunk", OWN)
    assert deliver(other, "demo-2")
    assert set(branches(empty)) == {"trunk", OWN, "perdure/demo-2"}


def test_what_was_merged_into_a_branch_that_we_began_is_seen_to_be_merged(tmp_path: Path, empty: Path) -> None:
    home = Home(tmp_path / "home")
    vault = Vault.open_or_create(home, str(empty))
    workspace = Workspace.create(home, vault, "demo-1", write_first_commit(vault.objects))
    (workspace.path / "calc.py").write_text("x = 1\n")
    made, _ = commit_checkpoint(
        workspace,
        checkpoint=cp.snapshot_worktree(workspace, parent=None, turn={}, transcript=[]),
        parent=FIRST_COMMIT,
        message="feat: x\n\nPerdure-Delivery: demo-1\n",
    )
    vault.move_ref(f"refs/heads/{branch_name('demo-1')}", made, None)
    publish_branch(vault, terms(vault), branch=OWN, head=made, retry_command="")
    (one,) = kept_deliveries(home)
    assert is_unmerged(one)
    git(empty, "update-ref", "refs/heads/trunk", made)
    assert not is_unmerged(one), "or `perdure gc` would keep it for ever"


def test_a_first_commit_of_somebody_else_stays_and_is_named(tmp_path: Path, empty: Path) -> None:
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(empty))
    contract = terms(vault)
    hers = begun_by_ada(empty)
    with pytest.raises(ForgeRefused, match=rf"was empty when this began, .* begun it with trunk \({hers[:12]}\)") as no:
        deliver(vault)
    assert f"perdure diff {contract.delivery}" in no.value.fix
    git(empty, "branch", "-m", "trunk", "elsewhere")
    with pytest.raises(ForgeRefused, match="begun it with branch elsewhere"):
        deliver(vault)
    assert branches(empty) == {"elsewhere": hers}


def test_a_first_commit_that_arrives_between_the_look_and_the_push_stays_and_is_named(
    tmp_path: Path, empty: Path
) -> None:
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(empty))
    hers = begun_by_ada(empty)
    git(empty, "update-ref", "-d", "refs/heads/trunk")
    hook = empty / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/trunk {hers}\n")
    hook.chmod(0o755)
    with pytest.raises(ForgeRefused, match="somebody else has begun it with trunk"):
        deliver(vault)
    assert branches(empty) == {"trunk": hers}


def test_a_remote_that_takes_no_first_commit_says_why(tmp_path: Path, empty: Path) -> None:
    vault = Vault.open_or_create(Home(tmp_path / "home"), str(empty))
    hook = empty / "hooks" / "update"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text('#!/bin/sh\necho "trunk is begun by the release team" >&2\nexit 1\n')
    hook.chmod(0o755)
    with pytest.raises(ForgeRefused, match="does not take the branch trunk: trunk is begun by the release team"):
        deliver(vault)
    assert branches(empty) == {}


def test_a_persons_own_checkout_that_is_empty_gets_base_and_pull_request_and_no_file_changes(tmp_path: Path) -> None:
    git(tmp_path, *EMPTY, "mine")
    mine = tmp_path / "mine"
    (mine / ".git" / "info").mkdir(exist_ok=True)
    (mine / ".git" / "info" / "exclude").write_text("secret.env\n")
    (mine / "secret.env").write_text("x\n")
    target: TargetRepository = resolve_repository("mine", tmp_path)
    vault = Vault.open_or_create(Home(tmp_path / "home"), target.url)
    LocalForge(target.url).check_access("trunk", empty=True)
    assert deliver(vault)
    proposal = Proposal("demo-1", "feat: x", "what", OWN, built(vault), "trunk")
    assert LocalForge(target.url).open_or_update_pull(proposal).pull_request.number == 1
    assert git(mine, "status", "--porcelain", "--ignored") == "!! secret.env"
    assert git(mine, "rev-parse", "HEAD") == FIRST_COMMIT
    git(mine, "merge", "-q", "--ff-only", OWN)


def test_files_that_were_staged_meanwhile_in_an_empty_checkout_stay_staged(tmp_path: Path) -> None:
    git(tmp_path, *EMPTY, "mine")
    mine = tmp_path / "mine"
    vault = Vault.open_or_create(Home(tmp_path / "home"), resolve_repository("mine", tmp_path).url)
    (mine / "mine.py").write_text("x = 1\n")
    git(mine, "add", "-A")
    assert deliver(vault)
    assert git(mine, "status", "--porcelain") == "A  mine.py"
