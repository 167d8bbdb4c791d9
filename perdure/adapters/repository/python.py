"""Setup and tests of a Python project, read from its files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.system.bounded import read, read_toml

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
_LOOKED_AT = 200  # test files; enough to see which framework they are written for


@dataclass(frozen=True)
class PythonProject:
    """kind: `uv`, `pip` or `python` (no setup). `runner` names the test command; `test` is empty without tests."""

    kind: str
    setup: tuple[str, ...]
    runner: str
    test: str


def inspect(root: Path) -> PythonProject | None:
    """None when nothing here is Python.

    - With `uv.lock`: `uv sync` with the extras and groups that are for tests or bring pytest; tests through `uv run`
      (in the sandbox it does not sync again).
    - Else a virtual environment `.venv` with the project, its requirements files, and the extras and groups that are
      for tests; pytest is added when the tests need it and nothing declares it.
    - A project without anything to install whose tests are all plain unittest needs no setup. One whose tests need
      pytest gets a `.venv` with pytest alone: whether this host's python3 happens to have it is not the
      repository's property, and a verdict should not depend on it.
    """
    facts = _Facts(root)
    if not facts.is_python:
        return None
    if facts.locked:
        return _uv(facts)
    installs = _installs(facts)
    if facts.needs_pytest and not facts.brings_pytest:
        installs.append("pytest")
    if not installs:
        return PythonProject("python", (), "unittest", _unittest("python3", root) if facts.has_tests else "")
    # One pip call: the resolver sees everything, and a repeated setup changes nothing.
    setup = (
        "python3 -m venv .venv",
        f".venv/bin/python -m pip install --disable-pip-version-check {shlex.join(installs)}",
    )
    if facts.needs_pytest:
        return PythonProject("pip", setup, "pytest", ".venv/bin/python -m pytest -q")
    return PythonProject("pip", setup, "unittest", _unittest(".venv/bin/python", root) if facts.has_tests else "")


def _uv(facts: _Facts) -> PythonProject:
    options = "".join(
        f" --extra {name}" for name, needs in facts.extras.items() if name in _FOR_TESTS or _has_pytest(needs)
    ) + "".join(
        f" --group {name}"
        for name, needs in facts.groups.items()
        if name != "dev" and (name in _FOR_TESTS or _has_pytest(needs))
    )
    setup = [f"uv sync --frozen{options}"]
    if not facts.needs_pytest:
        test = _unittest("uv run python", facts.root) if facts.has_tests else ""
        return PythonProject("uv", tuple(setup), "unittest", test)
    if not facts.brings_pytest:
        setup.append("uv pip install pytest")
    return PythonProject("uv", tuple(setup), "pytest", "uv run pytest -q")


def _installs(facts: _Facts) -> list[str]:
    """Arguments of one `pip install`."""
    found: list[str] = []
    if facts.installable:
        extras = [name for name, needs in facts.extras.items() if name in _FOR_TESTS or _has_pytest(needs)]
        found += ["-e", f".[{','.join(extras)}]" if extras else "."]
    for name in _REQUIREMENTS:
        if (facts.root / name).is_file():
            found += ["-r", name]
    for name, needs in facts.groups.items():
        if name in _FOR_TESTS or _has_pytest(needs):
            found += [need for need in needs if need not in found]
    return found


def _unittest(interpreter: str, root: Path) -> str:
    for folder in ("tests", "test"):
        if (root / folder).is_dir():
            top = " -t ." if (root / folder / "__init__.py").is_file() else ""
            return f"{interpreter} -m unittest discover -s {folder}{top}"
    return f"{interpreter} -m unittest discover"


class _Facts:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.pyproject = read_toml(root / "pyproject.toml")
        self.locked = (root / "uv.lock").is_file()
        project = _table(self.pyproject, "project")
        self.extras = {str(k): _strings(v) for k, v in _table(project, "optional-dependencies").items()}
        groups = _table(self.pyproject, "dependency-groups")
        self.groups = {str(name): list(_group(groups, str(name))) for name in groups}
        self.installable = bool(
            (root / "setup.py").is_file()
            or "build-system" in self.pyproject
            or project.get("dependencies")
            or (project and (root / "src").is_dir())
        )
        self._tests = [read(path, 64 * 1024) for path in _test_files(root)]
        self.has_tests = bool(self._tests)
        self.needs_pytest = self._pytest_configured() or (
            self.has_tests and (self.declares_pytest or any(map(_is_pytest_style, self._tests)))
        )

    @property
    def is_python(self) -> bool:
        names = ("pyproject.toml", "setup.py", "setup.cfg", *_REQUIREMENTS)
        return self.locked or self.has_tests or any((self.root / name).is_file() for name in names)

    @property
    def brings_pytest(self) -> bool:
        """True where what gets installed includes pytest, itself or through a plugin of it."""
        if self.locked:
            return '\nname = "pytest"\n' in read(self.root / "uv.lock")
        declared = _strings(_table(self.pyproject, "project").get("dependencies"))
        declared += [need for needs in (*self.extras.values(), *self.groups.values()) for need in needs]
        return _has_pytest(declared) or any(_has_pytest([read(self.root / name)]) for name in _REQUIREMENTS)

    @property
    def declares_pytest(self) -> bool:
        """Also where it is mentioned but not installed: in extras of setup.py and setup.cfg."""
        return self.brings_pytest or _has_pytest([read(self.root / name) for name in ("setup.py", "setup.cfg")])

    def _pytest_configured(self) -> bool:
        tool = _table(_table(self.pyproject, "tool"), "pytest")
        if tool or any((self.root / name).is_file() for name in ("pytest.ini", "conftest.py", "tests/conftest.py")):
            return True
        sections = {"setup.cfg": "tool:pytest", "tox.ini": "pytest"}
        return any(_has_section(read(self.root / name), section) for name, section in sections.items())


def _test_files(root: Path) -> list[Path]:
    """`test_*.py` and `*_test.py` at the top and in tests/ or test/, symbolic links not followed."""
    found: list[Path] = []
    for folder, pattern in ((root, "*.py"), (root / "tests", "**/*.py"), (root / "test", "**/*.py")):
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in folder.glob(pattern):
            if re.fullmatch(r"test_.*|.*_test|tests", path.stem) and path.is_file():
                found.append(path)
                if len(found) >= _LOOKED_AT:
                    return found
    return found


def _is_pytest_style(source: str) -> bool:
    return bool(re.search(r"^(?:import pytest|from pytest)\b|^(?:async )?def test_", source, re.MULTILINE))


def _has_pytest(requirements: list[str]) -> bool:
    return any(re.search(r"""(?:^|['"\s])pytest(?![A-Za-z0-9.])""", need, re.MULTILINE) for need in requirements)


def _has_section(text: str, section: str) -> bool:
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return False
    return parser.has_section(section)


def _group(groups: dict[str, Any], name: str, seen: tuple[str, ...] = ()) -> Iterator[str]:
    """A dependency group's requirements, included groups too."""
    entries = groups.get(name)
    for entry in entries if isinstance(entries, list) and name not in seen else []:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            yield from _group(groups, str(entry.get("include-group", "")), (*seen, name))


def _table(table: dict[str, Any], name: str) -> dict[str, Any]:
    value = table.get(name)
    return value if isinstance(value, dict) else {}


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
