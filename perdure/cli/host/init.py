"""`perdure init`: a first `perdure.toml`, tried out before it is kept; spends nothing."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.request.repository import NAME, origin_of
from perdure.cli.screen import Screen
from perdure.cli.session import carry_out
from perdure.models.errors import BadInput
from perdure.models.ids import cache_name, checkout_name

if TYPE_CHECKING:
    from perdure.adapters.repository.detect import Detected
    from perdure.adapters.sandbox.base import Sandbox
    from perdure.adapters.system.home import Home
    from perdure.models.config import RepositoryConfig
    from perdure.models.report import CommandResult, TestReport

_FIRST = "git add -A && git commit --allow-empty -m first"
"""Also where there is no file yet."""


def init(
    repo: Annotated[Path, typer.Option("--repo", help="A git repository.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace a perdure.toml that is there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written; run nothing.")] = False,
) -> None:
    """Detect setup and test commands, write perdure.toml, and run them once in a scratch workspace."""
    from perdure.adapters.repository.config import load_repository_config
    from perdure.adapters.repository.detect import detect
    from perdure.adapters.repository.init import render
    from perdure.adapters.system.files import write_whole

    screen, root = Screen(), _root(repo)
    path = root / NAME
    if os.path.lexists(path) and not (force or dry_run):
        raise BadInput(f"{NAME} is there already", where=str(path), fix="--force replaces it, --dry-run only prints")
    absent = submodules(root)
    detected = _present(detect(root), absent)
    text = render(detected)
    if dry_run:
        print(text, end="")
        return
    _tell(screen, detected)
    try:
        write_whole(path, text.encode(), mode=0o666)  # in the place of a link: it may lead anywhere
    except OSError as error:
        raise BadInput(f"{NAME} cannot be written: {error.strerror}", where=str(path)) from None
    screen.line(f"✓ wrote {path}")
    report = carry_out(_try(screen, root, load_repository_config(text, NAME)))
    keep = f"git add {NAME} && git commit" + (" && git push" if origin_of(root) else "")
    if absent:
        screen.line(f"! submodules {', '.join(absent)}: their files are not there in a delivery")
        screen.line("             let [setup] fetch what the tests need of them, or leave such tests out of [[test]]")
    if report is not None and (red := [result for result in report.commands if result.verdict != "passed"]):
        _tell_red(screen, red)
        screen.line(f'  next  make them green, or: {keep}, then: perdure deliver "Make the tests green"')
        screen.line("        a delivery answers for new failures only; required = false lets a command fail")
        raise typer.Exit(1)
    screen.line(f'  next  {keep}, then: perdure deliver "what you want"')


async def _try(screen: Screen, root: Path, config: RepositoryConfig) -> TestReport | None:
    """Setup and tests in a fresh clone of HEAD, as a delivery would run them. None when there is no test command."""
    import asyncio

    from perdure.adapters.checks.tests import CommandPlace, run_tests
    from perdure.adapters.checks.verdict import not_started, verdict
    from perdure.adapters.git.door import Git
    from perdure.adapters.repository.host import load_host_config
    from perdure.adapters.repository.setup import dependencies, run_setup
    from perdure.adapters.sandbox.environment import place
    from perdure.adapters.sandbox.reach import Reach
    from perdure.adapters.sandbox.select import sandbox_for
    from perdure.adapters.sandbox.toolchain import compute_binds
    from perdure.adapters.sandbox.usage import Caps
    from perdure.adapters.system.home import Home
    from perdure.models.amounts import seconds

    home, host = Home.find(), load_host_config(os.environ)
    with _scratch(home) as scratch:
        tree, logs = scratch / "tree", scratch / "logs"
        logs.mkdir()
        inside = place(host.sandbox, checkout_name(root.name))
        clone = ("clone", "--quiet", "--no-hardlinks", "--", str(root), str(tree))
        await asyncio.to_thread(Git(as_owner=True).run, *clone)  # from outside: by no word of its own
        commit = Git(git_dir=tree / ".git").text("rev-parse", "HEAD")

        def sandbox() -> Sandbox:
            binds = compute_binds(tree, os.environ.get("PATH", ""), Path.home(), os.environ, home.root)
            binds = binds.model_copy(update={"cache": cache_name(checkout_name(root.name), str(root), host.sandbox)})
            return sandbox_for(host.sandbox, home, binds, Caps.of(host.commands))

        if config.setup.commands:
            before, limit = await asyncio.to_thread(sandbox), seconds(config.setup.timeout)
            reach = Reach(config.setup.hosts, frozenset(load_host_config(os.environ).setup_hosts))
            await run_setup(
                before, tree, config.setup.commands, limit, logs, lambda line: None, reach=reach, inside=inside
            )
            screen.line(f"✓ setup      {' && '.join(config.setup.commands)}")
        if not config.test:
            screen.line("! test       no test command was found: pull requests will be drafts that say so")
            return None
        report = await run_tests(
            CommandPlace(
                await asyncio.to_thread(sandbox),  # again: setup may have made a virtual environment
                worktree=tree,
                log_dir=logs,
                inside=inside,
                shared=dependencies(tree),
                git_dir=tree / ".git",
            ),
            commands=config.test,
            commit=commit,
            tree=Git(git_dir=tree / ".git").text("rev-parse", "HEAD^{tree}"),
            on_progress=lambda line: None,
        )
        if (missing := not_started(report)) is not None:
            raise missing.error("HEAD", f'perdure.toml [[test]] "{missing.name}"')
        result = verdict(report)
        screen.line(f"{'✓' if result.status == 'green' else '✗'} test       {result.summary}")
        return report


def _tell_red(screen: Screen, red: Sequence[CommandResult]) -> None:
    """Each command that did not pass, with its last lines: where a person begins to look."""
    from perdure.adapters.system.output import last_lines

    screen.line("! tests are red before anything was changed")
    for result in red:
        where = f" in {result.directory}" if result.directory else ""
        screen.line(f"\n  {result.command}{where}: {result.reason}")
        for line in last_lines(result.tail).splitlines():
            screen.line(f"    {line}")
    screen.line("")


def submodules(root: Path) -> list[str]:
    """Paths of HEAD at which another repository is meant to lie."""
    from perdure.adapters.git.visit import visiting

    listed = visiting(root).run("ls-tree", "-r", "-z", "--full-tree", "HEAD").names
    return [line.partition("\t")[2] for line in listed if line.startswith("160000 ")]


def _present(found: Detected, absent: Sequence[str]) -> Detected:
    """The same without what is set up and tested inside submodules: their files are not there in a delivery."""
    gone = [f"cd {shlex.quote(path)} && " for path in absent]
    return replace(
        found,
        setup=tuple(one for one in found.setup if not one.startswith(tuple(gone))),
        tests=tuple(test for test in found.tests if test.directory not in absent),
    )


@contextmanager
def _scratch(home: Home) -> Iterator[Path]:
    """A directory below the home, for the sandbox hides /tmp; gone afterwards."""
    import tempfile

    from perdure.local.checks import check_home

    check_home(home.root)
    (home.root / "scratch").mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="init-", dir=home.root / "scratch"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _root(repo: Path) -> Path:
    from perdure.adapters.git.door import GitError
    from perdure.adapters.git.visit import find

    if not repo.is_dir():
        raise BadInput(f"there is no directory {repo}", where="--repo", fix="name a git repository")
    try:
        place = find(repo)
    except GitError:
        raise BadInput(
            "this is not a git repository", where=str(repo.absolute()), fix=f"git init && {_FIRST}"
        ) from None
    try:
        place.git.text("rev-parse", "--verify", "HEAD")
    except GitError:
        raise BadInput("this repository has no commit yet", where=str(repo.absolute()), fix=_FIRST) from None
    if place.root is None:
        raise BadInput(
            "this is a bare repository: nothing can be written there", where=str(repo), fix="name a checkout"
        )
    return place.root


def _tell(screen: Screen, detected: Detected) -> None:
    screen.line(f"  found      {', '.join(detected.kinds) or 'no toolchain that is known here'}")
    for command in detected.setup:
        screen.line(f"  setup      {command}")
    for test in detected.tests:
        screen.line(f"  test       {test.command}" + (f" (in {test.directory})" if test.directory else ""))
