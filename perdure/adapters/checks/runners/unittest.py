"""unittest: it has no report of its own; ours runs in its place."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from perdure.adapters.checks.findings.globs import by_name
from perdure.adapters.checks.runners.base import Canaries, Invocation, Named, ReportedCommand, Runner, bounded
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.checks.runners.pytest_settings import modules_of
from perdure.adapters.checks.runners.python import ALL_FAIL, FORMS, INTACT, planted
from perdure.models.report import TestCase

_REPORTER = Path(__file__).with_name("reporting_unittest.py")


class Unittest(Runner):
    name = "unittest"
    early = r"\s(-[a-zA-Z]*f[a-zA-Z]*|--failfast)(?=\s|$)"
    yields = True
    tests = r"(?:.*/)?tests?(_[^/]*)?\.py|(?:.*/)?[^/]*_test\.py"
    roots = frozenset({"tests", "test"})
    settings = r"sitecustomize\.py|usercustomize\.py|.*\.pth|\.coveragerc"
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
            first, last, intact = f"A0{token}{number}a", f"zz{token}{number}z", f"zz{token}{number}zz"
            behind = f"{_canary(last, FORMS + ALL_FAIL)}\n{_canary(intact, INTACT)}"
            changed = planted(text, token, _canary(first, FORMS + ALL_FAIL), behind) if path.endswith(".py") else None
            if changed is not None:
                planting[path], own = changed
                bodies |= own
                names |= {first: path, last: path, intact: path}
        return Canaries(planting, names, bodies)


def _module(word: str) -> str:
    """`tests.test_a.Case.test_it` and `tests/test_a.py` as the module."""
    return re.sub(r"\.[A-Z].*", "", word.removesuffix(".py").replace("/", "."))


def _canary(name: str, statements: str) -> str:
    body = "".join(f"    {line}\n" for line in statements.splitlines())
    return f"import unittest as u{name}\nclass {name}(u{name}.TestCase):\n    def test_{name}(self):\n{body}"
