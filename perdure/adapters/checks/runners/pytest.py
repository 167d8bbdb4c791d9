"""pytest: asked through its variable, and by its own cache for one test alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.adapters.checks.runners.base import Canaries, Invocation, Named, ReportedCommand, Runner, added
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.checks.runners.pytest_settings import named
from perdure.adapters.checks.runners.python import ALL_FAIL, FORMS, INTACT, planted
from perdure.models.report import TestCase


class Pytest(Runner):
    name = "pytest"
    early = r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)"

    tests = r"(?:.*/)?(test_[^/]*|[^/]*_test)\.py"
    roots = frozenset({"tests", "test"})
    settings = r"conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|\.coveragerc|sitecustomize\.py|usercustomize\.py|.*\.pth"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "Makefile"})
    inside = r"^\s{0,80}>>> "
    inside_if = "doctest"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("pytest", "py.test")

    def reporting(self, asked: ReportedCommand) -> Invocation | None:
        if re.search(r"--junit-?xml|no:junitxml", asked.command):
            return None
        options = f"--junit-xml={asked.quoted} -o junit_family=xunit1 --continue-on-collection-errors"
        if "no:cacheprovider" not in asked.command:
            # Not `-p no:cacheprovider`: suites that use the cache fixture, --lf or --strict-config would break.
            options += f" -o cache_dir={shlex.quote(str(asked.file.parent / 'cache'))}"
        return Invocation(
            asked.command, self.name, asked.added("PYTEST_ADDOPTS", options), asked.file, written="through"
        )

    def alone(self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]) -> Invocation | None:
        if not call.report or "::" not in case.name or "no:cacheprovider" in command:
            return None
        # As if this test alone had failed last: the only selection that narrows the paths a command names itself.
        failed = call.report.parent / "cache" / "v" / "cache" / "lastfailed"
        options = added({**env, **call.env}, "PYTEST_ADDOPTS", "--last-failed --last-failed-no-failures=none")
        return replace(call, env={**call.env, "PYTEST_ADDOPTS": options}, files={failed: json.dumps({case.name: True})})

    def reproduction(self, call: Invocation, command: str, case: TestCase) -> str:
        found = re.match(r"(?s).*?(?:^|[\s/])(?:pytest|py\.test)(?=\s|$)", command)
        return f"{found[0]} {shlex.quote(case.name)}" if found and "::" in case.name else ""

    def named(self, simple: Sequence[list[str]], there: There) -> Named:
        return named(simple, there)

    def canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, intact = (f"test_{token}_{number}_{end}" for end in ("a", "z", "zz"))
            behind = f"{_canary(last)}\ndef {intact}():\n{INTACT}"
            changed = planted(text, token, _canary(first), behind) if path.endswith(".py") else None
            if changed is not None:
                planting[path], own = changed
                bodies |= own
                names |= {first: path, last: path, intact: path}
        return Canaries(planting, names, bodies, env={"PYTEST_ADDOPTS": "--tb=line"})


_MORE = """\
    import pytest
    def expecting():
        with pytest.raises(ValueError):
            pass
    def about():
        assert 1 == pytest.approx(2)
    forms += [expecting, about, lambda: pytest.fail('x')]
"""


def _canary(name: str) -> str:
    return f"def {name}():\n{FORMS}{_MORE}{ALL_FAIL}"
