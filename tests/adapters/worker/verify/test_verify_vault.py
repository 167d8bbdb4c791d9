"""What the vault holds of a delivery is read again, object by object: holes, strangers and differences are facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.git import checkpoint as cp
from perdure.adapters.git import publish
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.worker.verify import (
    checkpoint_facts,
    checkpoints_to,
    commit_facts,
    commits_between,
    is_kept,
    missing_object,
    start_differences,
    turn_usages,
)
from perdure.models.budget.ledger import Usage
from perdure.models.delivery.verify import CheckpointFact, CommitFact
from perdure.models.limits import VERIFY_PAGE
from tests.repositories import CALC, git, make_target

KEY = "calc-sub"
TRAILERS = f"\n\nPerdure-Delivery: {KEY}\nPerdure-Step: implement/1\n"


class Bench:
    """A workspace and what was made in it; `first` is prepare's checkpoint."""

    def __init__(self, home: Home, origin: Path, filters: tuple[str, ...] = ()) -> None:
        self.vault = Vault.open_or_create(home, str(origin), filters=filters)
        _, self.base = self.vault.fetch()
        self.workspace = Workspace.create(home, self.vault, KEY, self.base)
        self.first = cp.snapshot_worktree(
            self.workspace, parent=None, turn={"delivery": KEY, "step": "prepare"}, transcript=[], changed=True
        )

    def write(self, name: str, data: bytes) -> None:
        (self.workspace.path / name).write_bytes(data)

    def turn(self, parent: str, number: int, cost: float = 0.1) -> str:
        usage = Usage(input_tokens=number, cost_usd=cost).model_dump(mode="json")
        told: dict[str, Any] = {"delivery": KEY, "step": "implement", "attempt": 1, "turn": number}
        return cp.snapshot_worktree(
            self.workspace, parent=parent, turn={**told, "result": {"summary": "x", "usage": usage}}, transcript=[]
        )

    def commit(self, checkpoint: str, parent: str = "", message: str = "feat: x" + TRAILERS) -> str:
        made, _ = publish.commit_checkpoint(
            self.workspace, checkpoint=checkpoint, parent=parent or self.base, message=message
        )
        return made

    def facts(self, head: str, at: str) -> tuple[CommitFact, ...]:
        """Of all commits up to `head`, which was made from the checkpoint `at`."""
        return commit_facts(self.vault, commits_between(self.vault, self.base, head), self.base, {head: at}, self.first)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Home(tmp_path / "home"), make_target(tmp_path / "calc.git"))


def test_the_way_to_a_checkpoint_is_told_turn_by_turn_from_prepares(bench: Bench) -> None:
    second = bench.turn(bench.first, 1)
    bench.write("calc.py", b"x = 1\n")
    third = bench.turn(second, 2)
    way, broken = checkpoints_to(bench.vault, third)
    assert (way, broken) == ([bench.first, second, third], "")
    assert missing_object(bench.vault, third) == ""
    assert checkpoint_facts(bench.vault, way, 0) == (
        CheckpointFact(commit=bench.first, delivery=KEY, step="prepare"),
        CheckpointFact(commit=second, delivery=KEY, step="implement", attempt=1, turn=1),
        CheckpointFact(commit=third, delivery=KEY, step="implement", attempt=1, turn=2),
    )
    assert [(name, usage.input_tokens) for name, usage in turn_usages(bench.vault, way)] == [
        ("implement 1, turn 1", 1),
        ("implement 1, turn 2", 2),
    ]


def test_a_long_way_comes_in_pages(bench: Bench) -> None:
    way = [bench.first] * (VERIFY_PAGE + 1)
    assert [len(checkpoint_facts(bench.vault, way, offset)) for offset in (0, VERIFY_PAGE)] == [VERIFY_PAGE, 1]


@pytest.mark.parametrize("what", ["~1", "~1:turn.json", ":tree/calc.py"])
def test_a_hole_anywhere_below_the_last_checkpoint_is_found(bench: Bench, what: str) -> None:
    bench.write("calc.py", b"x = 1\n")
    tip = bench.turn(bench.turn(bench.first, 1), 2)
    assert missing_object(bench.vault, tip) == ""
    sha = git(bench.vault.path, "rev-parse", f"{tip}{what}")
    (bench.vault.path / "objects" / sha[:2] / sha[2:]).unlink()
    assert missing_object(bench.vault, tip) != ""
    assert (checkpoints_to(bench.vault, tip)[1] != "") == (what == "~1"), "all others are on the way all the same"


def test_a_checkpoint_that_was_never_here_is_said_to_be_missing(bench: Bench) -> None:
    assert checkpoints_to(bench.vault, "f" * 40) == ([], "checkpoint ffffffffffff is not in the vault")
    assert checkpoints_to(bench.vault, "")[1] != ""


def test_a_checkpoint_is_held_while_a_ref_of_its_own_delivery_contains_it(bench: Bench) -> None:
    tip = bench.turn(bench.first, 1)
    assert not is_kept(bench.vault, KEY, tip)
    bench.vault.move_ref("refs/perdure/other/run", tip, None)
    assert not is_kept(bench.vault, KEY, tip), "another delivery's ref will go when that one does"
    bench.vault.move_ref(f"refs/perdure/{KEY}/run", bench.turn(tip, 2), None)
    assert is_kept(bench.vault, KEY, tip)


def test_a_first_checkpoint_of_other_files_than_the_bases_is_told(bench: Bench) -> None:
    assert start_differences(bench.vault, bench.base, bench.first) == ()
    bench.write("README.rst", b"")
    bench.write("calc.py", b"")
    dirty = cp.snapshot_worktree(bench.workspace, parent=None, turn={"delivery": KEY, "step": "prepare"}, transcript=[])
    assert start_differences(bench.vault, bench.base, dirty) == ("README.rst", "calc.py")
    assert start_differences(bench.vault, bench.base, "f" * 40) is None


def test_a_commit_is_told_with_its_trailers_and_is_its_checkpoints_files(bench: Bench) -> None:
    bench.write("calc.py", b"x = 1\n")
    bench.write("new.py", b"y = 1\n")
    tip = bench.turn(bench.first, 1)
    made = bench.commit(tip)
    assert bench.facts(made, at=tip) == (
        CommitFact(commit=made, parents=(bench.base,), delivery=KEY, step="implement/1", checkpoint=True),
    )


@pytest.mark.parametrize("name", ["calc.py", "new.py"])
def test_a_file_that_a_commit_has_otherwise_than_its_checkpoint_is_named(bench: Bench, name: str) -> None:
    tip = bench.turn(bench.first, 1)
    bench.write(name, b"smuggled = 1\n")
    made = bench.commit(bench.turn(tip, 2))
    (fact,) = bench.facts(made, at=tip)
    assert fact.differs == (name,)


def test_a_file_that_only_the_checkpoint_has_changed_is_named(bench: Bench) -> None:
    bench.write("calc.py", b"x = 1\n")
    made = bench.commit(bench.turn(bench.first, 1))
    bench.write("new.py", b"y = 1\n")
    (fact,) = bench.facts(made, at=bench.turn(bench.first, 2))
    assert fact.differs == ("new.py",)


def test_line_ends_that_the_repository_asks_for_are_no_difference(tmp_path: Path) -> None:
    files = {"a.bat": "one\ntwo\n", "b.bat": "one\n", ".gitattributes": "*.bat text eol=crlf\n"}
    bench = Bench(Home(tmp_path / "home"), make_target(tmp_path / "crlf.git", files))
    assert (bench.workspace.path / "a.bat").read_bytes() == b"one\r\ntwo\r\n"
    bench.write("a.bat", b"one\r\n2\r\n")
    tip = bench.turn(bench.first, 1)
    made = bench.commit(tip)
    assert git(bench.vault.path, "cat-file", "blob", f"{made}:a.bat") == "one\n2", "git normalised it"
    (fact,) = bench.facts(made, at=tip)
    assert fact.differs == ()
    bench.write("a.bat", b"one\r\n3\r\n")
    (fact,) = bench.facts(made, at=bench.turn(tip, 2))
    assert fact.differs == ("a.bat",)


def test_a_checkpoint_whose_files_are_gone_is_no_checkpoint_of_a_commit(bench: Bench) -> None:
    bench.write("calc.py", b"x = 1\n")
    tip = bench.turn(bench.first, 1)
    made = bench.commit(tip)
    tree = git(bench.vault.path, "rev-parse", f"{tip}:tree")
    (bench.vault.path / "objects" / tree[:2] / tree[2:]).unlink()
    (fact,) = bench.facts(made, at=tip)
    assert not fact.checkpoint


def test_commits_that_nobody_recorded_and_merges_are_told_with_the_others(bench: Bench) -> None:
    bench.write("calc.py", b"x = 1\n")
    tip = bench.turn(bench.first, 1)
    ours = bench.commit(tip)
    tree = git(bench.vault.path, "rev-parse", f"{ours}^{{tree}}")
    smuggled = git(bench.vault.path, "commit-tree", "-p", bench.base, "-m", "side", tree)
    merge = git(bench.vault.path, "commit-tree", "-p", ours, "-p", smuggled, "-m", "merge", tree)
    listed = commits_between(bench.vault, bench.base, merge)
    facts = {fact.commit: fact for fact in commit_facts(bench.vault, listed, bench.base, {ours: tip}, bench.first)}
    assert facts.keys() == {ours, smuggled, merge}
    assert (facts[ours].delivery, facts[smuggled].delivery, facts[merge].delivery) == (KEY, "", "")
    assert not facts[smuggled].checkpoint
    assert facts[merge].parents == (ours, smuggled)


def test_a_delivery_is_verified_although_a_filter_runs_since_that_did_not_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind in ("clean", "smudge"):
        git(tmp_path, "config", "--file", ".gitconfig", f"filter.rot13.{kind}", "tr a-zA-Z n-za-mN-ZA-M")
    files = {**CALC, ".gitattributes": "*.rot filter=rot13\n", "a.rot": "frperg\n", "b.rot": "x\n"}
    home, origin = Home(tmp_path / "home"), make_target(tmp_path / "calc.git", files)
    bench = Bench(home, origin)
    bench.write("a.rot", b"changed\n")
    bench.write("calc.py", b"changed\n")
    made = bench.commit(at := bench.turn(bench.first, 1))
    for filters in ((), ("rot13",)):
        vault = Vault.open_or_create(home, str(origin), filters=filters)
        assert start_differences(vault, bench.base, bench.first) == ()
        assert start_differences(vault, bench.base, at) == ("a.rot", "calc.py")
        assert [fact.differs for fact in bench.facts(made, at)] == [()]
        assert [fact.differs for fact in bench.facts(made, bench.first)] == [("a.rot", "calc.py")]
