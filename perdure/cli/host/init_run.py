"""Try the detected commands of a repository for `perdure init`, on a fresh clone of HEAD and as a delivery would: setup
without what fails in it and may be left out; for each test command that fails the others that may be right; and why
what is red is red."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.checks.experiment.commit_pair import find_tests_outside
from perdure.adapters.checks.experiment.runs import ReadOnlyTestSide
from perdure.adapters.checks.tests import CommandPlace, run_once, run_tests
from perdure.adapters.checks.verdict import find_not_started, result_line, verdict_of
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.setup import SetupBranch, name_filtered_files, run_setup_in_workspace
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import compute_binds, worktree_path_inside
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.home import Home
from perdure.cli.host.red_reasons import explain_red
from perdure.cli.screen import Screen
from perdure.local.checks import check_home
from perdure.models.config.host import HostConfig
from perdure.models.config.repository import RepositoryConfig, SandboxGrade, TestCommand
from perdure.models.duration import parse_duration
from perdure.models.errors import SetupFailed
from perdure.models.ids import cache_name, checkout_name

if TYPE_CHECKING:
    from perdure.adapters.sandbox.base import Sandbox
    from perdure.models.checks.report import CommandResult, TestReport

_ALTERNATIVES_TRIED = 4
"""The most other commands that are tried for one that fails: each may take minutes."""


@dataclass
class InitResult:
    """The commands that are left after they were tried, the report of their tests (None: there is no test command),
    files of tests that belong into `[tests] side`, and by the name of a red command why it is red."""

    detected: DetectedCommands
    report: TestReport | None = None
    side: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)


async def try_commands(screen: Screen, root: Path, detected: DetectedCommands) -> InitResult:
    """Run setup and tests on a fresh clone of HEAD, as a delivery would, print how they ended, and return what is left
    of the commands, with the report.

    Raises PerdureError where setup fails or a required test command cannot start.
    """
    home, host, result = Home.find(), load_host_config(os.environ), InitResult(detected)
    with _scratch_directory(home) as directory:
        vault = Vault.open_or_create(Home(directory), str(root), filters=host.git.filters)
        base, commit = await asyncio.to_thread(vault.fetch_checkout)
        if (vault.path / "shallow").exists():
            screen.print_line(
                "! this checkout is shallow: older commits and their tags are missing in what is tried here"
            )
            screen.print_line(
                "             a delivery has those of its origin; to have them here: git fetch --unshallow"
            )
        workspace = await asyncio.to_thread(Workspace.create, Home(directory), vault, "init", commit)
        init_run = _InitRun(screen, root, home, host, directory, workspace, base, commit, result)
        await init_run.run_setup()
        await init_run.name_missing_files()
        if result.detected.tests:
            await init_run.run_tests()
        else:
            screen.print_line("! test       no test command was found: pull requests will be drafts that say so")
    return result


@dataclass(frozen=True)
class _InitRun:
    """The commands of one repository, which are tried in a scratch workspace at `commit` of the branch `base`.

    root       the checkout that they were detected in; directory: the scratch directory
    result     takes what comes of it
    """

    screen: Screen
    root: Path
    home: Home
    host: HostConfig
    directory: Path
    workspace: Workspace
    base: str
    commit: str
    result: InitResult

    @property
    def _inside(self) -> Path | None:
        """Return where commands see the worktree."""
        return worktree_path_inside(self.host.sandbox, checkout_name(self.root.name))

    @property
    def _reach(self) -> Reach:
        """Return what setup may reach."""
        return Reach(RepositoryConfig(version=1).setup.hosts, frozenset(self.host.setup_hosts))

    def _make_sandbox(self) -> Sandbox:
        binds = compute_binds(self.workspace.path, os.environ.get("PATH", ""), Path.home(), os.environ, self.home.root)
        cache = cache_name(checkout_name(self.root.name), str(self.root), self.host.sandbox)
        caps = ResourceCaps.from_limits(self.host.commands)
        return sandbox_for(self.host.sandbox, self.home, binds.model_copy(update={"cache": cache}), caps)

    async def run_setup(self) -> None:
        """Run setup; where a command fails that may be left out, once more without it. Raises SetupFailed where another
        one fails."""
        while self.result.detected.setup:
            try:
                await run_setup_in_workspace(
                    await asyncio.to_thread(self._make_sandbox),
                    self.workspace,
                    SetupBranch(self.base, self.commit, self.base),
                    self.result.detected.setup,
                    parse_duration(RepositoryConfig(version=1).setup.timeout),
                    self.directory / "logs",
                    lambda line: None,
                    inside=self._inside,
                    reach=self._reach,
                )
            except SetupFailed as error:
                failed, detected = error.where.removeprefix("[setup] "), self.result.detected
                if failed not in detected.optional:
                    raise
                self.screen.print_line(f"! left out   {failed}: {error.what.splitlines()[0]}")
                setup, optional = (
                    tuple(command for command in commands if command != failed)
                    for commands in (detected.setup, detected.optional)
                )
                self.result.detected = replace(detected, setup=setup, optional=optional)
            else:
                self.screen.print_line(f"✓ setup      {' && '.join(self.result.detected.setup)}")
                return

    async def name_missing_files(self) -> None:
        """Print which submodules are empty, and which files are pointers or ciphertext."""
        if empty := sorted(await asyncio.to_thread(self.workspace.empty_submodules)):
            self.screen.print_line(f"! submodules {', '.join(empty)}: empty in a delivery")
            self.screen.print_line(
                '             [setup] commands with "git submodule update --init --recursive" first fill them'
            )
        if filtered := await asyncio.to_thread(name_filtered_files, self.workspace):
            self.screen.print_line(f"! files      {filtered}")

    async def run_tests(self) -> None:
        """Run the test commands, the test side read-only; for one that fails, others that may be right. Print how they
        ended and which tests are outside of the test side, and keep that, the report and the reasons of red ones in the
        result. Raises PerdureError where a required command cannot start."""
        record = await asyncio.to_thread(self.workspace.finish_setup)
        pool = CheckoutPool.for_vault(Home(self.directory), self.workspace.vault, keeps_new=False)

        def check_out() -> Path:
            pool.check_out(self.commit, self.directory / "clean", admin=record.admin)
            return self.directory / "clean"

        place = CommandPlace(
            await asyncio.to_thread(self._make_sandbox),  # made anew: setup may have made a virtual environment
            worktree=self.workspace.path,
            log_dir=self.directory / "logs",
            inside=self._inside,
            source=await asyncio.to_thread(check_out),
            shared=record.setup_paths,
            git_dir=await asyncio.to_thread(update_view, self.workspace, self.base, self.commit, self.base),
            renew=check_out,
        )
        detected, vault = self.result.detected, self.workspace.vault
        test_side = await asyncio.to_thread(
            ReadOnlyTestSide.from_commit, vault, self.commit, detected.tests, self.result.side
        )

        async def run_commands(tests: Sequence[TestCommand]) -> TestReport:
            return await run_tests(
                place,
                commands=tests,
                commit=self.commit,
                tree=vault.tree_of(self.commit),
                on_progress=lambda line: None,
                held=test_side.paths_for_command,
            )

        async def find_written_paths(test: TestCommand) -> tuple[str, ...]:
            """Return what of the test side has to be writable so that a command can write what it writes there."""
            before = test_side.stamp_files(await asyncio.to_thread(check_out), test)
            await run_once(replace(place, renew=None), test, "writable")
            after = test_side.stamp_files(self.directory / "clean", test)
            return test_side.writable_paths(
                sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
            )

        report = await run_commands(detected.tests)
        tests, results = [*detected.tests], [*report.commands]
        for number, (test, result) in enumerate(zip(detected.tests, report.commands, strict=True)):
            candidates = [
                test.model_copy(
                    update={"command": command, "name": command if test.name == test.command else test.name}
                )
                for command in detected.alternatives.get(test.name, ())[:_ALTERNATIVES_TRIED]
            ]
            if "report" in result.reason:  # what asks its runner for a report may be what fails
                candidates.insert(0, test.model_copy(update={"report": "exit"}))
            if result.verdict not in ("passed", "not_started") and place.sandbox.grade is SandboxGrade.FULL:
                writes = await find_written_paths(test)
                candidates[:0] = [test.model_copy(update={"writes": writes})] if writes else []
            for candidate in candidates:
                if results[number].verdict == "passed":
                    break
                await asyncio.to_thread(check_out)
                (other,) = (await run_commands([candidate])).commands
                if _is_better(other, results[number]):
                    tests[number], results[number] = candidate, other
            if (best := tests[number]) is not test:
                chosen = best.command if best.command != test.command else f"writes = {[*best.writes]}"
                chosen = 'report = "exit"' if best.report != test.report else chosen
                self.screen.print_line(f"! test       {test.command}: {result_line(result)}; instead: {chosen}")
        self.result.detected = replace(detected, tests=tuple(tests))
        self.result.report = report = report.model_copy(update={"commands": tuple(results)})
        if (unstarted := find_not_started(report)) is not None:
            raise unstarted.to_error("HEAD", f'perdure.toml [[test]] "{unstarted.name}"')
        verdict = verdict_of(report)
        self.screen.print_line(f"{'✓' if verdict.status == 'green' else '✗'} test       {verdict.summary}")
        files = {case.file for result in results for case in result.cases if case.file}
        self.result.side = await asyncio.to_thread(find_tests_outside, vault, self.commit, tests, files)
        if self.result.side:
            names = ", ".join(self.result.side)
            self.screen.print_line(f"✓ side       {names}: tests outside of where they are looked for")
        for test, result in zip(tests, results, strict=True):
            if result.verdict != "passed":
                self.result.reasons[result.name] = await self._explain_red(place, test, result)

    async def _explain_red(self, place: CommandPlace, test: TestCommand, result: CommandResult) -> str:
        """Return why a command is red, by running it in the directory where setup ran, with network and without."""
        command = SandboxCommand(
            script=test.command,
            worktree=self.workspace.path,
            inside=self._inside,
            directory=test.directory,
            output=self.directory / "logs" / "again.log",
            timeout_s=parse_duration(test.timeout),
            git_dir=place.git_dir,
            network=True,
            reach=self._reach,
        )
        passes = (await place.sandbox.run_command(command)).exit_code == 0
        needs_network = passes and (await place.sandbox.run_command(replace(command, network=False))).exit_code != 0
        return explain_red(result, passes, needs_network)


def _is_better(other: CommandResult, result: CommandResult) -> bool:
    """Return whether another command tells more than one that failed: it starts, and as many tests pass, or more where
    it fails, too."""
    passed, passed_before = (sum(case.outcome == "passed" for case in ran.cases) for ran in (other, result))
    if other.verdict == "passed":
        return passed >= passed_before
    return other.verdict != "not_started" and (result.verdict == "not_started" or passed > passed_before)


@contextmanager
def _scratch_directory(home: Home) -> Iterator[Path]:
    """Make a directory below the home, yield its path, and remove it at the end; /tmp would not do, for the sandbox
    hides it. Creates the home where it is missing; raises BadInput, as check_home does, for one that cannot be used."""

    check_home(home.root)
    (home.root / "scratch").mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="init-", dir=home.root / "scratch"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
