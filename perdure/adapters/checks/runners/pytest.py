"""The runner pytest: made to write its report through PYTEST_ADDOPTS, and to run one test alone by its own cache of
failed tests; and the test side that its settings, options and `conftest.py` files name."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure.adapters.checks.globs import fnmatch_regex, path_regex
from perdure.adapters.checks.junit import CaseIdentifier
from perdure.adapters.checks.runners.base import (
    Canaries,
    ConfiguredTestSide,
    Invocation,
    ReportRequest,
    Runner,
    RunPlace,
    append_options,
    relative_file,
    translate_patterns,
)
from perdure.adapters.checks.runners.command_trace import CommandDirectory
from perdure.adapters.checks.runners.python import (
    ALL_FAIL,
    FORMS,
    LIBRARIES,
    RED,
    define_once,
    integrity_statements,
    library_canaries,
    library_snapshot,
    module_files,
    plant_python_canaries,
    python_fail_helper,
    shape_function,
    shape_record,
)
from perdure.adapters.system.bounded import parse_toml
from perdure.models.checks.report import TestCase
from perdure.models.limits import JUNIT_CASES, SIDE_PATTERNS, SIDE_READ_FILES
from perdure.text import shell_word

_INI = {"pytest.ini": "pytest", ".pytest.ini": "pytest", "tox.ini": "pytest", "setup.cfg": "tool:pytest"}
_PLUGINS = re.compile(
    r"""^pytest_plugins\b[^=\n]{0,80}=\s{0,80}([\[(][^\])]{0,4000}|"[^"\n]{0,200}"|'[^'\n]{0,200}')""", re.MULTILINE
)
_NO_ROOTS = (".", "src", "lib", "")


def pytest_test_side(commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
    """Return the test side that pytest's settings files, the options on its command lines and `pytest_plugins` in
    `conftest.py` name.

    It holds patterns (`python_files`), directories (`testpaths`) and existing files: plugins and settings that options
    name. Directories that hold the product (`src`, `lib`, the top) are left out.
    """
    sections = [_parse_ini_section(directory.text(name), section) for name, section in _INI.items()]
    sections.append(_parse_pytest_table(directory.text("pyproject.toml")))
    options = [word for argv in commands if argv[0].endswith(("pytest", "py.test")) for word in argv[1:]]
    for settings in sections:
        options += _split_setting(settings.get("addopts"))
    modules, files = _plugins_and_files(options)
    for path in sorted(path for path in directory.paths if path.rpartition("/")[2] == "conftest.py")[:SIDE_READ_FILES]:
        for plugins in _PLUGINS.findall(directory.text(path)):
            modules += re.findall(r"""["']([\w.]+)["']""", plugins)
    side = translate_patterns(
        [word for settings in sections for word in _split_setting(settings.get("python_files"))],
        lambda word: [fnmatch_regex(word)],
    )
    all_roots = [
        word.strip("/").removeprefix("./")
        for settings in sections
        for word in _split_setting(settings.get("testpaths"))
    ]
    roots = [root for root in all_roots if root not in _NO_ROOTS]
    return side + ConfiguredTestSide(
        roots=tuple(_expand_roots(roots, directory)),
        files=tuple(path for path in [*files, *module_files(modules, directory.paths)] if path in directory.paths),
    )


def _module_path(file: str) -> str:
    """Return a file as pytest writes it into the `classname` of a JUnit report."""
    return file.removesuffix(".py").replace("/", ".")


_CLASSNAME_PARTS = 100
"""Parts of a `classname` that are looked for as files: no tree is deeper, and a report may hold anything."""


def _longest_file(directory: Path, parts: tuple[str, ...]) -> str:
    """Return the path, relative to the directory, of the existing file that takes the most of these parts from the
    front: `tests/test_more.py` of `tests`, `test_more`, `TestUsd`; empty where there is none, and for more than
    _CLASSNAME_PARTS. A name may have dots, but is never `.` or `..`."""
    candidates, pending = list[tuple[int, str]](), [("", 0)]
    while pending and len(parts) <= _CLASSNAME_PARTS:
        above, start = pending.pop()
        for end in range(start + 1, len(parts) + 1):
            name = ".".join(parts[start:end])
            if not name.strip("."):
                continue
            path = f"{above}/{name}" if above else name
            pending += [(path, end)] if os.path.isdir(directory / path) else []
            candidates += [(end, file) for file in (f"{path}.py", path) if os.path.isfile(directory / file)]
    return max(candidates)[1] if candidates else ""


def _plugins_and_files(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return (plugin modules, settings files) that options of pytest name: `-p`, and `-c`, `--rootdir` and the like."""
    modules, files = list[str](), list[str]()
    for number, word in enumerate(arguments):
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if word.startswith("-p") and not word.startswith("--"):
            modules.append(word[2:] or following)
        elif word in ("-c", "--config-file", "--rootdir", "--cov-config"):
            files.append(following.removeprefix("./"))
        elif (option := re.fullmatch(r"--(?:config-file|cov-config)=(.+)", word)) is not None:
            files.append(option[1].removeprefix("./"))
    return modules, files


def _expand_roots(roots: Sequence[str], directory: CommandDirectory) -> list[str]:
    """Return the roots, those with wildcards replaced by the directories and files that they match; at most
    SIDE_PATTERNS."""
    plain = [root for root in roots if not re.search(r"[*?\[]", root)]
    stars = translate_patterns([root for root in roots if root not in plain], lambda word: [path_regex(word)]).tests
    if stars:
        directories = {path[: cut.start()] for path in directory.paths for cut in re.finditer("/", path)}
        pattern = re.compile("|".join(stars), re.DOTALL)
        plain += sorted(
            candidate
            for candidate in directories | directory.paths
            if pattern.fullmatch(candidate) and candidate not in _NO_ROOTS
        )[:SIDE_PATTERNS]
    return plain[:SIDE_PATTERNS]


def _parse_ini_section(text: str, section: str) -> dict[str, Any]:
    """Parse an ini file and return one section of it; empty where there is none, or the text is malformed."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return {}
    return dict(parser.items(section)) if parser.has_section(section) else {}


def _parse_pytest_table(text: str) -> dict[str, Any]:
    """Parse a pyproject.toml and return its table `tool.pytest.ini_options`; empty where there is none, or the text is
    malformed."""
    try:
        table: Any = parse_toml(text)
    except ValueError:
        return {}
    for name in ("tool", "pytest", "ini_options"):
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _split_setting(value: object) -> list[str]:
    """Split a setting into its words: a string at its blanks, a list into the strings in it; empty for anything
    else."""
    if isinstance(value, str):
        return value.split()
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


class Pytest(Runner):
    """pytest."""

    name = "pytest"
    early_stop = r"\s(-[a-zA-Z]*x[a-zA-Z]*|--exitfirst|--maxfail)(?=[\s=]|$)"

    tests = r"(?:.*/)?(test_[^/]*|[^/]*_test)\.py"
    roots = frozenset({"tests", "test"})
    settings = r"conftest\.py|\.?pytest\.(ini|toml)|tox\.ini|\.coveragerc|(site|user)customize(\.[^/]*)?|.*\.pth"
    shared = frozenset({"pyproject.toml", "setup.cfg", "setup.py", "Makefile"})
    inline_tests = r"^\s{0,80}>>> "
    inline_tests_word = "doctest"

    def runs(self, program: str, rest: list[str]) -> bool:
        return program in ("pytest", "py.test")

    def with_report(self, request: ReportRequest) -> Invocation | None:
        """Return how pytest is run so that it writes a JUnit report, goes on where a file cannot be loaded, and keeps
        its cache beside the report, unless the command switches the cache off. The options are appended to the variable
        PYTEST_ADDOPTS, the command stays as it is.

        None where the command has an option of its own for the report, or switches it off.
        """
        if re.search(r"--junit-?xml|no:junitxml", request.command):
            return None
        directory, variables = str(request.file.parent), dict[str, str]()
        if "$" in directory:  # pytest expands variables in both paths, once
            directory, variables = "$PERDURE_REPORTS", {"PERDURE_REPORTS": directory}
        file = shell_word(f"{directory}/{request.file.name}")
        options = f"--junit-xml={file} -o junit_family=xunit1 --continue-on-collection-errors"
        if "no:cacheprovider" not in request.command:
            # Not `-p no:cacheprovider`: suites that use the cache fixture, --lf or --strict-config would break.
            options += f" -o cache_dir={shell_word(f'{directory}/cache')}"
        return Invocation(
            request.command,
            self.name,
            {**variables, **request.env_with_options("PYTEST_ADDOPTS", options)},
            request.file,
            writing="through",
        )

    def case_identifier(self, place: RunPlace) -> CaseIdentifier:
        """Return what tells a test's file and node id: the file that was collected, which for an inherited test is not
        the one that its function stands in. JUnit's `classname` is that file and the classes, dots between them."""

        @lru_cache(maxsize=JUNIT_CASES)
        def find_collected_file(classname: str) -> str:
            for top in (place.tree / place.directory, place.tree):
                if file := _longest_file(top, tuple(classname.split("."))):
                    return file
            return ""

        def identify_case(attributes: Mapping[str, str]) -> tuple[str, str]:
            file, classname = relative_file(attributes.get("file", ""), place.shown_at), attributes.get("classname", "")
            if classname and not f"{classname}.".startswith(f"{_module_path(file)}."):
                file = find_collected_file(classname) or file
            is_collected = f"{classname}.".startswith(f"{_module_path(file)}.")
            classes = classname[len(_module_path(file)) :].split(".") if is_collected else [] if file else [classname]
            return file, "::".join(filter(None, (file, *classes, attributes.get("name") or "unnamed")))

        return identify_case

    def narrow_to_tests(
        self, call: Invocation, command: str, cases: Sequence[TestCase], env: Mapping[str, str]
    ) -> Invocation | None:
        """Return the invocation for these tests: its `files` are a pytest cache in which they alone have failed last,
        and its options say to run only what failed last.

        None where there is no report, a case is no test, or the command runs without the cache.
        """
        if not call.report or not all("::" in case.name for case in cases) or "no:cacheprovider" in command:
            return None
        # As if these alone had failed last: the only selection that narrows the paths a command names itself.
        last_failed = call.report.parent / "cache" / "v" / "cache" / "lastfailed"
        options = append_options({**env, **call.env}, "PYTEST_ADDOPTS", "--last-failed --last-failed-no-failures=none")
        names = json.dumps({case.name: True for case in cases})
        return replace(call, env={**call.env, "PYTEST_ADDOPTS": options}, files={last_failed: names})

    def reproduction_command(self, call: Invocation, command: str, case: TestCase) -> str:
        """Return the command up to `pytest` with the test's name behind it, for a person to type; empty where there is
        no `pytest` on the line, or the case is no test."""
        match = re.match(r"(?s).*?(?:^|[\s/])(?:pytest|py\.test)(?=\s|$)", command)
        return f"{match[0]} {shell_word(case.name)}" if match and "::" in case.name else ""

    def configured_test_side(self, commands: Sequence[list[str]], directory: CommandDirectory) -> ConfiguredTestSide:
        return pytest_test_side(commands, directory)

    def make_canaries(self, files: Mapping[str, str], token: str) -> Canaries:
        """Return canaries for Python files: a failing test first and last, its own tests made to fail, and at its end a
        test that fails as long as nobody has replaced anything of the runner or the module; in the first file and the
        last also one that says what has been replaced in libraries. Files that are no Python get none."""
        planting, names, bodies = dict[str, str](), dict[str, str](), frozenset[str]()
        for number, (path, text) in enumerate(sorted(files.items())):
            first, last, integrity = (f"test_{token}_{number}_{end}" for end in ("a", "z", "zz"))
            # two of them look at the runner's code: one file may be expected to fail, or not be loaded
            checks = integrity_statements(token, is_last=number >= len(files) - 2, standing="define")
            definitions = (
                f"{python_fail_helper(token, _ENDED)}def forms_{token}():\n{FORMS}    return forms\n"
                f"{shape_function(token)}def intact_{token}():\n{checks}    return True\n"
            )
            red_source = f"{_RED.format(token)}{ALL_FAIL}"
            first_source = f"{define_once(token, definitions)}{red_source}def {first}():\n    red_{token}()\n"
            library_names = library_canaries(f"test_{token}_{number}_zl", number, len(files))
            libraries = "".join(f"def {name}():\n{LIBRARIES.format(token)}\n" for name in library_names)
            last_source = (
                f"def {last}():\n    red_{token}()\n"
                f"def {integrity}(intact=intact_{token}):\n    if intact():\n    {RED}\n"
                f"{libraries}{shape_record(token)}"
            )
            changed = plant_python_canaries(text, token, first_source, last_source) if path.endswith(".py") else None
            if changed is not None:
                planting[path] = changed.text
                bodies |= changed.own_names
                names |= dict.fromkeys((first, last, integrity, *library_names), path)
        startup = library_snapshot() if planting else None
        return Canaries(planting, names, bodies, (), {"PYTEST_ADDOPTS": "--tb=line"}, startup)


_RED = """\
def red_{0}():
    import pytest
    def compare_lists():
        assert [1, 2] == [1, 3]
    def expecting():
        with pytest.raises(ValueError):
            pass
    def about():
        assert 1 == pytest.approx(2)
    forms = [*forms_{0}(), compare_lists, expecting, about, lambda: pytest.fail('x')]
"""
"""The beginning of a function that fails; assertions stand in the module itself, for pytest rewrites them."""

_ENDED = """from pytest import FixtureLookupError
    own = {'__init__': AssertionError.__init__, 'formatrepr': AssertionError.__str__}
    ended = type('AssertionError', (AssertionError, FixtureLookupError), own)"""
"""An error that says itself what it is: for each other one pytest looks through some thirty frames, which took longer
than most tests."""
