"""pytest: asked through its variable, and by its own cache for one test alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.adapters.checks.runners import blind, failing
from perdure.adapters.checks.runners.base import Canaries, Invocation, Named, ReportedCommand, Runner, added
from perdure.adapters.checks.runners.intact import ALL_FAIL, FORMS, intact, shape
from perdure.adapters.checks.runners.leads import There
from perdure.adapters.checks.runners.pytest_settings import named
from perdure.adapters.checks.runners.python import planted
from perdure.models.report import TestCase


class Pytest(Runner):
    name = "pytest"
    early = r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)"

    tests = r"(?:.*/)?(test_[^/]*|[^/]*_test)\.py"
    roots = frozenset({"tests", "test"})
    settings = r"conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|\.coveragerc|(site|user)customize(\.[^/]*)?|.*\.pth"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "Makefile"})
    looking = (
        r"_getframe|currentframe|getouterframes|inspect\.stack|\bf_(back|locals)\b|walk_stack|(extract|format|print)_stack"
        r"|last_(value|exc|type|traceback)|settrace|setprofile|get_(objects|referrers)\(|findCaller|PYTEST_|testsfailed"
    )
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
        ends, witnesses = dict[str, str](), dict[str, str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, whole = (f"test_{token}_{number}_{end}" for end in ("a", "z", "zz"))
            front = f"def forms_{token}():\n{FORMS}{_MORE}    return forms\n{_canary(first, token)}"
            alone = failing.end()
            looked = intact(token, is_last=number >= len(files) - 2) + _ALONE.format(token, alone)
            behind = f"{_canary(last, token)}\ndef {whole}(request):\n{looked}\n{shape(token)}"
            changed = planted(text, token, front, behind, _helper) if path.endswith(".py") else None
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.bodies
                names |= {first: path, last: path, whole: path}
                ends |= {f"{path}::{body.place}": body.end for body in changed.own if body.place}
                witnesses[whole] = alone
        return Canaries(planting, names, bodies, (), {"PYTEST_ADDOPTS": "--tb=line"}, ends, witnesses)

    def is_blind(self, path: str, before: str, after: str, own: frozenset[str]) -> bool:
        return blind.python(path, before, after, own)

    def left_out(self, text: str) -> str:
        return f"{text}\n__test__ = False\n"

    def minds(self, path: str, text: str) -> bool:
        return path.endswith(".py") and _MINDS.search(text) is not None


_MINDS = re.compile(
    r"\bdef pytest_(?!configure\b|addoption\b|collection_modifyitems\b|generate_tests\b|ignore_collect\b)"
    r"|pytest_plugins|pluginmanager|hookimpl|_pytest|testsfailed|\brep_|_outcome\b|\bstash\b|\blast_(value|exc|type|tr)"
    r"|\bexc_info\(|setattr\([^,]{0,200}test_"
)
"""Hooks, and what they leave for fixtures; only those that collect tests are not among them."""

_ALONE = """\
    known = {{
        '_pytest', 'pytest', '_hypothesis_pytestplugin', 'anyio', 'pytest_asyncio', 'pytest_cov', 'pytest_mock',
        'pytest_timeout', 'xdist',
    }}
    collecting = {{'configure', 'addoption', 'collection_modifyitems', 'generate_tests', 'report_header'}}
    manager = request.config.pluginmanager
    for _, plugin in manager.list_name_plugin():
        home = plugin.__name__ if isinstance(plugin, types.ModuleType) else type(plugin).__module__
        if plugin is None or home.partition('.')[0] in known or home.rpartition('.')[2] == 'conftest':
            continue  # to ask for its hooks takes longer than most tests
        if {{one.name[7:] for one in manager.get_hookcallers(plugin) or ()}} - collecting:
            assert 1 == 2
    fails_{}('{}')(lambda: None)()
"""
"""Statements behind those of intact: plugins that are not known may look at how a test ended."""

_MORE = """\
    import pytest
    def expecting():
        with pytest.raises(ValueError):
            pass
    def about():
        assert 1 == pytest.approx(2)
    forms += [expecting, about, lambda: pytest.fail('x')]
"""


def _canary(name: str, token: str) -> str:
    return f"def {name}():\n    forms = forms_{token}()\n{ALL_FAIL}"


def _helper(token: str) -> str:
    """With an error that says itself what it is: for each other one pytest looks through some thirty frames, which took
    longer than most tests."""
    return failing.python_helper(token, _ENDED)


_ENDED = """from pytest import FixtureLookupError
    own = {'__init__': AssertionError.__init__, 'formatrepr': AssertionError.__str__}
    ended = type('AssertionError', (AssertionError, FixtureLookupError), own)"""
