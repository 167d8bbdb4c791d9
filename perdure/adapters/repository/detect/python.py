"""Detect how a Python project is set up (uv, poetry, pipenv, pdm, pip) and tested: by what its maintainers wrote, else
by what its test files are written for."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.repository.detect.commands import DetectedCommands, list_alternatives
from perdure.adapters.repository.detect.maintainer_commands import PYTHON_RUNNERS, WrittenCommand
from perdure.adapters.system.bounded import find_subtable, read_beginning, read_toml
from perdure.models.config.repository import TestCommand

_REQUIREMENTS = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-test.txt",
    "requirements_dev.txt",
    "requirements_test.txt",
    "dev-requirements.txt",
    "test-requirements.txt",
    "requirements/dev.txt",
    "requirements/test.txt",
)
_FOR_TESTS = ("test", "tests", "testing", "dev", "develop", "development")
_TEST_FILES_MOST = 200  # test files; enough to see which framework they are written for
_PACKAGE_FILES_MOST = 5_000


_LOCKED = {
    "poetry.lock": ("poetry", "install --no-interaction"),
    "Pipfile.lock": ("pipenv", "sync --dev"),
    "pdm.lock": ("pdm", "sync"),
    "Pipfile": ("pipenv", "install --dev --skip-lock"),
}
"""By file: the program that installs what is locked in it, and how. It is installed beside, in the environment that it
fills: which programs a host has is not the repository's property."""
_INSTALLED_AS = {"pdm": "'pdm[locked]'"}
"""By program: what pip installs, where it is not the name: pdm breaks with newer packages than it was released with."""


def detect_python(root: Path, written: Sequence[WrittenCommand]) -> DetectedCommands:
    """Return how the Python project in this directory is set up and tested; empty: nothing here is Python.

    - With `uv.lock`: `uv sync` with the extras and groups that are for tests or bring pytest; tests through `uv run`
      (in the sandbox it does not sync again).
    - With another lock: `.venv` filled by its program.
    - Else a virtual environment `.venv` with the project, its requirements files, and the extras and groups that are
      for tests; pytest is added when the tests need it and nothing declares it; and then what the file installs in
      which maintainers wrote their test command.
    - A project without anything to install whose tests are all plain unittest needs no setup. One whose tests need
      pytest gets a `.venv` with pytest alone: whether this host's python3 happens to have it is not the
      repository's property, and a verdict should not depend on it.

    Tests are run by the runner that maintainers wrote down first, else by the one that the test files are written for.
    """
    facts = _ProjectFacts(root)
    own = [command for command in written if command.argv[0] in PYTHON_RUNNERS or command.argv[0] == "python"]
    if not facts.is_python and not own:
        return DetectedCommands()
    facts.needs_pytest |= any(PYTHON_RUNNERS.get(command.argv[0]) == "pytest" for command in own[:1])
    kind, setup, python = _choose_setup(facts)
    optional: tuple[str, ...] = ()
    scripts = [command for command in own if command.argv[0] == "python" and command.source == own[0].source]
    requirements = [need for command in scripts or own[:1] for need in command.requirements]
    if kind in ("pip", "python") and any(need not in "".join(setup) for need in requirements):
        optional = (f"{_PIP_INSTALL} {' '.join(dict.fromkeys(requirements))}",)
        kind, python, setup = "pip", ".venv/bin/python", (*(setup or ("python3 -m venv .venv",)), *optional)
    if len(scripts) > 1 and own[0] in scripts:  # each of them tests something else
        candidates = [(shlex.join(script.argv[1:]), _script_command(script, python)) for script in scripts]
        tests = tuple(TestCommand(name=name, command=command) for name, command in candidates)
        return DetectedCommands(setup, tests, (kind,), optional=optional)
    candidates = [*dict.fromkeys(_order_commands(facts, own, python))]
    if not candidates:
        return DetectedCommands(setup, (), (kind,), optional=optional)
    (name, command), *others = candidates
    test = TestCommand(name=name, command=command)
    return DetectedCommands(setup, (test,), (kind,), list_alternatives(test, [other for _, other in others]), optional)


_PIP_INSTALL = ".venv/bin/python -m pip install --disable-pip-version-check"


def _choose_setup(facts: _ProjectFacts) -> tuple[str, tuple[str, ...], str]:
    """Return (kind, setup commands, how Python is then called) of a project."""
    if facts.has_uv_lock:
        options = "".join(f" --extra {name}" for name in _names_for_tests(facts.extras))
        options += "".join(f" --group {name}" for name in _names_for_tests(facts.groups) if name != "dev")
        added = ("uv pip install pytest",) if facts.needs_pytest and not facts.installs_pytest else ()
        return "uv", (f"uv sync --frozen{options}", *added), "uv run python"
    locks = [name for name in _LOCKED if (facts.root / name).is_file()]
    if locks:
        program, arguments = _LOCKED[locks[0]]
        if program == "poetry":
            arguments += "".join(f" --with {name}" for name in facts.poetry_groups if name in _FOR_TESTS)
        setup = [
            "python3 -m venv .venv",
            f"python3 -m venv .venv/{program}",
            f"{_PIP_INSTALL.replace('.venv', f'.venv/{program}')} {_INSTALLED_AS.get(program, program)}",
            f".venv/{program}/bin/{program} {arguments}",
        ]
        if facts.needs_pytest and "pytest" not in read_beginning(facts.root / locks[0]):
            setup.append(f"{_PIP_INSTALL} pytest")
        return program, tuple(setup), ".venv/bin/python"
    pip_arguments = _pip_install_arguments(facts)
    if facts.needs_pytest and not facts.installs_pytest:
        pip_arguments.append("pytest")
    if not pip_arguments:
        return "python", (), "python3"
    # One pip call: the resolver sees everything, and a repeated setup changes nothing.
    return "pip", ("python3 -m venv .venv", f"{_PIP_INSTALL} {shlex.join(pip_arguments)}"), ".venv/bin/python"


def _order_commands(facts: _ProjectFacts, written: Sequence[WrittenCommand], python: str) -> Iterator[tuple[str, str]]:
    """Yield (name, command) of each way in which the project may be tested, the most trusted first: the runner that
    maintainers wrote down first with nothing but its paths, their commands as they are, and what the test files are
    written for."""
    pytest = "uv run pytest -q" if facts.has_uv_lock else f"{python} -m pytest -q"
    guesses = [("pytest", pytest)] if facts.needs_pytest else []
    if facts.has_manage and not facts.needs_pytest:
        guesses = [("django", f"{python} manage.py test")]
    elif facts.has_tests and not facts.needs_pytest:
        guesses = [("unittest", _unittest_command(python, facts.root))]
    for command in written:
        name = PYTHON_RUNNERS.get(command.argv[0], "script")
        variables = "".join(f"{shlex.join([word])} " for word in command.env)
        rest = list(command.argv[1:])
        if name == "pytest":
            paths = [word for word in rest if (facts.root / word.partition("::")[0]).exists()]
            kept = [word for word in rest if not _UNWANTED.match(word)]
            for arguments in (paths, kept):
                yield name, " ".join([f"{variables}{pytest}", *([shlex.join(arguments)] if arguments else [])])
        elif name == "script":
            is_unittest = "unittest.main(" in read_beginning(facts.root / rest[0]) and "/" not in rest[0]
            if is_unittest and len(rest) == 1:
                yield "unittest", f"{variables}{python} -m unittest {shlex.join(rest)}"
            yield name, _script_command(command, python)
        else:
            yield name, f"{variables}{python} -m {shlex.join([PYTHON_RUNNERS[command.argv[0]], *rest])}"
    yield from guesses


def _script_command(command: WrittenCommand, python: str) -> str:
    return "".join(f"{shlex.join([word])} " for word in command.env) + f"{python} {shlex.join(command.argv[1:])}"


_UNWANTED = re.compile(r"--(?:cov|junit|basetemp|durations|maxfail|no-cov|html|self-contained|color)|-x$|-q+$|-v+$|-s$")
"""Options of pytest that change nothing about what is tested, write files, or end a run at its first failure."""


def _names_for_tests(requirements_by_name: Mapping[str, list[str]]) -> list[str]:
    """Return the names of the extras or groups that are for tests, or bring pytest."""
    return [name for name, needs in requirements_by_name.items() if name in _FOR_TESTS or _mentions_pytest(needs)]


def _pip_install_arguments(facts: _ProjectFacts) -> list[str]:
    """Return the arguments of one `pip install`: the project with its extras for tests, its requirements files, and its
    dependency groups for tests. Empty where there is nothing to install."""
    arguments: list[str] = []
    if facts.installable:
        extras = _names_for_tests(facts.extras)
        arguments += ["-e", f".[{','.join(extras)}]" if extras else "."]
    for name in _REQUIREMENTS:
        if (facts.root / name).is_file():
            arguments += ["-r", name]
    for name in _names_for_tests(facts.groups):
        arguments += [requirement for requirement in facts.groups[name] if requirement not in arguments]
    return arguments


def _unittest_command(interpreter: str, root: Path) -> str:
    """Return the command that discovers unittest tests, in `tests` or `test` where there is such a folder."""
    for folder in ("tests", "test"):
        if any(path.is_relative_to(root / folder) for path in _find_test_files(root)):
            top = " -t ." if (root / folder / "__init__.py").is_file() else ""
            return f"{interpreter} -m unittest discover -s {folder}{top}"
    return f"{interpreter} -m unittest discover"


class _ProjectFacts:
    """Facts about a Python project that decide on its commands, from its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pyproject = read_toml(root / "pyproject.toml")
        self.has_uv_lock = (root / "uv.lock").is_file()
        project = find_subtable(self.pyproject, "project")
        self.extras = {
            str(extra): _list_strings(requirements)
            for extra, requirements in find_subtable(project, "optional-dependencies").items()
        }
        groups = find_subtable(self.pyproject, "dependency-groups")
        self.groups = {str(name): list(_group_requirements(groups, str(name))) for name in groups}
        self.poetry_groups = find_subtable(self.pyproject, "tool", "poetry", "group")
        self.has_manage = "django" in read_beginning(root / "manage.py").lower()
        self.installable = bool(
            (root / "setup.py").is_file()
            or "build-system" in self.pyproject
            or project.get("dependencies")
            or (project and (root / "src").is_dir())
        )
        self._tests = [read_beginning(path, 64 * 1024) for path in _find_test_files(root)]
        self.has_tests = bool(self._tests)
        self.needs_pytest = self._has_pytest_config() or (
            self.has_tests and (self.declares_pytest or any(map(_is_pytest_style, self._tests)))
        )

    @property
    def is_python(self) -> bool:
        names = ("pyproject.toml", "setup.py", "setup.cfg", *_LOCKED, *_REQUIREMENTS)
        return self.has_uv_lock or self.has_tests or any((self.root / name).is_file() for name in names)

    @property
    def installs_pytest(self) -> bool:
        """Return whether what gets installed includes pytest, itself or through a plugin of it."""
        if self.has_uv_lock:
            return '\nname = "pytest"\n' in read_beginning(self.root / "uv.lock")
        declared = _list_strings(find_subtable(self.pyproject, "project").get("dependencies"))
        declared += [need for needs in (*self.extras.values(), *self.groups.values()) for need in needs]
        return _mentions_pytest(declared) or any(
            _mentions_pytest([read_beginning(self.root / name)]) for name in _REQUIREMENTS
        )

    @property
    def declares_pytest(self) -> bool:
        """Return whether pytest is installed, or mentioned in extras of setup.py and setup.cfg."""
        return self.installs_pytest or _mentions_pytest(
            [read_beginning(self.root / name) for name in ("setup.py", "setup.cfg")]
        )

    def _has_pytest_config(self) -> bool:
        """Return whether there is a conftest.py, or a section or file that configures pytest."""
        tool = find_subtable(self.pyproject, "tool", "pytest")
        if tool or any((self.root / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
            return True
        sections = {"setup.cfg": r"^\[tool:pytest\]", "tox.ini": r"^\[pytest\]"}
        return any(re.search(text, read_beginning(self.root / name), re.MULTILINE) for name, text in sections.items())


def _find_test_files(root: Path) -> list[Path]:
    """Return the test files `test_*.py`, `*_test.py` and `tests.py` at the top, and at any depth in tests/, test/ and
    the packages there and in src/, the first _TEST_FILES_MOST; of each folder the first _PACKAGE_FILES_MOST files are
    looked at.

    Folders that are symbolic links are left out.
    """
    paths: list[Path] = []
    packages = [path.parent for top in (root, root / "src") for path in sorted(top.glob("*/__init__.py"))]
    folders = [root / "tests", root / "test", *packages]
    for folder, pattern in ((root, "*.py"), *((folder, "**/*.py") for folder in dict.fromkeys(folders))):
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in itertools.islice(folder.glob(pattern), _PACKAGE_FILES_MOST):
            if re.fullmatch(r"test_.*|.*_test|tests", path.stem) and path.is_file():
                paths.append(path)
                if len(paths) >= _TEST_FILES_MOST:
                    return paths
    return paths


def _is_pytest_style(source: str) -> bool:
    return bool(re.search(r"^(?:import pytest|from pytest)\b|^(?:async )?def test_", source, re.MULTILINE))


def _mentions_pytest(requirements: list[str]) -> bool:
    """Return whether one of these requirements or files names pytest or a plugin of it."""
    return any(
        re.search(r"""(?:^|['"\s])pytest(?![A-Za-z0-9.])""", requirement, re.MULTILINE) for requirement in requirements
    )


def _group_requirements(groups: dict[str, Any], name: str, outer_groups: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a dependency group's requirements, those of included groups too; a circle of groups ends."""
    entries = groups.get(name)
    for entry in entries if isinstance(entries, list) and name not in outer_groups else []:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            yield from _group_requirements(groups, str(entry.get("include-group", "")), (*outer_groups, name))


def _list_strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
