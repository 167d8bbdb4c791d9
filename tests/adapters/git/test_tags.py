"""Tags in the vault: those of commits that it has, as the remote has them now."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.remote import REFUSED_REF_NAME
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused
from tests.repositories import git


def tagged(origin: Path) -> dict[str, str]:
    lines = git(origin, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/tags/").splitlines()
    return dict(line.split(" ") for line in lines)


def test_tags_follow_the_remote_when_they_are_added_moved_and_deleted(vault: Vault, origin: Path) -> None:
    git(origin, "tag", "light")
    git(origin, "tag", "-a", "v1", "-m", "one")
    git(origin, "tag", "-a", "deep/er", "-m", "one")
    assert vault.reachable_tags(vault.fetch()[1]) == tagged(origin)
    git(origin, "tag", "-f", "-a", "v1", "-m", "moved")
    git(origin, "tag", "-d", "deep/er")
    git(origin, "tag", "deep")
    assert vault.reachable_tags(vault.fetch()[1]) == tagged(origin)
    assert "deep" in tagged(origin)


def test_tags_of_other_branches_are_neither_fetched_nor_shown(home: Home, vault: Vault, origin: Path) -> None:
    later = origin.with_name("later")
    git(origin.parent, "clone", "-q", str(origin), str(later))
    git(later, "checkout", "-q", "-b", "internal")
    git(later, "commit", "-q", "--allow-empty", "-m", "internal secret-7d1f")
    git(later, "tag", "-a", "internal-1", "-m", "secret-7d1f")
    git(later, "tag", "of-a-blob", git(later, "rev-parse", "HEAD:README.md"))
    git(later, "push", "-q", "origin", "internal", "internal-1", "of-a-blob")
    git(origin, "tag", "v1", "main")
    name, base = vault.fetch()
    assert vault.reachable_tags(base) == {"v1": base}
    assert "secret" not in vault.git.text("cat-file", "--batch-all-objects", "--batch")
    vault.fetch("internal")  # now the vault has them, and deliveries from main still see their own
    assert set(vault.reachable_tags(base)) == {"v1"}
    shown = update_view(Workspace.create(home, vault, "demo-1", base), name, base, "perdure/demo-1")
    assert git(shown.view_path, "tag") == "v1"


def test_a_tag_cannot_be_taken_for_a_branch_or_a_commit(home: Home, vault: Vault, origin: Path) -> None:
    base = vault.fetch()[1]
    later = origin.with_name("later")
    git(origin.parent, "clone", "-q", str(origin), str(later))
    git(later, "commit", "-q", "--allow-empty", "-m", "more")
    git(later, "push", "-q", "origin", "main")
    for name in ("main", "HEAD", base, "refs/heads/main", "origin/main", "v 1".replace(" ", "'")):
        git(origin, "update-ref", f"refs/tags/{name}", base)
    moved = vault.fetch()[1]
    assert len(vault.reachable_tags(moved)) == 6
    assert moved == git(origin, "rev-parse", "refs/heads/main")
    assert vault.git.text("rev-parse", "--verify", base) == base
    assert Workspace.create(home, vault, "demo-1", moved).find_problems() == []


@pytest.mark.parametrize("kind", ["shallow", "partial"])
def test_a_clone_that_is_not_whole_is_refused_with_what_is_missing(home: Home, origin: Path, kind: str) -> None:
    later, clone = origin.with_name("later"), origin.with_name("clone.git")
    git(origin.parent, "clone", "-q", str(origin), str(later))
    (later / "README.md").write_text("new\n")
    git(later, "commit", "-qam", "second")
    git(later, "push", "-q", "origin", "main")
    git(origin, "config", "uploadpack.allowFilter", "true")
    how = ("--depth=1",) if kind == "shallow" else ("--filter=blob:none",)
    git(origin.parent, "clone", "-q", "--bare", *how, f"file://{origin}", str(clone))
    for url in (str(clone), f"file://{clone}"):
        with pytest.raises(ForgeRefused, match=f"^the repository is a {kind} clone, in which .* are missing") as caught:
            Vault.open_or_create(home, url).fetch()
        assert "name the repository that it was cloned from" in caught.value.fix
        assert f"git -C {clone} fetch" in caught.value.fix
    subprocess.run(caught.value.fix.partition("or: ")[2], shell=True, check=True, capture_output=True, timeout=20)
    assert Vault.open_or_create(home, str(clone)).fetch()[1] == git(origin, "rev-parse", "main")


def test_a_thousand_tags_cost_a_fetch_little(vault: Vault, origin: Path) -> None:
    base = git(origin, "rev-parse", "main")
    git(origin, "update-ref", "--stdin", stdin="".join(f"create refs/tags/v{n} {base}\n" for n in range(1000)))
    started = time.monotonic()
    assert len(vault.reachable_tags(vault.fetch()[1])) == 1000
    first = time.monotonic()
    vault.fetch()
    assert (first - started, time.monotonic() - first) < (20, 5)


@pytest.mark.parametrize(
    "name",
    ["../../../../etc/x", "a/../b", ".hidden", "a/.b", "a.lock", "a.lock/b", "a b", "a\tb", "a..b", "a@{b", "a~1", "a^",
     "a:b", "a?", "a*", "a[b", "a\\b", "a/", "/a", "a//b", "a.", "\x7f", "v1.2.3", "deep/er", "ü-1", "@", "v1+build"],
)  # fmt: skip
def test_a_name_that_git_refuses_is_no_tag(name: str) -> None:
    """A remote may say anything, and a ref is a file of the vault."""
    done = subprocess.run(["git", "check-ref-format", f"refs/tags/{name}"], timeout=10, check=False)
    assert (REFUSED_REF_NAME.search(name) is None) == (done.returncode == 0)
