"""Detection of a repository's toolchain from its files: how it is set up and how it is tested. Nothing is executed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.repository import python
from perdure.adapters.system.bounded import read_beginning, read_json, read_toml
from perdure.models.config import TestCommand

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
    """Return the commands of all toolchains that this directory's own files show."""
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
    project = python.inspect_project(root)
    if project is None:
        return DetectedCommands()
    tests = (TestCommand(name=project.runner, command=project.test),) if project.test else ()
    return DetectedCommands(project.setup, tests, (project.kind,))


def _detect_node(root: Path) -> DetectedCommands:
    """Return the commands of a Node project (npm, pnpm, yarn) in this directory; empty: there is none.

    It has tests where package.json has a test script other than the one that `npm init` writes.
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
    """Return the name of a Node project's package manager, and the install command that changes no lock file."""
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
    """Return the commands of a Go module in this directory; empty: there is none."""
    module = read_beginning(root / "go.mod")
    if not module:
        return DetectedCommands()
    has_dependencies = re.search(r"^[ \t]*require\b", module, re.MULTILINE)
    test = TestCommand(name="go test", command="go test ./...")
    return DetectedCommands(("go mod download",) if has_dependencies else (), (test,), ("go",))


def _detect_cargo(root: Path) -> DetectedCommands:
    """Return the commands of a Rust package or workspace in this directory; empty: there is none."""
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
