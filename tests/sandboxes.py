"""Small repositories on disk, the sandbox their commands run in, and test commands run there as a delivery would."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from perdure.adapters.checks.compiler_caches import CompilerCache
from perdure.adapters.checks.tests import Baseline, CommandPlace, run_tests
from perdure.adapters.repository.detect.commands import DEPENDENCIES
from perdure.adapters.sandbox.base import Sandbox
from perdure.adapters.sandbox.environment import compute_binds
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.models.checks.report import CommandResult, TestReport
from perdure.models.config.repository import SandboxGrade, TestCommand
from perdure.models.errors import SandboxUnavailable
from tests.homes import fresh_home

PYTEST = f"{sys.executable} -m pytest -q"

BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""For suites that use none of the plug-ins installed beside our own tests: loading them costs more than the suite."""

NO_FILE = Path("/nonexistent/config.toml")


def dependency_directories(tree: Path) -> tuple[str, ...]:
    """Directories that setup fills, as a delivery's record would name them."""
    found = (path for name in DEPENDENCIES for path in tree.glob(f"**/{name}"))
    return tuple(sorted(str(path.relative_to(tree)) for path in found if len(path.relative_to(tree).parts) <= 3))


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
                renew=renew,
            ),
            commands=tests,
            commit="c0ffee",
            tree="beef",
            on_progress=self.said.append,
            baseline=Baseline(baseline, "main") if baseline else None,
            held=lambda _: held,
        )

    async def one(self, tree: Path, command: str | TestCommand, held: tuple[str, ...] = ()) -> CommandResult:
        return (await self.run(tree, command, held=held)).commands[0]


Files = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Make a directory with these files in it: relative path → text. A text that begins with `#!` can be run."""

    def make(contents: Mapping[str, str]) -> Path:
        root = tmp_path / "repository"
        root.mkdir(exist_ok=True)
        for name, text in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755 if text.startswith("#!") else 0o644)
        return root

    return make


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """The real sandbox, with this Python and its pytest in sight; without isolation where this host has none."""
    (tmp_path / "repository").mkdir(exist_ok=True)
    home = fresh_home(tmp_path / "home")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    binds = compute_binds(tmp_path / "repository", path, Path.home(), perdure_home=home.root)
    try:
        return sandbox_for(SandboxGrade.FULL, home, binds)
    except SandboxUnavailable:
        return sandbox_for(SandboxGrade.OFF, home, binds)


@pytest.fixture
def bench(sandbox: Sandbox, tmp_path: Path) -> Bench:
    return Bench(sandbox, tmp_path / "logs")
