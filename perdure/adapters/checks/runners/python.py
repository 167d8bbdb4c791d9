"""Canaries in Python: the same always-failing test for unittest and pytest, each form of assertion tried in it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.checks.findings.globs import by_name
from perdure.adapters.checks.runners import failing
from perdure.adapters.checks.runners.base import Canaries, Invocation, Named, ReportedCommand, Runner, bounded
from perdure.adapters.checks.runners.intact import ALL_FAIL, FORMS, intact, shape
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.checks.runners.pytest_settings import modules_of
from perdure.models.report import TestCase


@dataclass(frozen=True)
class Planted:
    """A module with tests that fail, and those of its own among them."""

    text: str
    own: tuple[failing.Body, ...]

    @property
    def bodies(self) -> frozenset[str]:
        return frozenset(body.name for body in self.own)


def planted(
    text: str, token: str, first: str, last: str, helper: Callable[[str], str] = failing.python_helper
) -> Planted | None:
    """A module with `first` before its first statement that may be preceded, `last` at its end, and each of its own
    tests failing. None where it cannot be parsed. `helper`: what makes them fail, with this token in its name."""
    for itself in (True, False):
        changed, own = failing.python(text, token) if itself else (text, ())
        planting = _around(changed, helper(token) + first, last)
        if planting is not None and failing.parsed(planting) is not None:
            return Planted(planting, own)
    return None


def _around(text: str, first: str, last: str) -> str | None:
    module = failing.parsed(text)
    if module is None:
        return None
    at = 0
    for number, node in enumerate(module.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not docstring and not future:
            break
        at = node.end_lineno or at
    lines = failing.lined(text)
    if at == 0:  # `#!` and the coding line stay where they are
        at = next((n for n, line in enumerate(lines[:2]) if not line.startswith("#")), min(2, len(lines)))
    head, rest = "".join(lines[:at]), "".join(lines[at:])
    glue = "" if head.endswith(("\n", "\r")) or not head else "\n"
    return f"{head}{glue}{first}\n{rest}\n{last}\n"


_RED = "    assert 1 == 2\n"

_REPORTER = Path(__file__).with_name("reporting_unittest.py")


class Unittest(Runner):
    name = "unittest"
    early = r"\s(-[a-zA-Z]*f[a-zA-Z]*|--failfast)(?=\s|$)"
    yields = True
    tests = r"(?:.*/)?tests?(_[^/]*)?\.py|(?:.*/)?[^/]*_test\.py"
    roots = frozenset({"tests", "test"})
    settings = r"(site|user)customize(\.[^/]*)?|.*\.pth|\.coveragerc"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "unittest"

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        reporter = asked.file.with_name("unittest_report.py")
        ours = f"{shlex.quote(str(reporter))} {asked.quoted}"
        line, changed = re.subn(r"(?<=\s)-m\s+unittest(?=\s|$)", lambda _: ours, asked.command)
        if changed != 1:
            return None
        files = {reporter: _REPORTER.read_text()}
        return Invocation(line, self.name, {}, asked.file, files=files, more=asked.passes, written="through")

    def arguments(self, case: TestCase) -> tuple[str, ...]:
        """By the end of its dotted name: what stands before it depends on where discovery began."""
        file, *inner = case.name.split("::")
        if not inner:
            return ()
        module = file.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
        return "-k", f"*{'.'.join([module, *inner])}"

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        """`discover -s checks -p "check_*.py"`, by options or by their places; modules by name."""
        found = Named()
        for _, *words in (words for words in simple if self.runs(words[0], words[1:])):
            plain, given = list[str](), dict[str, str]()
            for before, word in zip(["", *words], words, strict=False):
                option = re.match(
                    r"(-[spt]|--start-directory|--pattern|--top-level-directory)(?:=|(?<=-[spt]))(.+)", word
                )
                if option is not None:
                    given[option[1].lstrip("-")[0]] = option[2]
                elif before in ("-s", "-p", "-t", "--start-directory", "--pattern", "--top-level-directory"):
                    given[before.lstrip("-")[0]] = word
                elif not word.startswith("-") and before != "-k":
                    plain.append(word)
            if plain[:1] != ["discover"]:
                found += Named(files=tuple(modules_of((_module(word) for word in plain), there.paths)))
                continue
            start, pattern, *_ = [*plain[1:3], "", ""]
            root = (given.get("s") or start).strip("/").removeprefix("./")
            pattern = given.get("p") or pattern
            found += bounded([pattern] if pattern else [], lambda word: [by_name(word)])
            found += Named(roots=(root,) if root not in (".", "src", "lib", "") else ())
        return found

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """unittest takes classes by name: capitals and digits come first."""
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, whole = f"A0{token}{number}a", f"zz{token}{number}z", f"zz{token}{number}zz"
            looked = intact(token, is_last=number == len(files) - 1)
            behind = f"{_canary(last, FORMS + ALL_FAIL)}\n{_canary(whole, looked + _RED)}\n{shape(token)}"
            changed = planted(text, token, _canary(first, FORMS + ALL_FAIL), behind) if path.endswith(".py") else None
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.bodies
                names |= {first: path, last: path, whole: path}
        return Canaries(planting, names, bodies)


def _module(word: str) -> str:
    """`tests.test_a.Case.test_it` and `tests/test_a.py` as the module."""
    return re.sub(r"\.[A-Z].*", "", word.removesuffix(".py").replace("/", "."))


def _canary(name: str, statements: str) -> str:
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    return f"import unittest as u{name}\nclass {name}(u{name}.TestCase):\n    def test_{name}(self):\n{body}"
