"""Runs test commands on a small repository, as a delivery would, and keeps what was said meanwhile."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.checks.tests import Baseline, CommandPlace, run_tests
from perdure.adapters.repository.setup import dependency_directories
from perdure.adapters.sandbox.base import Sandbox
from perdure.models.checks.report import CommandResult, TestReport
from perdure.models.config.repository import TestCommand

PYTEST = f"{sys.executable} -m pytest -q"

BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""For suites that use none of the plug-ins installed beside our own tests: loading them costs more than the suite."""

NO_FILE = Path("/nonexistent/config.toml")


class Bench:
    """Runs commands on a tree and keeps what was said meanwhile."""

    def __init__(self, sandbox: Sandbox, logs: Path) -> None:
        self.sandbox, self.logs, self.said = sandbox, logs, list[str]()

    async def run(
        self,
        tree: Path,
        *commands: str | TestCommand,
        source: Path | None = None,
        fence: Callable[[], None] | None = None,
        baseline: TestReport | None = None,
        renew: Callable[[], object] | None = None,
        held: tuple[str, ...] = (),
        seed: CompilerCache | None = None,
    ) -> TestReport:
        tests = [
            c if isinstance(c, TestCommand) else TestCommand(name=f"t{n}", command=c) for n, c in enumerate(commands)
        ]
        return await run_tests(
            CommandPlace(
                self.sandbox,
                worktree=tree,
                log_dir=self.logs,
                source=source,
                shared=dependency_directories(tree) if source else (),
                env=BARE,
                fence=fence,
                compiler_cache=seed,
            ),
            commands=tests,
            commit="c0ffee",
            tree="beef",
            on_progress=self.said.append,
            baseline=Baseline(baseline, "main") if baseline else None,
            renew=renew,
            held=lambda _: held,
        )

    async def one(self, tree: Path, command: str | TestCommand, held: tuple[str, ...] = ()) -> CommandResult:
        return (await self.run(tree, command, held=held)).commands[0]
