"""unittest: it has no report of its own; ours runs in its place where tests are counted."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from perdure.adapters.project.runners.base import Asked, Canaries, Invocation, Runner
from perdure.adapters.project.runners.python import ALL_FAIL, FORMS, planted

_REPORTER = Path(__file__).with_name("reporting_unittest.py")


class Unittest(Runner):
    name = "unittest"
    reports = False
    tests = r"(?:.*/)?tests?(_[^/]*)?\.py|(?:.*/)?[^/]*_test\.py"
    roots = frozenset({"tests", "test"})
    settings = r"sitecustomize\.py|usercustomize\.py|.*\.pth|\.coveragerc"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "Makefile"})

    def runs(self, program: str, rest: list[str]) -> bool:
        return program == "unittest"

    def counting(self, asked: Asked) -> Invocation | None:
        reporter = asked.file.with_name("unittest_report.py")
        ours = f"{shlex.quote(str(reporter))} {asked.quoted}"
        line, changed = re.subn(r"(?<=\s)-m\s+unittest(?=\s|$)", lambda _: ours, asked.command)
        if changed != 1:
            return None
        return Invocation(line, self.name, {}, asked.file, files={reporter: _REPORTER.read_text()})

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """unittest takes classes by name: capitals and digits come first."""
        planting, names = dict[str, str](), dict[str, str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last = f"A0{token}{number}a", f"zz{token}{number}z"
            changed = planted(text, _canary(first), _canary(last)) if path.endswith(".py") else None
            if changed is not None:
                planting[path] = changed
                names |= {first: path, last: path}
        return Canaries(planting, names)


def _canary(name: str) -> str:
    body = "".join(f"    {line}\n" for line in f"{FORMS}{ALL_FAIL}".splitlines())
    return f"import unittest as u{name}\nclass {name}(u{name}.TestCase):\n    def test_{name}(self):\n{body}"
