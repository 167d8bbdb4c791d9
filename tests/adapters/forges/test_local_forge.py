"""Pull requests as refs of a bare repository: one a head, numbers once, merged when the base has them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from perdure.adapters.forges.base import Forge, Proposal
from perdure.adapters.forges.local import LocalForge
from perdure.adapters.forges.select import Forges
from perdure.models.errors import ForgeRefused, ForgeUnavailable
from perdure.text import shell_word
from tests.repositories import PERSON, git


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "durations.git")
    where = tmp_path / "durations.git"
    tree = git(where, "mktree", "--batch") or git(where, "hash-object", "-w", "-t", "tree", "/dev/null")
    git(where, "update-ref", "refs/heads/main", git(where, "commit-tree", "-m", "first", tree))
    return where


def grow(bare: Path, name: str) -> str:
    """One more commit on a branch, from main when it is new; returns it."""
    known = git(bare, "for-each-ref", "--format=%(objectname)", f"refs/heads/{name}") or git(bare, "rev-parse", "main")
    commit = git(bare, "commit-tree", "-p", known, "-m", name, f"{known}^{{tree}}")
    git(bare, "update-ref", f"refs/heads/{name}", commit)
    return commit


def proposal(head: str, sha: str, title: str = "feat: x", *, draft: bool = False) -> Proposal:
    return Proposal(delivery="d-1", title=title, body="Why: ä\n", head=head, head_sha=sha, base="main", draft=draft)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_pull_request_is_a_head_and_a_record_in_the_repository(bare: Path, form: str) -> None:
    forge = LocalForge(form.format(bare))
    sha = grow(bare, "perdure/d-1")
    pull = forge.open_or_update_pull(proposal("perdure/d-1", sha)).pull_request
    assert (pull.number, pull.title, pull.draft) == (1, "feat: x", False)
    assert pull.url == f"{bare}#pull/1"
    assert git(bare, "rev-parse", "refs/pull/1/head") == sha
    assert json.loads(git(bare, "show", "refs/pull/1/record:pull.json")) == {
        "number": 1,
        "title": "feat: x",
        "head": "perdure/d-1",
        "base": "main",
        "state": "open",
        "draft": False,
        "delivery": "d-1",
        "beside": [],
    }
    assert git(bare, "show", "refs/pull/1/record:body.md") == "Why: ä"
    assert git(bare, "fsck", "--strict", "--no-dangling") == ""


def test_show_gives_the_exact_command_that_takes_it(bare: Path, tmp_path: Path) -> None:
    forge = LocalForge(str(bare))
    sha = grow(bare, "topic")
    forge.open_or_update_pull(proposal("topic", sha))
    shown = forge.pull_details(1)
    assert (shown.state, shown.head_sha, shown.body) == ("open", sha, "Why: ä\n")
    git(tmp_path, "clone", "-q", str(bare), "mine")
    subprocess.run(
        shown.take, shell=True, cwd=tmp_path / "mine", env=PERSON, check=True, capture_output=True, timeout=30
    )
    assert git(tmp_path / "mine", "rev-parse", "HEAD") == sha
    with pytest.raises(ForgeRefused, match="no pull request 2"):
        forge.pull_details(2)


def test_creating_again_finds_the_open_one_and_brings_it_up_to_date(bare: Path) -> None:
    forge = LocalForge(str(bare))
    first = forge.open_or_update_pull(proposal("topic", grow(bare, "topic"), draft=True)).pull_request
    newer = grow(bare, "topic")
    again = forge.open_or_update_pull(proposal("topic", newer, "feat: better")).pull_request
    assert again.number == first.number == 1
    assert (again.title, again.draft) == ("feat: better", False)
    assert git(bare, "rev-parse", "refs/pull/1/head") == newer
    assert forge.find_open_pull("topic") == again
    assert forge.find_open_pull("other") is None
    assert len(forge.list_pulls()) == 1


def test_it_is_merged_when_its_head_is_in_the_base_and_a_new_one_gets_a_new_number(bare: Path) -> None:
    forge = LocalForge(str(bare))
    sha = grow(bare, "topic")
    forge.open_or_update_pull(proposal("topic", sha))
    git(bare, "update-ref", "refs/heads/main", sha)
    assert [state for _, state in forge.list_pulls()] == ["merged"]
    assert forge.find_open_pull("topic") is None
    assert forge.open_or_update_pull(proposal("topic", grow(bare, "topic"))).pull_request.number == 2
    assert [state for _, state in forge.list_pulls()] == ["merged", "open"]


def test_many_at_once_get_one_number_each_and_one_pull_request_a_head(bare: Path) -> None:
    heads = {f"topic-{n}": grow(bare, f"topic-{n}") for n in range(5)}
    with ThreadPoolExecutor(10) as pool:
        made = list(
            pool.map(
                lambda h: LocalForge(str(bare)).open_or_update_pull(proposal(h, heads[h])).pull_request,
                [*heads, *heads],
            )
        )
    assert sorted({pull.number for pull in made}) == [1, 2, 3, 4, 5]
    assert len(LocalForge(str(bare)).list_pulls()) == 5


def test_locks_of_a_killed_writer_do_not_stop_the_next_one(bare: Path) -> None:
    sha = grow(bare, "topic")
    (bare / "refs" / "pull" / "1").mkdir(parents=True)
    for name in ("head", "record"):
        (bare / "refs" / "pull" / "1" / f"{name}.lock").touch()
    assert LocalForge(str(bare)).open_or_update_pull(proposal("topic", sha)).pull_request.number == 1


def test_what_was_not_pushed_or_has_no_base_is_refused(bare: Path) -> None:
    forge = LocalForge(str(bare))
    with pytest.raises(ForgeRefused, match="push it first"):
        forge.open_or_update_pull(proposal("topic", "1" * 40))
    sha = grow(bare, "topic")
    git(bare, "update-ref", "-d", "refs/heads/main")
    with pytest.raises(ForgeRefused, match="base branch main"):
        forge.open_or_update_pull(proposal("topic", sha))
    assert forge.list_pulls() == []


def test_a_repository_that_is_away_is_worth_another_try(tmp_path: Path) -> None:
    with pytest.raises(ForgeUnavailable):
        LocalForge(str(tmp_path / "gone.git")).find_open_pull("topic")


def test_a_working_repository_can_be_the_origin(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "here")
    here = tmp_path / "here"
    git(here, "commit", "-q", "--allow-empty", "-m", "first")
    sha = grow(here, "topic")
    assert LocalForge(str(here)).open_or_update_pull(proposal("topic", sha)).pull_request.number == 1


def test_only_local_origins_have_this_forge(bare: Path) -> None:
    local: Forge | None = Forges().forge(str(bare))
    assert isinstance(local, LocalForge)
    assert isinstance(Forges().forge(f"file://{bare}"), LocalForge)
    assert not isinstance(Forges().forge("https://github.com/me/durations"), LocalForge)
    assert Forges().forge("https://gitlab.com/me/durations") is None
    assert Forges().forge("git@gitlab.com:me/durations.git") is None


def test_a_linked_worktree_has_the_branches_of_the_repository_it_belongs_to(bare: Path, tmp_path: Path) -> None:
    """Its own git directory has a HEAD and an index, nothing else: a pull request was refused there at the very end."""
    git(bare, "worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "main")
    forge = LocalForge(str(tmp_path / "linked"))
    forge.check_access("main")
    sha = grow(bare, "perdure/d-1")
    assert forge.open_or_update_pull(proposal("perdure/d-1", sha)).pull_request.number == 1
    assert git(bare, "rev-parse", "refs/pull/1/head") == sha
    with pytest.raises(ForgeRefused, match="the base branch trunk is not there"):
        forge.check_access("trunk")


def test_an_existing_branch_that_is_checked_out_is_told_before_anything_is_paid_for(bare: Path, tmp_path: Path) -> None:
    git(bare, "branch", "topic", "main")
    LocalForge(str(bare)).check_access("main", existing_branch="topic")
    elsewhere = tmp_path / "else where"
    git(bare, "worktree", "add", "-q", str(elsewhere), "topic")
    for path in (bare, elsewhere):
        LocalForge(str(path)).check_access("main")
        with pytest.raises(ForgeRefused, match=f"branch topic is checked out in {elsewhere}") as refused:
            LocalForge(str(path)).check_access("main", existing_branch="topic")
    assert refused.value.fix == f"git -C '{elsewhere}' switch --detach"
    git(elsewhere, "switch", "-q", "--detach")
    LocalForge(str(bare)).check_access("main", existing_branch="topic")
    git(elsewhere, "switch", "-q", "topic")
    shutil.rmtree(elsewhere)
    with pytest.raises(ForgeRefused, match=f"branch topic is checked out in {elsewhere}") as refused:
        LocalForge(str(bare)).check_access("main", existing_branch="topic")
    subprocess.run(refused.value.fix.partition(": ")[2], shell=True, check=True, timeout=10)
    LocalForge(str(bare)).check_access("main", existing_branch="topic")


@pytest.mark.parametrize("command", ["rebase", "bisect"])
@pytest.mark.parametrize("linked", [True, False])
def test_a_branch_of_which_a_rebase_or_bisection_goes_on_is_told_as_well(
    bare: Path, tmp_path: Path, command: str, linked: bool
) -> None:
    """Git refuses pushes to it, although `git worktree list` says that no branch is checked out there."""
    checkout, place = tmp_path / "checkout", tmp_path / "else where"
    git(tmp_path, "clone", "-q", str(bare), str(checkout))
    git(checkout, "remote", "remove", "origin")
    git(checkout, "branch", "topic")
    place = place if linked else checkout
    git(checkout, *(("worktree", "add", "-q", str(place), "topic") if linked else ("switch", "-q", "topic")))
    for number in (1, 2):
        git(place, "commit", "-q", "--allow-empty", "-m", f"commit {number}")
    stop = {"rebase": ["rebase", "-q", "--exec", "false", "HEAD^"], "bisect": ["bisect", "start", "HEAD", "HEAD^^"]}
    subprocess.run(["git", "-C", str(place), *stop[command]], capture_output=True, timeout=20, check=False)
    with pytest.raises(ForgeRefused, match=f"bisection of branch topic goes on in {place}") as refused:
        LocalForge(str(checkout)).check_access("main", existing_branch="topic")
    assert refused.value.fix == f"finish it: git -C {shell_word(place)} status"
    LocalForge(str(checkout)).check_access("main", existing_branch="other")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_repository_that_may_not_be_written_to_is_told_before_anything_is_paid_for(bare: Path) -> None:
    (bare / "objects").chmod(0o500)
    try:
        with pytest.raises(ForgeRefused, match="may not be written to"):
            LocalForge(str(bare)).check_access("main")
    finally:
        (bare / "objects").chmod(0o700)
