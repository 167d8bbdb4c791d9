"""A change is brought onto a branch that others land on, whatever became of its files there; and that branch is moved
by compare-and-swap, or left where somebody else has put it."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from perdure.adapters.git.landing import (
    SINCE_BYTES,
    conflicting_paths,
    describe_landed,
    fetch_integration_branch,
    find_landed,
    land_on_remote,
    merge_change_onto,
)
from perdure.adapters.git.remote import remote_tip
from perdure.adapters.git.vault import Vault
from perdure.adapters.system.home import Home
from perdure.models.errors import Diverged, ForgeRefused
from tests.repositories import git, make_origin
from tests.waiting import patient

BRANCH = "perdure/night"
BASE: dict[str, bytes] = {
    "a.txt": b"one\ntwo\nthree\n",
    "b.bin": b"\0b",
    "gone.txt": b"g\n",
    "moved.txt": b"m1\nm2\nm3\nm4\n",
    "run.sh": b"#!/bin/sh\n",
}
TRAILERS = {"Perdure-Delivery": "night-api", "Perdure-Backlog": "night", "Perdure-Item": "api"}


class Sides:
    """A checkout beside the vault, whose commits the vault has."""

    def __init__(self, vault: Vault, root: Path) -> None:
        self.vault, self.path = vault, root / "sides"
        git(root, "clone", "-q", str(vault.url), str(self.path))
        git(self.path, "checkout", "-q", "--detach")
        self.base = self.at("HEAD")

    def at(self, ref: str) -> str:
        return git(self.path, "rev-parse", ref)

    def side(self, script: str, begins: str = "") -> str:
        """A commit of what a shell makes of the base's files, known to the vault."""
        git(self.path, "checkout", "-qf", "--detach", begins or self.base)
        git(self.path, "clean", "-ffdqx")
        git(self.path, "-c", f'alias.do=!cd "{self.path}" && {script}', "do")
        git(self.path, "add", "-A")
        git(self.path, "commit", "-q", "--allow-empty", "-m", script.partition("\n")[0][:60])
        return self.known(self.at("HEAD"))

    def known(self, commit: str) -> str:
        git(self.vault.path, "fetch", "-q", str(self.path), f"{commit}:refs/tests/{commit}")
        return commit

    def shown(self, tree: str, path: str) -> str:
        return git(self.vault.path, "show", f"{tree}:{path}")


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    origin = make_origin(tmp_path / "night.git", BASE)
    git(origin, "branch", BRANCH, "main")
    return origin


@pytest.fixture
def sides(home: Home, origin: Path, tmp_path: Path) -> Sides:
    vault = Vault.open_or_create(home, str(origin))
    vault.fetch()
    return Sides(vault, tmp_path)


CLEAN = [
    ("echo x >new.txt", "echo y >other.txt", {"new.txt": "x", "other.txt": "y"}),
    ("git mv moved.txt here.txt", "sed -i s/m4/M4/ moved.txt", {"here.txt": "m1\nm2\nm3\nM4"}),
    ("chmod +x run.sh", "echo true >>run.sh", {"run.sh": "#!/bin/sh\ntrue"}),
    ("rm gone.txt", "rm gone.txt", None),
    ("ln -s a.txt link", "ln -s a.txt link", {"link": "a.txt"}),
    ("printf '\\0c' >b.bin", "printf '\\0c' >b.bin", None),
]


@pytest.mark.parametrize(("landed", "change", "holds"), CLEAN)
def test_sides_that_go_together_become_one_tree(
    sides: Sides, landed: str, change: str, holds: dict[str, str] | None
) -> None:
    onto, head = sides.side(landed), sides.side(change)
    made = merge_change_onto(sides.vault, sides.base, onto, head)
    assert (made.conflicts, made.messages) == ((), ())
    for path, text in (holds or {}).items():
        assert sides.shown(made.tree, path) == text
    if "chmod" in landed:
        assert git(sides.vault.path, "ls-tree", made.tree, "run.sh").startswith("100755")
    assert conflicting_paths(sides.vault, onto, head) == ()


CONFLICTS = [
    ("sed -i s/two/TWO/ a.txt", "sed -i s/two/2/ a.txt", ("a.txt",), "content"),
    ("printf '\\0x' >b.bin", "printf '\\0y' >b.bin", ("b.bin",), "content"),
    ("echo x >same", "echo y >same", ("same",), "add/add"),
    ("rm gone.txt", "echo more >>gone.txt", ("gone.txt",), "modify/delete"),
    ("echo more >>gone.txt", "rm gone.txt", ("gone.txt",), "modify/delete"),
    ("git mv moved.txt x.txt", "git mv moved.txt y.txt", ("moved.txt", "x.txt", "y.txt"), "rename/rename"),
    ("git mv moved.txt x.txt", "git rm -q moved.txt", ("x.txt",), "rename/delete"),
    ("ln -s a link", "ln -s b link", ("link",), "add/add"),
    ("rm a.txt && ln -s b a.txt", "echo 4 >>a.txt", None, "distinct types"),
    ("rm a.txt && mkdir a.txt && echo x >a.txt/x", "echo 4 >>a.txt", None, "file/directory"),
    (
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub && mkdir -p sub",
        "echo x >sub",
        None,
        "distinct types",
    ),
]


@pytest.mark.parametrize(("landed", "change", "paths", "kind"), CONFLICTS)
def test_sides_that_do_not_are_named_path_by_path_and_nothing_of_either_is_lost_silently(
    sides: Sides, landed: str, change: str, paths: tuple[str, ...] | None, kind: str
) -> None:
    onto, head = sides.side(landed), sides.side(change)
    made = merge_change_onto(sides.vault, sides.base, onto, head)
    assert made.conflicts
    if paths is not None:
        assert tuple(sorted(made.conflicts)) == paths
    assert any(kind in words for words in made.messages), made.messages
    assert git(sides.vault.path, "cat-file", "-t", made.tree) == "tree"
    assert len(conflicting_paths(sides.vault, onto, head)) == len(made.conflicts)
    assert not any(sides.base in words or onto in words for words in made.messages), "sides have names, not numbers"


def test_marks_name_both_sides_and_show_what_they_began_from(sides: Sides) -> None:
    onto, head = sides.side("sed -i s/two/TWO/ a.txt"), sides.side("sed -i s/two/2/ a.txt")
    lines = sides.shown(merge_change_onto(sides.vault, sides.base, onto, head).tree, "a.txt").splitlines()
    assert lines[:3] == ["one", "<<<<<<< landed", "TWO"]
    assert lines[3].startswith("||||||| ")
    assert lines[4:] == ["two", "=======", "2", ">>>>>>> this-delivery", "three"]


def test_a_criss_cross_and_an_unrelated_history_are_told_apart_by_the_base_alone(sides: Sides) -> None:
    ours, theirs = sides.side("echo 1 >x"), sides.side("echo 2 >y")
    git(sides.path, "checkout", "-qf", "--detach", ours)
    git(sides.path, "merge", "-q", "-m", "a", theirs)
    one = sides.known(sides.at("HEAD"))
    git(sides.path, "checkout", "-qf", "--detach", theirs)
    git(sides.path, "merge", "-q", "-m", "b", ours)
    onto = sides.side("sed -i s/two/TWO/ a.txt", sides.known(sides.at("HEAD")))
    head = sides.side("echo 4 >>a.txt && sed -i s/one/ONE/ a.txt && rm gone.txt", one)
    made = merge_change_onto(sides.vault, one, onto, head)
    assert made.conflicts == ("a.txt",)
    alone = sides.known(git(sides.path, "commit-tree", "-m", "alone", f"{onto}^{{tree}}"))
    assert merge_change_onto(sides.vault, one, alone, head).tree == made.tree
    assert conflicting_paths(sides.vault, alone, head)
    assert conflicting_paths(sides.vault, alone, "f" * 40) == (), "nobody can tell about what is not here"


def test_only_the_deliverys_own_change_comes_along(sides: Sides) -> None:
    """It began on a newer commit of the base than the integration branch has."""
    newer = sides.side("echo not ours >newer.txt")
    head, onto = sides.side("echo ours >ours.txt", newer), sides.side("echo landed >landed.txt")
    made = merge_change_onto(sides.vault, newer, onto, head)
    names = git(sides.vault.path, "ls-tree", "--name-only", made.tree).splitlines()
    assert "ours.txt" in names
    assert "landed.txt" in names
    assert "newer.txt" not in names


def test_attributes_and_drivers_of_a_repository_start_nothing_and_decide_nothing(sides: Sides, tmp_path: Path) -> None:
    begun = sides.side("echo 'a.txt merge=union\n* merge=evil filter=evil' >.gitattributes")
    git(sides.vault.path, "config", "merge.evil.driver", f"touch {tmp_path}/started; true")
    onto, head = sides.side("sed -i s/two/TWO/ a.txt", begun), sides.side("sed -i s/two/2/ a.txt", begun)
    assert merge_change_onto(sides.vault, begun, onto, head).conflicts == ("a.txt",)
    assert not (tmp_path / "started").exists()


def landing(sides: Sides, onto: str, name: str, trailers: dict[str, str] | None = None) -> str:
    lines = "\n".join(f"{key}: {value}" for key, value in (trailers or {}).items())
    return sides.vault.objects.write_commit(sides.vault.tree_of(onto), [onto], f"feat: {name}\n\n{lines}")


def test_of_two_who_push_at_once_one_lands_and_the_other_is_told_where_the_branch_is(sides: Sides) -> None:
    made = [landing(sides, sides.base, name) for name in ("api", "web")]
    ended: dict[str, str] = {}
    gate = threading.Barrier(2)

    def push(commit: str) -> None:
        gate.wait(timeout=patient(30))
        ended[commit] = land_on_remote(sides.vault, BRANCH, sides.base, commit)

    threads = [threading.Thread(target=push, args=(commit,)) for commit in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    tip = remote_tip(sides.vault.url, BRANCH)
    assert tip in made
    assert set(ended.values()) == {tip}, "both say the same, and only one of them means itself"
    assert land_on_remote(sides.vault, BRANCH, sides.base, tip) == tip, "killed before it could say so"


def test_a_push_that_is_refused_is_no_move_of_somebody_else(sides: Sides, origin: Path) -> None:
    hook = origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'this branch is frozen' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(ForgeRefused, match="this branch is frozen"):
        land_on_remote(sides.vault, BRANCH, sides.base, landing(sides, sides.base, "api"))
    hook.write_text(
        f"#!/bin/sh\ngit update-ref refs/heads/{BRANCH} {landing(sides, sides.base, 'hers')} || true\nexit 1\n"
    )
    hook.unlink()
    git(origin, "symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    with pytest.raises(ForgeRefused, match="is the default branch: nobody lands there"):
        land_on_remote(sides.vault, BRANCH, sides.base, landing(sides, sides.base, "api"))
    assert remote_tip(sides.vault.url, BRANCH) == sides.base


def test_somebody_who_is_faster_than_the_push_is_not_overwritten(sides: Sides, origin: Path) -> None:
    hers = git(origin, "commit-tree", "-p", "main", "-m", "hers", "main^{tree}")
    hook = origin / "hooks" / "pre-receive"  # between the look and the push
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        "#!/bin/sh\nunset GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES\n"
        f"git -C '{origin}' update-ref refs/heads/{BRANCH} {hers}\n"
    )
    hook.chmod(0o755)
    assert land_on_remote(sides.vault, BRANCH, sides.base, landing(sides, sides.base, "api")) == hers
    assert remote_tip(sides.vault.url, BRANCH) == hers


def test_only_a_child_of_the_branchs_head_can_land(sides: Sides) -> None:
    two = landing(sides, landing(sides, sides.base, "a"), "b")
    with pytest.raises(Diverged, match="does not follow"):
        land_on_remote(sides.vault, BRANCH, sides.base, two)


def test_a_branch_that_was_put_back_is_refused_and_says_what_is_missing(sides: Sides, origin: Path) -> None:
    commit = landing(sides, sides.base, "api")
    land_on_remote(sides.vault, BRANCH, sides.base, commit)
    assert fetch_integration_branch(sides.vault, BRANCH, commit) == commit
    git(origin, "update-ref", f"refs/heads/{BRANCH}", "main")
    assert fetch_integration_branch(sides.vault, BRANCH) == sides.base
    with pytest.raises(
        ForgeRefused, match=f"was put back: it is at {sides.base[:12]}, without {commit[:12]}"
    ) as refused:
        fetch_integration_branch(sides.vault, BRANCH, commit)
    said, typed = refused.value.fix.split("\n")
    assert said == f"nothing was overwritten; bring {commit[:12]} back, then retry:"
    subprocess.run(["/bin/sh", "-c", typed], check=True, capture_output=True, timeout=60)
    assert fetch_integration_branch(sides.vault, BRANCH, commit) == commit
    git(origin, "update-ref", "-d", f"refs/heads/{BRANCH}")
    with pytest.raises(ForgeRefused, match="is not on the remote any more"):
        fetch_integration_branch(sides.vault, BRANCH, commit)
    with pytest.raises(ForgeRefused, match="is not on the remote any more"):
        land_on_remote(sides.vault, BRANCH, commit, landing(sides, commit, "x"))


def test_a_commit_that_has_landed_is_known_by_all_its_trailers_and_the_oldest_counts(sides: Sides) -> None:
    other = landing(sides, sides.base, "web", {**TRAILERS, "Perdure-Item": "web"})
    text = "feat: x\n\nIt says\nPerdure-Delivery: night-api\nin its text.\n\nAnd goes on."
    quoted = sides.vault.objects.write_commit(sides.vault.tree_of(other), [other], text)
    ours = landing(sides, quoted, "api", {**TRAILERS, "Signed-off-by": "Perdure <p@localhost>"})
    again = landing(sides, ours, "api", TRAILERS)
    assert find_landed(sides.vault, sides.base, again, TRAILERS) == ours
    assert find_landed(sides.vault, sides.base, quoted, TRAILERS) == ""
    assert find_landed(sides.vault, ours, ours, TRAILERS) == ""
    assert find_landed(sides.vault, other, again, {**TRAILERS, "Perdure-Backlog": "day"}) == ""


def test_an_agent_is_told_what_landed_conflicts_first_and_no_more_than_it_can_read(sides: Sides) -> None:
    large = "yes a long line of some forty characters, at least | head -3000 >large.txt"
    onto = sides.side(f"sed -i s/two/TWO/ a.txt && {large} && echo x >A-first.txt")
    head = sides.side("sed -i s/two/2/ a.txt")
    told = describe_landed(
        sides.vault, sides.base, onto, BRANCH, merge_change_onto(sides.vault, sides.base, onto, head)
    )
    assert len(told) < SINCE_BYTES + 5000
    assert told.index("In conflict:\n- a.txt") < told.index("Landed since:") < told.index("-two\n+TWO")
    assert told.index("-two\n+TWO") < told.index("A-first.txt")
    assert "not shown here:\n- large.txt" in told
    assert f"{onto[:7]} sed -i" in told
