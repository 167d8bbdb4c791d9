"""pytest, asked for its report through its variable, and by its own cache for one test alone."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from perdure.adapters.checks.runners import blind, failing
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    append_options,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.checks.runners.pytest_settings import pytest_test_side
from perdure.adapters.checks.runners.python import plant_python_canaries
from perdure.adapters.checks.runners.runner_integrity import ALL_FAIL, FORMS, integrity_statements, shape_statements
from perdure.models.report import TestCase


class Pytest(Runner):
    """pytest."""

    name = "pytest"
    early_stop = r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)"

    tests = r"(?:.*/)?(test_[^/]*|[^/]*_test)\.py"
    roots = frozenset({"tests", "test"})
    settings = r"conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|\.coveragerc|(site|user)customize(\.[^/]*)?|.*\.pth"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "Makefile"})
    observing_code = (
        r"_getframe|currentframe|getouterframes|inspect\.stack|\bf_(back|locals)\b|walk_stack|(extract|format|print)_stack"
        r"|last_(value|exc|type|traceback)|settrace|setprofile|get_(objects|referrers)\(|findCaller|PYTEST_|testsfailed"
    )
    inline_tests = r"^\s{0,80}>>> "
    inline_tests_word = "doctest"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("pytest", "py.test")

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how pytest is run so that it writes a JUnit report, and keeps its cache beside that, by
        PYTEST_ADDOPTS.

        None where the command has an option of its own for the report, or switches it off.
        """
        if re.search(r"--junit-?xml|no:junitxml", request.command):
            return None
        options = f"--junit-xml={request.quoted_file} -o junit_family=xunit1 --continue-on-collection-errors"
        if "no:cacheprovider" not in request.command:
            # Not `-p no:cacheprovider`: suites that use the cache fixture, --lf or --strict-config would break.
            options += f" -o cache_dir={shlex.quote(str(request.file.parent / 'cache'))}"
        return Invocation(
            request.command,
            self.name,
            request.env_with_options("PYTEST_ADDOPTS", options),
            request.file,
            writing="through",
        )

    def narrow_to_test(
        self, call: Invocation, command: str, case: TestCase, env: Mapping[str, str]
    ) -> Invocation | None:
        """Return the invocation for one test: with a cache by which this test alone has failed last, and the options to
        run only that.

        None where there is no report, the case is no test, or the command runs without the cache.
        """
        if not call.report or "::" not in case.name or "no:cacheprovider" in command:
            return None
        # As if this test alone had failed last: the only selection that narrows the paths a command names itself.
        last_failed = call.report.parent / "cache" / "v" / "cache" / "lastfailed"
        options = append_options({**env, **call.env}, "PYTEST_ADDOPTS", "--last-failed --last-failed-no-failures=none")
        return replace(
            call, env={**call.env, "PYTEST_ADDOPTS": options}, files={last_failed: json.dumps({case.name: True})}
        )

    def reproduction_command(self, call: Invocation, command: str, case: TestCase) -> str:
        """Return the command up to `pytest` with the test's name behind it; empty where it cannot be selected so."""
        match = re.match(r"(?s).*?(?:^|[\s/])(?:pytest|py\.test)(?=\s|$)", command)
        return f"{match[0]} {shlex.quote(case.name)}" if match and "::" in case.name else ""

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return pytest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for Python files: a failing test first and last, its own tests made to fail, and at its end a
        check of the runner.

        The check fails with its own words (see Canaries.witnesses) only where nothing of the runner or the module was
        replaced, and no plugin that is not known looks at outcomes.
        """
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        end_messages, witnesses = dict[str, str](), dict[str, str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, integrity = (f"test_{token}_{number}_{end}" for end in ("a", "z", "zz"))
            first_source = f"def forms_{token}():\n{FORMS}{_MORE}    return forms\n{_canary(first, token)}"
            witness_message = failing.random_end_message()
            checks = integrity_statements(token, is_last=number >= len(files) - 2) + _ALONE.format(
                token, witness_message
            )
            last_source = f"{_canary(last, token)}\ndef {integrity}(request):\n{checks}\n{shape_statements(token)}"
            changed = (
                plant_python_canaries(text, token, first_source, last_source, _pytest_fail_helper)
                if path.endswith(".py")
                else None
            )
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.own_names
                names |= {first: path, last: path, integrity: path}
                end_messages |= {f"{path}::{body.place}": body.end_message for body in changed.own_tests if body.place}
                witnesses[integrity] = witness_message
        return Canaries(planting, names, bodies, (), {"PYTEST_ADDOPTS": "--tb=line"}, end_messages, witnesses)

    def is_blind(self, path: str, before: str, after: str, own: frozenset[str]) -> bool:
        """Return whether a change of a product file is blind; see blind.is_blind_python_change."""
        return blind.is_blind_python_change(path, before, after, own)

    def text_without_tests(self, text: str) -> str:
        return f"{text}\n__test__ = False\n"

    def observes_outcomes(self, path: str, text: str) -> bool:
        """Return whether a Python file of the test side has hooks or fixtures that may look at how a test ended."""
        return path.endswith(".py") and _OBSERVES.search(text) is not None


_OBSERVES = re.compile(
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
"""Statements behind those of integrity_statements: plugins that are not known may look at how a test ended."""

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


def _pytest_fail_helper(token: str) -> str:
    """Return the source of the decorator that makes tests fail, with an error that says itself what it is.

    For each other error pytest looks through some thirty frames, which took longer than most tests.
    """
    return failing.python_fail_helper(token, _ENDED)


_ENDED = """from pytest import FixtureLookupError
    own = {'__init__': AssertionError.__init__, 'formatrepr': AssertionError.__str__}
    ended = type('AssertionError', (AssertionError, FixtureLookupError), own)"""
