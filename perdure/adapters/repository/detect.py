"""Detect a repository's toolchains from its files (Python in detail, Node, Go, Rust, JVM, make) and return how it is
set up and tested, for a repository whose perdure.toml does not say so. `activities.prepare` uses it, `perdure init` and
`perdure config` show it. Nothing is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.system.bounded import read_beginning, read_json, read_toml
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


@dataclass(frozen=True)
class PythonProject:
    """The setup and test commands of a Python project.

    kind    `uv`, `pip` or `python` (no setup)
    setup   commands; runner: pytest or unittest, by which the test command is named
    test    the test command, empty without tests
    """

    kind: str
    setup: tuple[str, ...]
    runner: str
    test: str


def inspect_project(root: Path) -> PythonProject | None:
    """Return how the Python project in this directory is set up and tested; None: nothing here is Python.

    - With `uv.lock`: `uv sync` with the extras and groups that are for tests or bring pytest; tests through `uv run`
      (in the sandbox it does not sync again).
    - Else a virtual environment `.venv` with the project, its requirements files, and the extras and groups that are
      for tests; pytest is added when the tests need it and nothing declares it.
    - A project without anything to install whose tests are all plain unittest needs no setup. One whose tests need
      pytest gets a `.venv` with pytest alone: whether this host's python3 happens to have it is not the
      repository's property, and a verdict should not depend on it.
    """
    facts = _ProjectFacts(root)
    if not facts.is_python:
        return None
    if facts.has_uv_lock:
        return _uv_project(facts)
    pip_arguments = _pip_install_arguments(facts)
    if facts.needs_pytest and not facts.installs_pytest:
        pip_arguments.append("pytest")
    if not pip_arguments:
        return PythonProject("python", (), "unittest", _unittest_command("python3", root) if facts.has_tests else "")
    # One pip call: the resolver sees everything, and a repeated setup changes nothing.
    setup = (
        "python3 -m venv .venv",
        f".venv/bin/python -m pip install --disable-pip-version-check {shlex.join(pip_arguments)}",
    )
    if facts.needs_pytest:
        return PythonProject("pip", setup, "pytest", ".venv/bin/python -m pytest -q")
    return PythonProject(
        "pip", setup, "unittest", _unittest_command(".venv/bin/python", root) if facts.has_tests else ""
    )


def _uv_project(facts: _ProjectFacts) -> PythonProject:
    """Return setup and tests of a project with `uv.lock`: `uv sync` with extras and groups for tests, pytest added
    where tests need it and nothing declares it, and pytest or unittest through `uv run`. Without tests that command is
    empty."""
    options = "".join(
        f" --extra {name}"
        for name, requirements in facts.extras.items()
        if name in _FOR_TESTS or _mentions_pytest(requirements)
    ) + "".join(
        f" --group {name}"
        for name, requirements in facts.groups.items()
        if name != "dev" and (name in _FOR_TESTS or _mentions_pytest(requirements))
    )
    setup = [f"uv sync --frozen{options}"]
    if not facts.needs_pytest:
        test = _unittest_command("uv run python", facts.root) if facts.has_tests else ""
        return PythonProject("uv", tuple(setup), "unittest", test)
    if not facts.installs_pytest:
        setup.append("uv pip install pytest")
    return PythonProject("uv", tuple(setup), "pytest", "uv run pytest -q")


def _pip_install_arguments(facts: _ProjectFacts) -> list[str]:
    """Return the arguments of one `pip install`: the project with its extras for tests, its requirements files, and its
    dependency groups for tests. Empty where there is nothing to install."""
    arguments: list[str] = []
    if facts.installable:
        extras = [
            name for name, requirements in facts.extras.items() if name in _FOR_TESTS or _mentions_pytest(requirements)
        ]
        arguments += ["-e", f".[{','.join(extras)}]" if extras else "."]
    for name in _REQUIREMENTS:
        if (facts.root / name).is_file():
            arguments += ["-r", name]
    for name, requirements in facts.groups.items():
        if name in _FOR_TESTS or _mentions_pytest(requirements):
            arguments += [requirement for requirement in requirements if requirement not in arguments]
    return arguments


def _unittest_command(interpreter: str, root: Path) -> str:
    """Return the command that discovers unittest tests, in `tests` or `test` where there is such a folder."""
    for folder in ("tests", "test"):
        if (root / folder).is_dir():
            top = " -t ." if (root / folder / "__init__.py").is_file() else ""
            return f"{interpreter} -m unittest discover -s {folder}{top}"
    return f"{interpreter} -m unittest discover"


class _ProjectFacts:
    """Facts about a Python project that decide on its commands, from its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pyproject = read_toml(root / "pyproject.toml")
        self.has_uv_lock = (root / "uv.lock").is_file()
        project = _subtable(self.pyproject, "project")
        self.extras = {
            str(extra): _list_strings(requirements)
            for extra, requirements in _subtable(project, "optional-dependencies").items()
        }
        groups = _subtable(self.pyproject, "dependency-groups")
        self.groups = {str(name): list(_group_requirements(groups, str(name))) for name in groups}
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
        names = ("pyproject.toml", "setup.py", "setup.cfg", *_REQUIREMENTS)
        return self.has_uv_lock or self.has_tests or any((self.root / name).is_file() for name in names)

    @property
    def installs_pytest(self) -> bool:
        """Return whether what gets installed includes pytest, itself or through a plugin of it."""
        if self.has_uv_lock:
            return '\nname = "pytest"\n' in read_beginning(self.root / "uv.lock")
        declared = _list_strings(_subtable(self.pyproject, "project").get("dependencies"))
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
        tool = _subtable(_subtable(self.pyproject, "tool"), "pytest")
        if tool or any((self.root / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
            return True
        sections = {"setup.cfg": "tool:pytest", "tox.ini": "pytest"}
        return any(_has_section(read_beginning(self.root / name), section) for name, section in sections.items())


def _find_test_files(root: Path) -> list[Path]:
    """Return the test files `test_*.py`, `*_test.py` and `tests.py` at the top, and at any depth in tests/ and test/,
    the first _TEST_FILES_MOST.

    These two folders are left out where they are symbolic links.
    """
    paths: list[Path] = []
    for folder, pattern in ((root, "*.py"), (root / "tests", "**/*.py"), (root / "test", "**/*.py")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in folder.glob(pattern):
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


def _has_section(text: str, section: str) -> bool:
    """Return whether an INI text has this section; a text that cannot be parsed has none."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return False
    return parser.has_section(section)


def _group_requirements(groups: dict[str, Any], name: str, outer_groups: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield a dependency group's requirements, those of included groups too; a circle of groups ends."""
    entries = groups.get(name)
    for entry in entries if isinstance(entries, list) and name not in outer_groups else []:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            yield from _group_requirements(groups, str(entry.get("include-group", "")), (*outer_groups, name))


def _subtable(table: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the table of that name inside a table; empty where there is none."""
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _list_strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


SUBDIRECTORIES_MOST = 50
"""Directories of a monorepo that are looked at for a toolchain of their own: each is some file names and a manifest."""


DEPENDENCIES = (".venv", "node_modules")
"""Directories that setup fills inside a worktree; what cargo and go download is kept by the sandbox."""


_FOREIGN_DIRECTORIES = {
    *DEPENDENCIES,
    "tests",
    "test",
    "docs",
    "examples",
    "vendor",
    "third_party",
    "fixtures",
    "build",
    "dist",
}
"""Directories whose toolchains are not the repository's own."""


_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")


@dataclass(frozen=True)
class DetectedCommands:
    """Commands as they would stand in perdure.toml; `kinds` names what was recognised (`uv`, `pip`, `npm`, `go` …)."""

    setup: tuple[str, ...] = ()
    tests: tuple[TestCommand, ...] = ()
    kinds: tuple[str, ...] = ()

    def __add__(self, other: DetectedCommands) -> DetectedCommands:
        return DetectedCommands(self.setup + other.setup, self.tests + other.tests, self.kinds + other.kinds)


def detect_commands(root: Path) -> DetectedCommands:
    """Return the setup and test commands of all toolchains that the files in `root` show.

    A `test` target of make counts only where there is nothing else to test: it usually runs the same tests once more.
    Where there is nothing to test at the top, the directories one level below are looked at. A file that cannot be
    parsed counts as absent.
    """
    detected = _detect_directory(root)
    return detected if detected.tests else detected + _detect_subdirectories(root)


def _detect_directory(root: Path) -> DetectedCommands:
    """Return the commands of all toolchains that this directory's own files show; `make test` only where none of them
    has tests. Directories below are not looked at."""
    detected = _detect_python(root) + _detect_node(root) + _detect_go(root) + _detect_cargo(root) + _detect_jvm(root)
    return detected if detected.tests else detected + _detect_make(root)


def _detect_subdirectories(root: Path) -> DetectedCommands:
    """Return the commands of a monorepo's parts: each is set up and tested in its own directory.

    Directories without tests are left out, and so are links, hidden ones, _FOREIGN_DIRECTORIES and all after the first
    SUBDIRECTORIES_MOST.
    """
    total = DetectedCommands()
    below = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink())
    for path in [path for path in below if path.name[0] not in "._" and path.name not in _FOREIGN_DIRECTORIES][
        :SUBDIRECTORIES_MOST
    ]:
        detected = _detect_directory(path)
        if detected.tests:
            quoted_name = shlex.quote(path.name)
            setup = tuple(f"cd {quoted_name} && {command}" for command in detected.setup)
            tests = tuple(
                test.model_copy(update={"directory": path.name, "name": f"{path.name}: {test.name}"})
                for test in detected.tests
            )
            total += DetectedCommands(setup, tests, detected.kinds)
    return total


def _detect_python(root: Path) -> DetectedCommands:
    """Return the commands of a Python project in this directory; empty: there is none."""
    project = inspect_project(root)
    if project is None:
        return DetectedCommands()
    tests = (TestCommand(name=project.runner, command=project.test),) if project.test else ()
    return DetectedCommands(project.setup, tests, (project.kind,))


def _detect_node(root: Path) -> DetectedCommands:
    """Return the commands of a Node project (npm, pnpm, yarn) in this directory; empty where there is no package.json,
    or it is empty or malformed.

    It has tests where package.json has a test script other than the one that `npm init` writes, and setup where it
    names dependencies or workspaces.
    """
    package = read_json(root / "package.json")
    if not package:
        return DetectedCommands()
    manager, setup = _find_package_manager(root, package)
    has_dependencies = any(
        package.get(group) for group in ("dependencies", "devDependencies", "optionalDependencies", "workspaces")
    )
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    tests: tuple[TestCommand, ...] = ()
    if isinstance(script, str) and script.strip() and "no test specified" not in script:  # what `npm init` writes
        tests = (TestCommand(name=f"{manager} test", command=f"{manager} test"),)
    return DetectedCommands((setup,) if has_dependencies else (), tests, (manager,))


def _find_package_manager(root: Path, package: dict[str, Any]) -> tuple[str, str]:
    """Return (name of a Node project's package manager, its install command): that of the lock file, without one pnpm
    where `packageManager` names it, else npm. The command changes no lock file."""
    declared = str(package.get("packageManager", "")).partition("@")[0]
    if (root / "pnpm-lock.yaml").is_file():
        return "pnpm", "pnpm install --frozen-lockfile"
    if (root / "yarn.lock").is_file():
        return "yarn", "yarn install --frozen-lockfile"
    if (root / "package-lock.json").is_file() or (root / "npm-shrinkwrap.json").is_file():
        return "npm", "npm ci"
    if declared == "pnpm":
        return "pnpm", "pnpm install --no-lockfile"
    return "npm", "npm install --no-package-lock"


def _detect_go(root: Path) -> DetectedCommands:
    """Return the commands of a Go module in this directory; empty where there is none. Setup is empty where it requires
    no other module."""
    module = read_beginning(root / "go.mod")
    if not module:
        return DetectedCommands()
    has_dependencies = re.search(r"^[ \t]*require\b", module, re.MULTILINE)
    test = TestCommand(name="go test", command="go test ./...")
    return DetectedCommands(("go mod download",) if has_dependencies else (), (test,), ("go",))


def _detect_cargo(root: Path) -> DetectedCommands:
    """Return the commands of a Rust package or workspace in this directory; empty where there is none. Setup is empty
    where it has no dependencies and is no workspace."""
    manifest = read_toml(root / "Cargo.toml")
    if not manifest:
        return DetectedCommands()
    has_dependencies = any(
        manifest.get(table)
        for table in ("dependencies", "dev-dependencies", "build-dependencies", "target", "workspace")
    )
    fetch = "cargo fetch --locked" if (root / "Cargo.lock").is_file() else "cargo fetch"
    test = TestCommand(name="cargo test", command="cargo test")
    return DetectedCommands((fetch,) if has_dependencies else (), (test,), ("cargo",))


def _detect_jvm(root: Path) -> DetectedCommands:
    """Return the commands of a Maven or Gradle project in this directory; empty: there is none.

    Setup runs the tests once, whether they pass or fail: neither program has another command that fetches everything
    that tests need.
    """
    if (root / "pom.xml").is_file():
        maven = "./mvnw" if (root / "mvnw").is_file() else "mvn"
        test = TestCommand(name="mvn test", command=f"{maven} -B -o test")
        return DetectedCommands((f"{maven} -B -q -Dmaven.test.failure.ignore test",), (test,), ("maven",))
    if any((root / name).is_file() for name in _GRADLE):
        gradle = f"{'./gradlew' if (root / 'gradlew').is_file() else 'gradle'} --no-daemon"
        test = TestCommand(name="gradle test", command=f"{gradle} --offline test")
        return DetectedCommands((f"{gradle} --continue test || {gradle} testClasses",), (test,), ("gradle",))
    return DetectedCommands()


def _detect_make(root: Path) -> DetectedCommands:
    """Return `make test` where the makefile that GNU make would use has a `test` target; else nothing."""
    for name in ("GNUmakefile", "makefile", "Makefile"):  # in the order GNU make looks for them
        if (root / name).is_file():
            if re.search(r"^test\s*:(?!=)", read_beginning(root / name), re.MULTILINE):
                return DetectedCommands((), (TestCommand(name="make test", command="make test"),), ("make",))
            break
    return DetectedCommands()
