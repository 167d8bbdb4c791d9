"""A change between two commits of a real repository, tried in the real sandbox."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from perdure.adapters.checks.experiment.run_experiment import run_experiment
from perdure.adapters.checks.experiment.runs import ExperimentSetting
from perdure.adapters.checks.tests import CommandPlace, run_once
from perdure.adapters.checks.trees import write_tree
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.objects import ObjectStore
from perdure.adapters.git.vault import Vault
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.system.home import Home
from perdure.adapters.system.keyed_store import kept_results
from perdure.models.checks.report import Experiment, TestReport
from perdure.models.config.repository import TestCommand
from tests.sandboxes import BARE, dependency_directories

Files = Mapping[str, str | None]
"""Path → text; None takes a file away. A text that starts with `-> ` is a link."""


class Trials:
    """Tries changes of small repositories; `worktree` holds what setup made."""

    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox, self._root = sandbox, root
        self.worktree = root / "repository"
        self.repository = Vault(root / "vault.git", "")
        (self.repository.path / "objects").mkdir(parents=True)
        (self.repository.path / "refs").mkdir()
        (self.repository.path / "HEAD").write_text("ref: refs/heads/main\n")
        self._store = ObjectStore(self.repository.path / "objects")

    def commit(self, files: Files) -> str:
        kept = {path: textwrap.dedent(text).encode() for path, text in files.items() if text is not None}
        entries = {
            path: ("120000", self._store.write_blob(data.removeprefix(b"-> ")))
            if data.startswith(b"-> ")
            else ("100755" if data.startswith(b"#!") else "100644", self._store.write_blob(data))
            for path, data in kept.items()
        }
        return self._store.write_commit(write_tree(self.repository, entries), (), "made", timestamp=0)

    async def __call__(
        self,
        before: Files,
        after: Files,
        *commands: str | TestCommand,
        allowed: bool = False,
        known: TestReport | None = None,
        change_known: TestReport | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> Experiment:
        """`after` is laid over `before`. `known`, `change_known`: what is known of the base and the change."""
        tests = [
            TestCommand(name=f"t{number}", command=command) if isinstance(command, str) else command
            for number, command in enumerate(commands)
        ]
        checkouts = self._checkouts
        ground = ExperimentSetting(
            self._place(), self.repository, checkouts.check_out, checkouts.put_away, self._root / "room"
        )
        base, change = self.commit(before), self.commit({**before, **after})
        return await run_experiment(
            ground,
            base,
            change,
            tests,
            base_report=known,
            change_report=change_known,
            allowed=allowed,
            on_progress=on_progress,
        )

    async def is_green(self, files: Files, command: str) -> bool:
        """True where the command passes, with nobody looking: a checkout that it may write to."""
        return (await self.report(files, command)).commands[0].verdict == "passed"

    async def report(self, files: Files, command: str) -> TestReport:
        """The command's report, as of the first command that is tried."""
        commit, tree = self.commit(files), self._root / "alone"
        self._checkouts.check_out(commit, tree)
        test = TestCommand(name="t0", command=command)
        result = await run_once(replace(self._place(), source=tree), test, "alone")
        return TestReport(commit=commit, tree=self.repository.tree_of(commit), commands=(result,))

    def outputs(self, kind: str) -> list[str]:
        """What the runs of this kind wrote."""
        return [log.read_text() for log in self._root.glob(f"room/logs-1-{kind}-[0-9]*/*.log")]

    def _place(self) -> CommandPlace:
        self.worktree.mkdir(exist_ok=True)
        shared = dependency_directories(self.worktree)
        return CommandPlace(self.sandbox, self.worktree, self._root / "logs", shared=shared, env=BARE)

    @property
    def _checkouts(self) -> CheckoutPool:
        """As of a large repository: each run but the first is where another has been."""
        return CheckoutPool(self.repository, kept_results(Home(self._root), "checkouts"), min_files=1)
