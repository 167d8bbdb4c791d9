"""A delivery's change lands on a branch that others land on: one commit, tested as it lands, each item once."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import in_activity

from activities import run_tests
from activities.commit import Commits
from activities.land import LandingHere
from activities.prepare import Preparation
from activities.rebase import Rebasing
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.system.home import Home
from perdure.adapters.worker.host import Host
from perdure.models.backlog import LandingPlace
from perdure.models.contract import Contract
from perdure.models.errors import Diverged, ForgeRefused
from perdure.models.ids import run_ref
from perdure.models.landing import Landed, LandInput, Rebased, RebaseInput
from perdure.models.request import DeliveryRequest
from perdure.models.result import TestsStatus
from perdure.models.work import CommitInput, Committed, Prepared, PrepareInput, TestInput, TestVerdict
from tests.lab import git, make_target

BRANCH = "perdure/night"
FILES = {"a.txt": "one\ntwo\nthree\n", "b.txt": "b\n", "perdure.toml": "version = 1\n"}
CONFIG = """
version = 1
[setup]
commands = []
[[test]]
name = "unit"
command = "test ! -e bad"
"""
RUN = "run-1"


class Item:
    """One item's delivery, driven as its workflow does."""

    def __init__(self, host: Host, origin: Path, name: str) -> None:
        self.host, self.origin, self.id, self.number = host, origin, f"night-{name}", 0
        self.place = LandingPlace(backlog="night", item=name, branch=BRANCH)
        self.head = self.base = ""
        self.prepared: Prepared | None = None

    @property
    def tree(self) -> Path:
        return Workspace.open(self.host.home, self.id).path

    @property
    def vault(self) -> Vault:
        return Workspace.open(self.host.home, self.id).vault

    def terms(self) -> Contract:
        return self.host.contract(self.vault, self.id, self.sealed)

    async def begin(self, **more: Any) -> Item:
        asked: dict[str, Any] = {"repository": str(self.origin), "request": "x", "base": BRANCH, "config": CONFIG}
        request = DeliveryRequest(**(asked | more), landing=self.place)
        prepared: Prepared = await in_activity(
            Preparation(self.host).prepare, PrepareInput(delivery=self.id, request=request), run=RUN
        )
        self.prepared, self.sealed, self.checkpoint = prepared, prepared.contract, prepared.checkpoint
        self.head = self.base = prepared.base_sha
        return self

    async def change(self, files: dict[str, str | None]) -> Item:
        """A turn's checkpoint, and the commit of it."""
        for name, text in files.items():
            if text is None:
                (self.tree / name).unlink()
            else:
                (self.tree / name).write_text(text)
        ref, told = run_ref(self.id, RUN), {"format": 1, "step": "implement", "attempt": 1, "turn": 1, "result": {}}
        workspace = Workspace.open(self.host.home, self.id)
        made = checkpoints.snapshot(workspace, parent=self.checkpoint, turn=told, transcript=[])
        self.vault.move_ref(ref, made, self.vault.read_ref(ref))
        self.checkpoint = made
        work = CommitInput(
            delivery=self.id,
            contract=self.sealed,
            step="implement",
            attempt=1,
            checkpoint=made,
            parent=self.head,
            subject="x",
        )
        committed: Committed = await in_activity(Commits(self.host).commit, work, run=RUN)
        self.head = committed.commit
        return self

    def rebasing(self, landed: str = "") -> RebaseInput:
        return RebaseInput(
            delivery=self.id,
            contract=self.sealed,
            place=self.place,
            head=self.head,
            checkpoint=self.checkpoint,
            landed=landed,
            subject=f"do {self.place.item}",
            kind="feature",
            number=self.number,
        )

    async def rebase(self, landed: str = "") -> Rebased:
        self.number += 1
        made: Rebased = await in_activity(Rebasing(self.host).rebase, self.rebasing(landed), run=RUN)
        self.take(made)
        return made

    def take(self, made: Rebased) -> None:
        self.sealed, self.checkpoint, self.base = made.contract, made.checkpoint, made.onto
        self.head = made.commit or made.onto

    async def test(self, made: Rebased) -> TestVerdict:
        work = TestInput(
            delivery=self.id, contract=self.sealed, commit=self.head, attempt=self.number, baseline=made.baseline
        )
        verdict: TestVerdict = await in_activity(run_tests.Testing(self.host).run_tests, work, run=RUN)
        return verdict

    async def land(self, made: Rebased, tests: TestVerdict | None = None) -> Landed:
        work = LandInput(
            delivery=self.id,
            contract=self.sealed,
            workflow_id=f"night/{self.place.item}",
            place=self.place,
            commit=made.commit,
            onto=made.onto,
            tests=tests,
        )
        landed: Landed = await in_activity(LandingHere(self.host).land, work, run=RUN)
        return landed


@dataclasses.dataclass
class Night:
    host: Host
    origin: Path

    async def item(self, name: str, files: dict[str, str | None], **more: Any) -> Item:
        return await (await Item(self.host, self.origin, name).begin(**more)).change(files)

    def push(self, message: str, branch: str) -> str:
        """Somebody's commit."""
        made = git(self.origin, "commit-tree", "-p", branch, "-m", message, f"{branch}^{{tree}}").strip()
        git(self.origin, "update-ref", f"refs/heads/{branch}", made)
        return made

    def log(self) -> list[str]:
        return git(self.origin, "log", "--reverse", "--format=%s", BRANCH).splitlines()


@pytest.fixture
async def night(tmp_path: Path) -> AsyncIterator[Night]:
    origin = make_target(tmp_path / "calc.git", FILES)
    git(origin, "branch", BRANCH, "main")
    host = Host.open(
        Home(tmp_path / "home"),
        {
            "PATH": os.environ["PATH"],
            "PERDURE_LOCAL_REPOSITORIES": str(tmp_path),
            "PERDURE_PORTS_BACKEND": "25400-25409",
            "PERDURE_PORTS_FRONTEND": "25410-25419",
        },
    )
    yield Night(host, origin)
    await host.close()


async def test_two_items_land_one_after_the_other_each_as_one_commit(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    first = await api.rebase()
    assert not first.moved
    assert (await api.land(first)).commit == first.commit
    second = await web.rebase(landed=first.commit)
    assert second.moved
    assert second.onto == first.commit
    verdict = await web.test(second)
    assert verdict.status is TestsStatus.GREEN
    assert (await web.land(second, verdict)).commit == second.commit
    assert night.log()[-2:] == ["feat: do api", "feat: do web"]
    assert git(night.origin, "show", f"{BRANCH}:b.txt") == "api"


async def test_where_the_branch_has_not_moved_the_verdict_stands_and_no_workspace_is_made(night: Night) -> None:
    api = await (await night.item("api", {"a.txt": "1\n"})).change({"b.txt": "2\n"})
    made_at = Workspace.open(night.host.home, api.id).record().created_at
    before, contract = api.checkpoint, api.sealed
    first = await api.rebase()
    assert (first.moved, first.checkpoint, first.contract) == (False, before, contract)
    assert Workspace.open(night.host.home, api.id).record().created_at == made_at
    assert git(night.origin, "rev-list", "--count", "main").strip() == "1"
    api.number -= 1
    assert await api.rebase() == first, "again, by another worker"
    assert (await api.land(first)).commit == first.commit
    assert night.log() == ["start", "feat: do api"], "two commits were made, and one landed"


async def test_a_conflict_is_left_in_the_files_and_lands_once_it_is_mended(night: Night) -> None:
    api = await night.item("api", {"a.txt": "one\nTWO\nthree\n"})
    web = await night.item("web", {"a.txt": "one\n2\nthree\n", "c.txt": "web\n"})
    landed = await api.land(await api.rebase())
    met = await web.rebase(landed.commit)
    assert (met.conflicts, met.commit, met.onto) == (("a.txt",), "", landed.commit)
    text = (web.tree / "a.txt").read_text()
    assert text.startswith("one\n<<<<<<< landed\nTWO\n||||||| ")
    assert text.endswith("\ntwo\n=======\n2\n>>>>>>> this-delivery\nthree\n")
    assert (web.tree / "c.txt").read_text() == "web\n"
    told = web.vault.get_artifact(web.id, met.since).decode()
    for words in ("- a.txt", "feat: do api", "-two\n+TWO", "CONFLICT (content)"):
        assert words in told
    await web.change({"a.txt": "one\nTWO 2\nthree\n"})
    again = await web.rebase(landed.commit)
    assert not again.moved
    assert (await web.land(again, await web.test(again))).commit == again.commit
    assert night.log()[-2:] == ["feat: do api", "feat: do web"]
    assert git(night.origin, "show", f"{BRANCH}:a.txt") == "one\nTWO 2\nthree"


async def test_what_landed_is_the_next_items_base_and_its_tests_do_not_run_again(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    shutil.rmtree(logs := night.host.home.workspace(web.id) / "logs", ignore_errors=True)
    first = await api.rebase()
    await api.land(first, await api.test(first))
    second = await web.rebase()
    assert second.moved
    assert second.baseline
    assert not logs.exists(), "known from the verdict on it"


async def test_somebody_who_is_faster_is_left_where_they_are_and_the_item_lands_on_top(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    first = await api.rebase()
    hers = night.push("hers", BRANCH)
    lost = await api.land(first)
    assert (lost.commit, lost.head) == ("", hers)
    second = await api.rebase()
    assert (second.onto, second.moved) == (hers, True)
    assert (await api.land(second)).commit == second.commit
    assert night.log()[-2:] == ["hers", "feat: do api"]


async def test_an_item_that_is_there_already_has_landed_and_lands_no_second_time(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    before = api.rebasing()
    first = await api.rebase()
    landed = await api.land(first)
    hers = night.push("hers", BRANCH)
    assert (await api.land(first)).commit == landed.commit, "killed between the push and its report, and overtaken"
    again = await in_activity(Rebasing(night.host).rebase, before.model_copy(update={"number": 7}), run="run-2")
    assert (again.landed, again.onto) == (landed.commit, hers), "rewound to before it"
    assert night.log()[-2:] == ["feat: do api", "hers"]


async def test_a_branch_that_was_put_back_or_taken_away_is_refused_with_one_line(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    web = await night.item("web", {"c.txt": "web\n"})
    landed = await api.land(await api.rebase())
    git(night.origin, "update-ref", f"refs/heads/{BRANCH}", "main")
    with pytest.raises(ForgeRefused, match=f"was put back: it is at .*, without {landed.commit[:12]}") as refused:
        await web.rebase(landed.commit)
    assert "\n" not in refused.value.what
    assert landed.commit[:12] in refused.value.fix
    git(night.origin, "update-ref", "-d", f"refs/heads/{BRANCH}")
    with pytest.raises(ForgeRefused, match="is not on the remote any more"):
        await web.rebase(landed.commit)


async def test_a_commit_that_was_not_tested_as_it_is_does_not_land(night: Night) -> None:
    api = await night.item("api", {"b.txt": "api\n"})
    first = await api.rebase()
    verdict = await api.test(first)
    with pytest.raises(Diverged, match="tests ran on tree"):
        await api.land(first, verdict.model_copy(update={"tree": "0" * 40}))
    with pytest.raises(Diverged, match="does not follow"):
        await api.land(first.model_copy(update={"onto": first.commit}), verdict)
    assert night.log() == ["start"]


async def test_all_of_it_being_there_already_is_said_and_nothing_is_committed(night: Night) -> None:
    api = await night.item("api", {"b.txt": "same\n"})
    web = await night.item("web", {"b.txt": "same\n"})
    landed = await api.land(await api.rebase())
    made = await web.rebase(landed.commit)
    assert (made.commit, made.conflicts, made.landed) == ("", (), "")
    assert made.summary.startswith("all of it is on")


async def test_a_test_command_that_others_brought_is_found_on_the_new_base(night: Night) -> None:
    plain = "version = 1\n[setup]\ncommands = []\n"
    api = await night.item("api", {"Makefile": "test:\n\ttrue\n"}, config=plain)
    web = await night.item("web", {"c.txt": "web\n"}, config=plain)
    landed = await api.land(await api.rebase())
    made = await web.rebase(landed.commit)
    assert web.terms().config.test, "there was none when it began"
    assert made.baseline
