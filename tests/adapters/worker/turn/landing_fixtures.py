"""Items of a backlog on one host, driven as their workflows do: prepared, changed, rebased, tested, landed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from turn_fixtures import in_activity

from activities import run_tests
from activities.commit import CommitActivity
from activities.landing import LandActivity, RebaseActivity
from activities.prepare import PrepareActivity
from perdure.adapters.git import checkpoint as checkpoints
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.worker.host import Host
from perdure.adapters.worker.sealed_facts import tests_fact
from perdure.models.backlog.landing import LandInput, LandResult, RebaseInput, RebaseResult
from perdure.models.backlog.request import LandingPlace
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.delivery.work import (
    CommitInput,
    CommitResult,
    PreparedWorkspace,
    PrepareInput,
    TestInput,
    TestVerdict,
)
from perdure.models.ids import run_ref
from tests.homes import fresh_home
from tests.repositories import git, make_target

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
        self.prepared: PreparedWorkspace | None = None

    @property
    def tree(self) -> Path:
        return Workspace.open(self.host.home, self.id).path

    @property
    def vault(self) -> Vault:
        return Workspace.open(self.host.home, self.id).vault

    def terms(self) -> Contract:
        return self.host.load_contract(self.vault, self.id, self.sealed)

    async def begin(self, **more: Any) -> Item:
        asked: dict[str, Any] = {
            "repository": str(self.origin),
            "request": f"do {self.place.item}",
            "base": BRANCH,
            "config": CONFIG,
        }
        request = DeliveryRequest(**(asked | more), landing=self.place)
        prepared: PreparedWorkspace = await in_activity(
            PrepareActivity(self.host).prepare, PrepareInput(delivery=self.id, request=request), run=RUN
        )
        self.prepared, self.sealed, self.checkpoint = prepared, prepared.contract, prepared.checkpoint
        self.head = self.base = prepared.base_commit.sha
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
        made = checkpoints.snapshot_worktree(workspace, parent=self.checkpoint, turn=told, transcript=[])
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
        committed: CommitResult = await in_activity(CommitActivity(self.host).commit, work, run=RUN)
        self.head, self.conflicts = committed.commit, committed.conflicts
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

    async def rebase(self, landed: str = "") -> RebaseResult:
        self.number += 1
        made: RebaseResult = await in_activity(RebaseActivity(self.host).rebase, self.rebasing(landed), run=RUN)
        self.take(made)
        return made

    def take(self, made: RebaseResult) -> None:
        self.sealed, self.checkpoint, self.base = made.contract, made.checkpoint, made.onto
        self.head = made.commit or made.onto

    async def test(self, made: RebaseResult, **check: str) -> TestVerdict:
        """`check`: by item, the command that has to hold as well."""
        work = TestInput(
            delivery=self.id,
            contract=self.sealed,
            commit=self.head,
            attempt=self.number,
            baseline=made.baseline,
            check={item: (command,) for item, command in check.items()},
            item=self.place.item,
        )
        verdict: TestVerdict = await in_activity(run_tests.RunTestsActivity(self.host).run_tests, work, run=RUN)
        return verdict

    def landing(self, made: RebaseResult, tests: TestVerdict | None = None) -> LandInput:
        return LandInput(
            delivery=self.id,
            contract=self.sealed,
            workflow_id=f"night/{self.place.item}",
            place=self.place,
            commit=made.commit,
            onto=made.onto,
            tests=tests,
        )

    def green(self, made: RebaseResult) -> TestVerdict:
        """A verdict that is sealed as if tests had run, for what is about landing alone: no baseline comes of it."""
        verdict = TestVerdict(status=TestsStatus.GREEN, tree=self.vault.tree_of(made.commit or made.onto))
        self.host.facts(self.id).seal_facts(tests_fact(self.terms(), verdict))
        return verdict

    async def land(self, made: RebaseResult, tests: TestVerdict | None = None) -> LandResult:
        work = self.landing(made, tests or self.green(made))
        landed: LandResult = await in_activity(LandActivity(self.host).land, work, run=RUN)
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
    host = Host.from_environment(
        fresh_home(tmp_path / "home"),
        {
            "PATH": os.environ["PATH"],
            "PERDURE_LOCAL_REPOSITORIES": str(tmp_path),
            "PERDURE_PORTS_BACKEND": "25400-25409",
            "PERDURE_PORTS_FRONTEND": "25410-25419",
        },
    )
    yield Night(host, origin)
    await host.close()
