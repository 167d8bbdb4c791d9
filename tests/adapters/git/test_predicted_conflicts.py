"""Conflicts between open deliveries of one repository, seen from a commit before any of them has landed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.adapters.git.landing import MAX_CONFLICTS, predict_conflicts
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from tests.repositories import git, make_origin

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
