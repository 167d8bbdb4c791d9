"""Test runners we know: how each is made to write a report without changing what it tests, and to run one test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perdure.adapters.checks.runners.base import Invocation, ReportedCommand, Runner
from perdure.adapters.checks.runners.go import Go
from perdure.adapters.checks.runners.java import Gradle, Maven
from perdure.adapters.checks.runners.javascript import Jest, Vitest
from perdure.adapters.checks.runners.node import Node
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.runners.python import Unittest
from perdure.adapters.checks.runners.rust import Cargo, Nextest
from perdure.adapters.checks.runners.words import package_scripts, parts, script, unwrapped
from perdure.models.config import TestCommand
from perdure.models.report import TestCase

RUNNERS: tuple[Runner, ...] = (
    *(Pytest(), Unittest()),
    *(Node(), Vitest(), Jest()),
    *(Go(), Nextest(), Cargo(), Maven(), Gradle()),
)
_BY_NAME = {runner.name: runner for runner in RUNNERS}


def invocation(test: TestCommand, results: Path, tree: Path, installed: Path, env: Mapping[str, str]) -> Invocation:
    """Have a known runner of a test command write its report into `results`, a directory outside the tree,
    by the name the command sees it at.

    tree  what is tested; installed  the worktree setup ran in; env  what the command would see anyway

    A runner is recognised when exactly one part of the command line is one, wrappers (`uv run`, `python -m`) looked
    through, `npm test` and the like by their script in package.json. `report = "exit"` switches all of it off.
    `report = "junit"` on a command we do not recognise: it writes its report to $PERDURE_REPORT by itself.
    """
    file = results / "junit.xml"
    if test.report == "exit":
        return Invocation(test.command)
    runner, passes = recognised(test.command, tree)
    asked = ReportedCommand(test.command, passes, file, tree, installed, env)
    known = runner.reporting(asked) if runner else None
    if runner is not None and known is not None:
        return replace(known, partial=_partial(test.command, runner, tree))
    expected = file if test.report == "junit" else None
    return Invocation(test.command, runner.name if runner else "", {"PERDURE_REPORT": str(file)}, expected)


def alone(call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
    """The same command, report and all, for one test only; None where its runner cannot select one by name.

    `call` is how `command` runs otherwise, with a results directory of its own. The command's own arguments stay as
    they are: a path given on top of theirs would run both.
    """
    runner = _BY_NAME.get(call.runner)
    return runner.alone(call, command, case, env) if runner else None


def place(call: Invocation, classname: str, root: Path) -> str:
    """The file of a test whose report names none, by what the report calls its class; empty where that says nothing.

    root  where the command ran
    """
    runner = _BY_NAME.get(call.runner)
    return runner.place(classname, root) if runner else ""


def reproduction(call: Invocation, command: str, case: TestCase) -> str:
    """The command a person types in the worktree to run one test; empty where the runner cannot select it."""
    runner = _BY_NAME.get(call.runner)
    return runner.reproduction(call, command, case) if runner else ""


def recognised(command: str, tree: Path) -> tuple[Runner | None, str | None]:
    """The one runner of a command line, and what goes between the command and more arguments of the runner (None:
    arguments cannot be appended, because something else stands last)."""
    simple = parts(command)
    found = _only([_runner(words, tree) for words in simple])
    if found is None:
        return None, None
    (runner, passes), number = found
    return runner, passes if number == len(simple) - 1 else None


def _only(found: list[tuple[Runner | None, str | None]]) -> tuple[tuple[Runner, str | None], int] | None:
    """The one that does not yield to others, or where all do, the one that does, and its place."""
    known = [((runner, passes), number) for number, (runner, passes) in enumerate(found) if runner is not None]
    first = [one for one in known if not one[0][0].yields] or known
    return first[0] if len(first) == 1 else None


def _partial(command: str, runner: Runner, tree: Path) -> bool:
    last = command.rpartition("&&")[2]
    return bool(runner.early and re.search(runner.early, command)) or recognised(last, tree)[0] is not runner


def _runner(words: list[str], tree: Path, depth: int = 0) -> tuple[Runner | None, str | None]:
    words = unwrapped(words)
    if not words:
        return None, None
    program, rest = Path(words[0]).name, words[1:]
    plain = "" if not any(word.startswith((">", "<")) or "#" in word for word in rest) else None
    known = next((runner for runner in RUNNERS if runner.runs(program, rest)), None)
    if known is not None:
        return known, plain
    named = script(program, rest)
    if named and depth == 0:
        inner = parts(package_scripts(tree).get(named, ""))
        found = _only([_runner(words, tree, 1) for words in inner])
        if found is not None:
            (runner, passes), number = found
            last = passes is not None and plain is not None and number == len(inner) - 1
            separator = " --" if program == "npm" and "--" not in rest else ""
            return runner, separator if last else None
    return None, None
