"""Commits brought onto another commit with words, authors and trailers; and conflicts seen before any has landed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.integration import landed_items, replay_commits
from perdure.adapters.git.landing import MAX_CONFLICTS, fetch_integration_branch, predict_conflicts
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.models.errors import ForgeRefused
from tests.repositories import git, make_origin

BRANCH = "perdure/night"


class Line:
    """A checkout that pushes to the origin; the vault fetches from there."""

    def __init__(self, home: Home, tmp_path: Path) -> None:
        self.origin = make_origin(tmp_path / "night.git", {"a.txt": b"one\ntwo\nthree\n", "b.txt": b"b\n"})
        self.path = tmp_path / "checkout"
        git(tmp_path, "clone", "-q", str(self.origin), str(self.path))
        self.vault = Vault.open_or_create(home, str(self.origin))
        self.base = git(self.path, "rev-parse", "HEAD")

    def commit(self, branch: str, file: str, text: str, message: str) -> str:
        if git(self.path, "branch", "--list", branch):
            git(self.path, "checkout", "-q", branch)
        else:
            git(self.path, "checkout", "-q", "-b", branch, self.base)
        (self.path / file).write_text(text)
        git(self.path, "add", "-A")
        author = "Ada <ada@example.org>"
        git(self.path, "commit", "-q", "--author", author, "--date", "2026-01-02T03:04:05+0200", "-m", message)
        return self.pushed(branch)

    def pushed(self, branch: str, at: str = "HEAD") -> str:
        git(self.path, "push", "-q", "-f", "origin", f"{at}:refs/heads/{branch}")
        tip = self.vault.fetch_branch(branch)
        assert tip is not None
        return tip

    def item(self, name: str, file: str, text: str) -> str:
        words = f"feat: {name}\n\nwhy\n\nPerdure-Delivery: k-{name}\nPerdure-Backlog: night\nPerdure-Item: {name}"
        return self.commit(BRANCH, file, text, words)

    def shown(self, commit: str, path: str) -> str:
        return git(self.vault.path, "show", f"{commit}:{path}")


@pytest.fixture
def line(home: Home, tmp_path: Path) -> Line:
    return Line(home, tmp_path)


def test_commits_follow_in_order_with_their_words_authors_and_trailers(line: Line) -> None:
    api = line.item("api", "a.txt", "ONE\ntwo\nthree\n")
    page = line.item("page", "c.txt", "page\n")
    base = line.commit("main", "b.txt", "moved\n", "somebody's")
    made = replay_commits(line.vault, page, base, line.base)
    assert (made.commits, made.problem) == (2, "")
    assert replay_commits(line.vault, page, base, line.base) == made, "an attempt that died is the same again"
    format = "--format=%an %ae %ai %cn %s %B"
    told, before = (
        git(line.vault.path, "log", format, tip, f"^{under}") for tip, under in ((made.head, base), (page, base))
    )
    assert told == before
    assert [line.shown(made.head, name) for name in ("a.txt", "b.txt", "c.txt")] == ["ONE\ntwo\nthree", "moved", "page"]
    parents = git(line.vault.path, "log", "--format=%P", made.head, f"^{base}").splitlines()
    assert parents[-1] == base
    found = landed_items(line.vault, made.head, base, "night")
    assert sorted(found) == ["api", "page"]
    assert found["page"] == made.head
    assert api not in found.values()
    assert landed_items(line.vault, made.head, base, "day") == {}
    git(line.vault.path, "fsck", "--strict", "--no-dangling")


def test_a_conflict_names_the_item_and_the_files_and_moves_nothing(line: Line) -> None:
    line.item("page", "c.txt", "page\n")
    api = line.item("api", "a.txt", "one\n2\nthree\n")
    base = line.commit("main", "a.txt", "one\nTWO\nthree\n", "somebody's")
    made = replay_commits(line.vault, api, base, line.base)
    assert made.head == ""
    assert made.problem == f'api ("feat: api", {api[:7]}) conflicts in a.txt'


def test_a_merge_on_the_branch_is_named_and_not_flattened(line: Line) -> None:
    line.item("api", "c.txt", "api\n")
    line.commit("hers", "d.txt", "hers\n", "hers")
    git(line.path, "checkout", "-q", BRANCH)
    git(line.path, "merge", "-q", "--no-ff", "-m", "a merge", "hers")
    head = line.pushed(BRANCH)
    base = line.commit("main", "b.txt", "moved\n", "somebody's")
    assert "is a merge" in replay_commits(line.vault, head, base, line.base).problem


def test_what_the_base_has_by_now_stays_as_an_empty_commit_of_its_item(line: Line) -> None:
    api = line.item("api", "c.txt", "api\n")
    base = line.commit("main", "c.txt", "api\n", "squashed by a person")
    made = replay_commits(line.vault, api, base, line.base)
    assert made.head not in ("", base)
    assert line.vault.tree_of(made.head) == line.vault.tree_of(base)
    assert landed_items(line.vault, made.head, base, "night") == {"api": made.head}


def test_a_commit_counts_as_landed_still_as_the_one_it_became(line: Line) -> None:
    api = line.item("api", "c.txt", "api\n")
    base = line.commit("main", "b.txt", "moved\n", "somebody's")
    made = replay_commits(line.vault, api, base, line.base)
    git(line.path, "fetch", "-q", str(line.vault.path), f"{made.head}:refs/heads/made")
    assert line.pushed(BRANCH, "made") == made.head
    assert fetch_integration_branch(line.vault, BRANCH, api) == made.head
    line.pushed(BRANCH, base)
    with pytest.raises(ForgeRefused, match="was put back"):
        fetch_integration_branch(line.vault, BRANCH, api)


FILES: dict[str, bytes] = {"app.py": b"one\ntwo\nthree\n", "other.py": b"1\n", "landed.py": b"a\n"}


class Fleet:
    """Open deliveries of one repository, each with the commit that it made."""

    def __init__(self, home: Home, vault: Vault, base: str) -> None:
        self.home, self.vault, self.base = home, vault, base
        self.open: dict[str, Workspace] = {}

    def commit(self, script: str, onto: str = "") -> str:
        at = self.home.root / "at"
        if not at.exists():
            git(self.home.root, "clone", "-q", str(self.vault.url), str(at))
        git(at, "fetch", "-q", str(self.vault.path), "+refs/*:refs/tests/*")
        git(at, "checkout", "-qf", "--detach", onto or self.base)
        git(at, "-c", f'alias.do=!cd "{at}" && {script}', "do")
        git(at, "add", "-A")
        git(at, "commit", "-q", "-m", script[:40])
        made = git(at, "rev-parse", "HEAD")
        git(self.vault.path, "fetch", "-q", str(at), f"{made}:refs/tests/{made}")
        return made

    def delivery(self, name: str, script: str, onto: str = "") -> str:
        self.open[name] = Workspace.create(self.home, self.vault, name, onto or self.base)
        made = self.commit(script, onto)
        self.vault.move_ref(f"refs/heads/perdure/{name}", made, None)
        return made


@pytest.fixture
def fleet(home: Home, tmp_path: Path) -> Fleet:
    vault = Vault.open_or_create(home, str(make_origin(tmp_path / "night.git", FILES)))
    _, base = vault.fetch()
    return Fleet(home, vault, base)


def test_an_open_delivery_that_changes_the_same_lines_is_named_with_the_path(fleet: Fleet) -> None:
    fleet.delivery("night-page-1", "sed -i s/two/2/ app.py")
    fleet.delivery("night-docs-2", "echo 2 >>other.py")
    fleet.open["night-none-3"] = Workspace.create(fleet.home, fleet.vault, "night-none-3", fleet.base)
    mine = fleet.delivery("night-api-4", "sed -i s/two/TWO/ app.py")
    assert predict_conflicts(fleet.open["night-api-4"], mine, "night") == {"night-page-1": "app.py"}
    fleet.open["night-page-1"].mark_ended()
    assert predict_conflicts(fleet.open["night-api-4"], mine, "night") == {}, "what has ended is nobody's conflict"


def test_what_landed_between_two_of_them_is_not_laid_on_the_other_one(fleet: Fleet) -> None:
    mine = fleet.delivery("night-api-1", "echo mine >landed.py")
    landed = fleet.commit("echo landed >landed.py")
    fleet.delivery("night-page-2", "echo 2 >>other.py", landed)
    assert predict_conflicts(fleet.open["night-api-1"], mine, "night") == {}


def test_few_are_named_those_of_the_same_backlog_first_and_broken_records_are_passed_over(fleet: Fleet) -> None:
    for number in range(MAX_CONFLICTS + 2):
        fleet.delivery(f"zebra-{number}" if number > 1 else f"alone-{number}", f"echo {number} >app.py")
    mine = fleet.delivery("zebra-me", "echo me >app.py")
    (fleet.home.workspace("zebra-2") / "record.json").write_text("{")
    found = predict_conflicts(fleet.open["zebra-me"], mine, "zebra")
    assert list(found) == ["zebra-3", "zebra-4", "alone-0"]
