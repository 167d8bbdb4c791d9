"""`perdure init`: a first `perdure.toml`, its commands tried out by `init_run`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from perdure.adapters.git.command import GitError
from perdure.adapters.git.foreign_repository import find_repository, foreign_git, no_repository_error
from perdure.adapters.repository.config import render_config
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.adapters.system.files import write_whole
from perdure.adapters.system.output import last_lines
from perdure.cli.event_loop import run_coroutine
from perdure.cli.host.init_run import try_commands
from perdure.cli.request.repository import origin_url
from perdure.cli.screen import Screen
from perdure.models.config.repository import CONFIG_FILE
from perdure.models.errors import BadInput
from perdure.text import shell_word

if TYPE_CHECKING:
    from perdure.models.checks.report import CommandResult


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
    trial = run_coroutine(try_commands(screen, root, detected))
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
    prefixes = [f"cd {shell_word(path)} && " for path in submodule_paths]
    return replace(
        detected,
        setup=tuple(command for command in detected.setup if not command.startswith(tuple(prefixes))),
        tests=tuple(test for test in detected.tests if test.directory not in submodule_paths),
    )


def _find_root(repo: Path) -> Path:
    """Return the root directory of the checkout that `repo` is in.

    Raises BadInput where that is no directory, no git repository, a bare one, or one without a commit.
    """
    if not repo.is_dir():
        raise BadInput(f"there is no directory {repo}", where="--repo", fix="name a git repository")
    try:
        place = find_repository(repo)
    except GitError as error:
        raise no_repository_error(repo.absolute(), error) from None
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
