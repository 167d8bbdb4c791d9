"""The test runners that are known, and the one that a command line starts: how it is made to write a report without
changing what it tests, and to run one test alone. What differs from runner to runner is in its own module. Used by the
other modules of `perdure.adapters.checks` alone, which run the commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perdure.adapters.checks.junit import CaseIdentifier
from perdure.adapters.checks.runners.base import (
    Invocation,
    ReportRequest,
    Runner,
    RunPlace,
    case_identifier,
)
from perdure.adapters.checks.runners.command_trace import (
    MAKES,
    make_commands,
    package_script_name,
    package_scripts,
)
from perdure.adapters.checks.runners.go import Go
from perdure.adapters.checks.runners.java import Jvm
from perdure.adapters.checks.runners.javascript import Jest, Vitest
from perdure.adapters.checks.runners.node import Mocha, Node
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.runners.python import Django, Unittest
from perdure.adapters.checks.runners.runner_table import load_runners
from perdure.adapters.checks.runners.rust import Cargo, Nextest
from perdure.adapters.system.command_lines import split_commands, unwrap_command
from perdure.models.checks.report import TestCase
from perdure.models.config.repository import TestCommand

RUNNERS: tuple[Runner, ...] = (
    *(Pytest(), Unittest(), Django(), Node(), Go(), Nextest(), Cargo()),
    *load_runners({"vitest": Vitest, "jest": Jest, "mocha": Mocha, "maven": Jvm, "gradle": Jvm}),
)
_BY_NAME = {runner.name: runner for runner in RUNNERS}


def make_invocation(
    test: TestCommand, results: Path, tree: Path, installed: Path, env: Mapping[str, str]
) -> Invocation:
    """Return how a test command is run so that its runner writes a report into `results`; nothing is written or run
    yet.

    results    a directory outside the tree, by the path at which the command sees it
    tree       what is tested
    installed  the worktree setup ran in
    env        what the command would see anyway

    A runner is recognised when exactly one part of the command line starts one; wrappers (`uv run`, `python -m`),
    package scripts (`npm test`) and recipes (`make test`) are looked through. Without one, or where it cannot be asked
    for a report, the command is run as it is: it may then write a report to $PERDURE_REPORT by itself, and has to with
    `report = "junit"`. With `report = "exit"` it is run as it is and no report is expected. `partial` is set only where
    the runner was asked for a report.
    """
    file = results / "junit.xml"
    if test.report == "exit":
        return Invocation(test.command)
    runner, separator = find_runner(test.command, tree)
    request = ReportRequest(test.command, separator, file, tree, installed, env)
    reporting = runner.with_report(request) if runner else None
    if runner is not None and reporting is not None:
        # A recipe may start its runner without the variables that ask for a report: then the exit code counts.
        programs = {Path(argv[0]).name for argv in map(unwrap_command, split_commands(test.command)) if argv}
        required = reporting.report_required and programs.isdisjoint(MAKES)
        partial = _may_break_off(test.command, runner, tree)
        return replace(reporting, partial=partial, report_required=required)
    expected = file if test.report == "junit" else None
    return Invocation(test.command, runner.name if runner else "", {"PERDURE_REPORT": str(file)}, expected)


def narrow_to_tests(
    call: Invocation, command: str, cases: Sequence[TestCase], env: Mapping[str, str]
) -> Invocation | None:
    """Return the same invocation, report and all, for these tests only; None where its runner cannot select them by
    name, as most can only one.

    call     how `command` runs otherwise, with a results directory of its own
    env      what the command would see anyway

    The command's own arguments stay as they are: a path given on top of theirs would run both.
    """
    runner = _BY_NAME.get(call.runner)
    return runner.narrow_to_tests(call, command, cases, env) if runner else None


def case_identifier_of(call: Invocation, place: RunPlace) -> CaseIdentifier:
    """Return what tells which test a `testcase` of this invocation's report is: as its runner names tests, or as all
    do where the runner is unknown."""
    runner = _BY_NAME.get(call.runner)
    return runner.case_identifier(place) if runner else case_identifier(place)


def reproduction_command(call: Invocation, command: str, case: TestCase) -> str:
    """Return the command that a person types in the worktree to run one test; empty where the runner cannot select
    it."""
    runner = _BY_NAME.get(call.runner)
    return runner.reproduction_command(call, command, case) if runner else ""


def find_runner(command: str, tree: Path) -> tuple[Runner | None, str | None]:
    """Return the only runner that a command line starts, and what separates the line from more arguments of that
    runner.

    tree  what is tested: its package.json says what scripts run, its makefile what recipes do

    The separator is ` --` for npm, mostly empty, and None where arguments cannot be appended, because something else
    stands last. (None, None) where there is no runner, or more than one.
    """
    commands = split_commands(command)
    match = _single_runner([_runner_of_command(argv, tree) for argv in commands])
    if match is None:
        return None, None
    (runner, separator), number = match
    return runner, separator if number == len(commands) - 1 else None


def _single_runner(candidates: list[tuple[Runner | None, str | None]]) -> tuple[tuple[Runner, str | None], int] | None:
    """Return the only runner among these candidates, with its separator and its position; None where there is none, or
    more than one.

    A fallback (Runner.is_fallback) counts only where no other runner is there.
    """
    runners = [
        ((runner, separator), number) for number, (runner, separator) in enumerate(candidates) if runner is not None
    ]
    preferred = [entry for entry in runners if not entry[0][0].is_fallback] or runners
    return preferred[0] if len(preferred) == 1 else None


def _may_break_off(command: str, runner: Runner, tree: Path) -> bool:
    """Return whether the first failure keeps something else from running: the runner stops early, or is not what the
    part behind the last `&&` starts."""
    last = command.rpartition("&&")[2]
    return bool(runner.early_stop and re.search(runner.early_stop, command)) or find_runner(last, tree)[0] is not runner


def _runner_of_command(argv: list[str], tree: Path, depth: int = 0) -> tuple[Runner | None, str | None]:
    """Return the runner that a simple command starts, and what separates the command from more arguments; (None, None)
    where it starts none.

    argv   the words of the command
    depth  0 for the command itself, 1 for a command of a package script

    A package script (`npm test`) and recipes of make are looked through once. The separator is None where arguments
    cannot be appended.
    """
    argv = unwrap_command(argv)
    if not argv:
        return None, None
    program, rest = Path(argv[0]).name, argv[1:]
    own_separator = "" if not any(word.startswith((">", "<")) or "#" in word for word in rest) else None
    known = next((runner for runner in RUNNERS if runner.runs(program, rest)), None)
    if known is not None:
        return known, own_separator
    if program in MAKES and depth == 0:
        match = _single_runner([_runner_of_command(argv, tree, 1) for argv in make_commands(tree, rest)])
        return (match[0][0], None) if match is not None else (None, None)
    script_name = package_script_name(program, rest)
    if script_name and depth == 0:
        script_commands = split_commands(package_scripts(tree).get(script_name, ""))
        match = _single_runner([_runner_of_command(argv, tree, 1) for argv in script_commands])
        if match is not None:
            (runner, inner_separator), number = match
            can_append = (
                inner_separator is not None and own_separator is not None and number == len(script_commands) - 1
            )
            separator = " --" if program == "npm" and "--" not in rest else ""
            return runner, separator if can_append else None
    return None, None
