"""unittest, and canaries in Python: the same always-failing test for unittest and pytest, which tries each form of
assertion."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.checks.findings.globs import fnmatch_regex
from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    translate_patterns,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.checks.runners.pytest_settings import module_files
from perdure.adapters.checks.runners.runner_integrity import ALL_FAIL, FORMS, integrity_statements, shape_statements
from perdure.models.report import TestCase


@dataclass(frozen=True)
class PlantedModule:
    """A module with canaries.

    text       its new text
    own_tests  tests that were there, and are made to fail now
    """

    text: str
    own_tests: tuple[failing.FailingBody, ...]

    @property
    def own_names(self) -> frozenset[str]:
        """Return the names of the functions of its own tests."""
        return frozenset(body.name for body in self.own_tests)


def plant_python_canaries(
    text: str, token: str, first: str, last: str, make_helper: Callable[[str], str] = failing.python_fail_helper
) -> PlantedModule | None:
    """Return a module with `first` before its first statement that may be preceded, `last` at its end, and its own
    tests made to fail.

    make_helper  gives the source of the decorator that makes them fail, with this token in its name

    Its own tests stay as they are where the module could not be parsed otherwise. None where it cannot be parsed at
    all.
    """
    for with_own in (True, False):
        changed, own_tests = failing.fail_python_tests(text, token) if with_own else (text, ())
        new_text = _insert_around(changed, make_helper(token) + first, last)
        if new_text is not None and failing.parse_python(new_text) is not None:
            return PlantedModule(new_text, own_tests)
    return None


def _insert_around(text: str, first: str, last: str) -> str | None:
    """Return a module with `first` behind its docstring and its imports from `__future__`, and `last` at its end; None
    where it is no Python.

    `#!` and the coding line stay where they are.
    """
    module = failing.parse_python(text)
    if module is None:
        return None
    line_count = 0
    for number, node in enumerate(module.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        line_count = node.end_lineno or line_count
    lines = failing.split_lines(text)
    if line_count == 0:  # `#!` and the coding line stay where they are
        line_count = next((n for n, line in enumerate(lines[:2]) if not line.startswith("#")), min(2, len(lines)))
    head, rest = "".join(lines[:line_count]), "".join(lines[line_count:])
    glue = "" if head.endswith(("\n", "\r")) or not head else "\n"
    return f"{head}{glue}{first}\n{rest}\n{last}\n"


_RED = "    assert 1 == 2\n"

_REPORTER = Path(__file__).with_name("reporting_unittest.py")


class Unittest(Runner):
    """`python -m unittest`."""

    name = "unittest"
    early_stop = r"\s(-[a-zA-Z]*f[a-zA-Z]*|--failfast)(?=\s|$)"
    is_fallback = True
    tests = r"(?:.*/)?tests?(_[^/]*)?\.py|(?:.*/)?[^/]*_test\.py"
    roots = frozenset({"tests", "test"})
    settings = r"(site|user)customize(\.[^/]*)?|.*\.pth|\.coveragerc"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "unittest"

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how unittest is run by a reporter of ours (reporting_unittest) in the place of `-m unittest`.

        None where that is not on the line exactly once.
        """
        reporter = request.file.with_name("unittest_report.py")
        ours = f"{shlex.quote(str(reporter))} {request.quoted_file}"
        line, changed = re.subn(r"(?<=\s)-m\s+unittest(?=\s|$)", lambda _: ours, request.command)
        if changed != 1:
            return None
        files = {reporter: _REPORTER.read_text()}
        return Invocation(
            line, self.name, {}, request.file, files=files, separator=request.separator, writing="through"
        )

    def selection_arguments(self, case: TestCase) -> tuple[str, ...]:
        """Return `-k` with the end of the test's dotted name: what stands before it depends on where discovery began.

        Empty where the case is no single test.
        """
        file, *inner = case.name.split("::")
        if not inner:
            return ()
        module = file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
        return "-k", f"*{'.'.join([module, *inner])}"

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        """Return the test side that commands name: `discover -s checks -p "check_*.py"`, by options or by their places;
        modules by name."""
        side = ConfiguredTestSide()
        for _, *arguments in (arguments for arguments in commands if self.runs(arguments[0], arguments[1:])):
            positional, options = list[str](), dict[str, str]()
            for previous, word in zip(["", *arguments], arguments, strict=False):
                option = re.match(
                    r"(-[spt]|--start-directory|--pattern|--top-level-directory)(?:=|(?<=-[spt]))(.+)", word
                )
                if option is not None:
                    options[option[1].lstrip("-")[0]] = option[2]
                elif previous in ("-s", "-p", "-t", "--start-directory", "--pattern", "--top-level-directory"):
                    options[previous.lstrip("-")[0]] = word
                elif not word.startswith("-") and previous != "-k":
                    positional.append(word)
            if positional[:1] != ["discover"]:
                side += ConfiguredTestSide(
                    files=tuple(module_files((_module_name(word) for word in positional), directory.paths))
                )
                continue
            start, pattern, *_ = [*positional[1:3], "", ""]
            root = (options.get("s") or start).strip("/").removeprefix("./")
            pattern = options.get("p") or pattern
            side += translate_patterns([pattern] if pattern else [], lambda word: [fnmatch_regex(word)])
            side += ConfiguredTestSide(roots=(root,) if root not in (".", "src", "lib", "") else ())
        return side

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for Python files: a failing class first and last, its own tests made to fail, and at its end
        a check of the runner.

        unittest takes classes by name, and capitals and digits come first: so `A0…` is first and `zz…` last.
        """
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, integrity = f"A0{token}{number}a", f"zz{token}{number}z", f"zz{token}{number}zz"
            checks = integrity_statements(token, is_last=number == len(files) - 1)
            last_source = (
                f"{_canary(last, FORMS + ALL_FAIL)}\n{_canary(integrity, checks + _RED)}\n{shape_statements(token)}"
            )
            changed = (
                plant_python_canaries(text, token, _canary(first, FORMS + ALL_FAIL), last_source)
                if path.endswith(".py")
                else None
            )
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.own_names
                names |= {first: path, last: path, integrity: path}
        return Canaries(planting, names, bodies)


def _module_name(word: str) -> str:
    """Return the module in `tests.test_a.Case.test_it` or `tests/test_a.py`: `tests.test_a`."""
    return re.sub(r"\.[A-Z].*", "", word.removesuffix(".py").replace("/", "."))


def _canary(name: str, statements: str) -> str:
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    return f"import unittest as u{name}\nclass {name}(u{name}.TestCase):\n    def test_{name}(self):\n{body}"
