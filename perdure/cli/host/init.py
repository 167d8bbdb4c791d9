"""`perdure init`: a first `perdure.toml`, its commands tried out: setup without what fails in it and may be left out,
for each test command that fails the others that may be right, and why what is red is red."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perdure.adapters.checks.experiment.commit_pair import find_tests_outside
from perdure.adapters.checks.tests import CommandPlace, run_tests
from perdure.adapters.checks.verdict import find_not_started, result_line, verdict_of
from perdure.adapters.git.checkouts import CheckoutPool
from perdure.adapters.git.command import GitError
from perdure.adapters.git.foreign_repository import find_repository, foreign_git
from perdure.adapters.git.git_view import update_view
from perdure.adapters.git.vault import Vault
from perdure.adapters.git.workspace import Workspace
from perdure.adapters.repository.config import render_config
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.adapters.repository.host import load_host_config
from perdure.adapters.repository.setup import SetupBranch, name_filtered_files, run_setup_in_workspace
from perdure.adapters.sandbox.base import SandboxCommand
from perdure.adapters.sandbox.environment import compute_binds, worktree_path_inside
from perdure.adapters.sandbox.grades import sandbox_for
from perdure.adapters.sandbox.reach import Reach
from perdure.adapters.sandbox.usage import ResourceCaps
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.home import Home
from perdure.adapters.system.output import last_lines
from perdure.cli.event_loop import run_coroutine
from perdure.cli.host.red_reasons import explain_red
from perdure.cli.request.repository import CONFIG_FILE, origin_url
from perdure.cli.screen import Screen
from perdure.local.checks import check_home
from perdure.models.config.repository import RepositoryConfig, TestCommand, parse_duration
from perdure.models.errors import BadInput, SetupFailed
from perdure.models.ids import cache_name, checkout_name

if TYPE_CHECKING:
    from perdure.adapters.sandbox.base import Sandbox
    from perdure.models.checks.report import CommandResult, TestReport


_FIRST_COMMIT = "git add -A && git commit --allow-empty -m first"
"""The commands for a first commit; they also work where there is no file yet."""


def init(repo: Path, force: bool, dry_run: bool) -> None:
    """Detect setup and test commands, write perdure.toml, run them once in a scratch clone of HEAD, and print how they
    ended.

    `dry_run`: only print what would be written. Raises BadInput when there is no checkout with a commit, or a
    perdure.toml and no `force`; PerdureError when setup fails or a required test command cannot start; typer.Exit with
    code 1 when tests are red.
    """
    screen, root = Screen(), _find_root(repo)
    path = root / CONFIG_FILE
    if os.path.lexists(path) and not (force or dry_run):
        raise BadInput(
            f"{CONFIG_FILE} is there already", where=str(path), fix="--force replaces it, --dry-run only prints"
        )
    submodule_paths = list_submodules(root)
    detected = _without_submodules(detect_commands(root), submodule_paths)
    text = render_config(detected)
    if dry_run:
        print(text, end="")
        return
    _print_detected(screen, detected)
    try:
        write_whole(path, text.encode(), mode=0o666)  # in the place of a link: it may lead anywhere
    except OSError as error:
        raise BadInput(f"{CONFIG_FILE} cannot be written: {error.strerror}", where=str(path)) from None
    screen.print_line(f"✓ wrote {path}")
    trial = run_coroutine(_try_commands(screen, root, detected))
    if (tried_text := render_config(trial.detected, trial.side)) != text:
        write_whole(path, tried_text.encode(), mode=0o666)
        screen.print_line(f"✓ wrote {path} again, with what was tried")
    report = trial.report
    keep_command = f"git add {CONFIG_FILE} && git commit" + (" && git push" if origin_url(root) else "")
    if report is not None and (failed_results := [result for result in report.commands if result.verdict != "passed"]):
        _print_failures(screen, failed_results, trial.reasons)
        screen.print_line(f'  next  make them green, or: {keep_command}, then: perdure deliver "Make the tests green"')
        screen.print_line("        a delivery answers for new failures only; required = false lets a command fail")
        raise typer.Exit(1)
    screen.print_line(f'  next  {keep_command}, then: perdure deliver "what you want"')


@dataclass
class _Trial:
    """The commands that are left after they were tried, the report of their tests (None: there is no test command),
    files
    of tests that belong into `[tests] side`, and by the name of a red command why it is red."""

    detected: DetectedCommands
    report: TestReport | None = None
    side: tuple[str, ...] = ()
    reasons: dict[str, str] = field(default_factory=dict)


async def _try_commands(screen: Screen, root: Path, detected: DetectedCommands) -> _Trial:
    """Run setup and tests on a fresh clone of HEAD, as a delivery would, print how they ended, and return what is left
    of
    the commands, with the report.

    Raises PerdureError where setup fails or a required test command cannot start.
    """

    home, host = Home.find(), load_host_config(os.environ)
    setup_settings = RepositoryConfig(version=1).setup
    reach = Reach(setup_settings.hosts, frozenset(host.setup_hosts))
    trial = _Trial(detected)
    with _scratch_directory(home) as directory:
        vault = Vault.open_or_create(Home(directory), str(root))
        base, commit = await asyncio.to_thread(vault.fetch_checkout)
        if (vault.path / "shallow").exists():
            screen.print_line(
                "! this checkout is shallow: older commits and their tags are missing in what is tried here"
            )
            screen.print_line(
                "             a delivery has those of its origin; to have them here: git fetch --unshallow"
            )
        workspace = await asyncio.to_thread(Workspace.create, Home(directory), vault, "init", commit)
        inside = worktree_path_inside(host.sandbox, checkout_name(root.name))

        def make_sandbox() -> Sandbox:
            binds = compute_binds(workspace.path, os.environ.get("PATH", ""), Path.home(), os.environ, home.root)
            binds = binds.model_copy(update={"cache": cache_name(checkout_name(root.name), str(root), host.sandbox)})
            return sandbox_for(host.sandbox, home, binds, ResourceCaps.from_limits(host.commands))

        async def run_setup() -> None:
            await run_setup_in_workspace(
                await asyncio.to_thread(make_sandbox),
                workspace,
                SetupBranch(base, commit, base),
                trial.detected.setup,
                parse_duration(setup_settings.timeout),
                directory / "logs",
                lambda line: None,
                inside=inside,
                reach=reach,
            )

        while trial.detected.setup:
            try:
                await run_setup()
            except SetupFailed as error:
                failed = error.where.removeprefix("[setup] ")
                if failed not in trial.detected.optional:
                    raise
                screen.print_line(f"! left out   {failed}: {error.what.splitlines()[0]}")
                left = tuple(command for command in trial.detected.setup if command != failed)
                optional = tuple(command for command in trial.detected.optional if command != failed)
                trial.detected = replace(trial.detected, setup=left, optional=optional)
                continue
            screen.print_line(f"✓ setup      {' && '.join(trial.detected.setup)}")
            break
        if empty := sorted(await asyncio.to_thread(workspace.empty_submodules)):
            screen.print_line(f"! submodules {', '.join(empty)}: empty in a delivery")
            screen.print_line(
                '             [setup] commands with "git submodule update --init --recursive" first fill them'
            )
        if filtered := await asyncio.to_thread(name_filtered_files, workspace):
            screen.print_line(f"! files      {filtered}")
        if not trial.detected.tests:
            screen.print_line("! test       no test command was found: pull requests will be drafts that say so")
            return trial
        record = await asyncio.to_thread(workspace.finish_setup)

        def check_out() -> Path:
            CheckoutPool.for_vault(Home(directory), vault, keeps_new=False).check_out(
                commit, directory / "clean", admin=record.admin
            )
            return directory / "clean"

        place = CommandPlace(
            await asyncio.to_thread(make_sandbox),  # made anew: setup may have made a virtual environment
            worktree=workspace.path,
            log_dir=directory / "logs",
            inside=inside,
            source=await asyncio.to_thread(check_out),
            shared=record.setup_paths,
            git_dir=await asyncio.to_thread(update_view, workspace, base, commit, base),
        )

        async def run_commands(tests: Sequence[TestCommand]) -> TestReport:
            tree = vault.tree_of(commit)
            return await run_tests(
                place, commands=tests, commit=commit, tree=tree, on_progress=lambda line: None, renew=check_out
            )

        report = await run_commands(trial.detected.tests)
        for number, (test, result) in enumerate(zip(trial.detected.tests, report.commands, strict=True)):
            best_test, best_result = test, result
            commands = trial.detected.alternatives.get(test.name, ())[:_ALTERNATIVES_TRIED]
            candidates = [test.model_copy(update={"command": command}) for command in commands]
            if "report" in result.reason:  # what asks its runner for a report may be what fails
                candidates.insert(0, test.model_copy(update={"report": "exit"}))
            for candidate in candidates:
                if best_result.verdict == "passed":
                    break
                await asyncio.to_thread(check_out)
                (other,) = (await run_commands([candidate])).commands
                if _is_better(other, best_result):
                    best_test, best_result = candidate, other
            if best_test is not test:
                best = best_test.command if best_test.command != test.command else 'report = "exit"'
                screen.print_line(f"! test       {test.command}: {result_line(result)}; instead: {best}")
                tests, results = [*trial.detected.tests], [*report.commands]
                tests[number], results[number] = best_test, best_result
                trial.detected = replace(trial.detected, tests=tuple(tests))
                report = report.model_copy(update={"commands": tuple(results)})
        if (unstarted := find_not_started(report)) is not None:
            raise unstarted.to_error("HEAD", f'perdure.toml [[test]] "{unstarted.name}"')
        verdict = verdict_of(report)
        screen.print_line(f"{'✓' if verdict.status == 'green' else '✗'} test       {verdict.summary}")
        files = {case.file for result in report.commands for case in result.cases if case.file}
        trial.side = await asyncio.to_thread(find_tests_outside, vault, commit, trial.detected.tests, files)
        if trial.side:
            screen.print_line(f"✓ side       {', '.join(trial.side)}: tests outside of where they are looked for")
        for test, result in zip(trial.detected.tests, report.commands, strict=True):
            if result.verdict != "passed":
                again = SandboxCommand(
                    script=test.command,
                    worktree=workspace.path,
                    inside=inside,
                    directory=test.directory,
                    output=directory / "logs" / "again.log",
                    timeout_s=parse_duration(test.timeout),
                    git_dir=place.git_dir,
                    network=True,
                    reach=reach,
                )
                passes = (await place.sandbox.run_command(again)).exit_code == 0
                needs_network = passes and (
                    (await place.sandbox.run_command(replace(again, network=False))).exit_code != 0
                )
                trial.reasons[result.name] = explain_red(result, passes, needs_network)
        trial.report = report
        return trial


_ALTERNATIVES_TRIED = 4


def _is_better(other: CommandResult, result: CommandResult) -> bool:
    """Return whether another command tells more than one that failed: it starts, and as many tests pass, or more where
    it
    fails, too."""
    passed, passed_before = (sum(case.outcome == "passed" for case in ran.cases) for ran in (other, result))
    if other.verdict == "passed":
        return passed >= passed_before
    return other.verdict != "not_started" and (result.verdict == "not_started" or passed > passed_before)


def _print_failures(screen: Screen, failed_results: Sequence[CommandResult], reasons: Mapping[str, str]) -> None:
    """Print each command that did not pass, with its last lines, where a person begins to look, and why it is red."""
    screen.print_line("! tests are red before anything was changed")
    for result in failed_results:
        where = f" in {result.directory}" if result.directory else ""
        screen.print_line(f"\n  {result.command}{where}: {result.reason}")
        for line in last_lines(result.tail).splitlines():
            screen.print_line(f"    {line}")
        screen.print_line(f"  why   {reasons[result.name]}")
    screen.print_line("")


def list_submodules(root: Path) -> list[str]:
    """Return the paths in HEAD that are submodules."""
    entries = foreign_git(root).execute("ls-tree", "-r", "-z", "--full-tree", "HEAD").names
    return [line.partition("\t")[2] for line in entries if line.startswith("160000 ")]


def _without_submodules(detected: DetectedCommands, submodule_paths: Sequence[str]) -> DetectedCommands:
    """Return what was detected without setup and tests inside submodules, whose files are not there in a delivery."""
    prefixes = [f"cd {shlex.quote(path)} && " for path in submodule_paths]
    return replace(
        detected,
        setup=tuple(command for command in detected.setup if not command.startswith(tuple(prefixes))),
        tests=tuple(test for test in detected.tests if test.directory not in submodule_paths),
    )


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


def _find_root(repo: Path) -> Path:
    """Return the root directory of the checkout that `repo` is in.

    Raises BadInput where that is no directory, no git repository, a bare one, or one without a commit.
    """
    if not repo.is_dir():
        raise BadInput(f"there is no directory {repo}", where="--repo", fix="name a git repository")
    try:
        place = find_repository(repo)
    except GitError:
        raise BadInput(
            "this is not a git repository", where=str(repo.absolute()), fix=f"git init && {_FIRST_COMMIT}"
        ) from None
    try:
        place.git.text("rev-parse", "--verify", "HEAD")
    except GitError:
        raise BadInput("this repository has no commit yet", where=str(repo.absolute()), fix=_FIRST_COMMIT) from None
    if place.root is None:
        raise BadInput(
            "this is a bare repository: nothing can be written there", where=str(repo), fix="name a checkout"
        )
    return place.root


def _print_detected(screen: Screen, detected: DetectedCommands) -> None:
    """Print the toolchains, setup commands and test commands that were detected."""
    screen.print_line(f"  found      {', '.join(detected.kinds) or 'no toolchain that is known here'}")
    for command in detected.setup:
        screen.print_line(f"  setup      {command}")
    for test in detected.tests:
        screen.print_line(f"  test       {test.command}" + (f" (in {test.directory})" if test.directory else ""))
    for place in detected.left_out:
        screen.print_line(f"! left out   {place}")
