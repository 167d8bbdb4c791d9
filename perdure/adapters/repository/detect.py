"""A repository's toolchain, read from its files: how it is set up and how it is tested. Nothing is executed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perdure.adapters.repository import python
from perdure.adapters.system.bounded import read, read_json, read_toml
from perdure.models.config import TestCommand

PARTS_MOST = 50
"""Directories of a monorepo that are looked at for a toolchain of their own: each is some file names and a manifest."""


DEPENDENCIES = (".venv", "node_modules")
"""Directories that setup fills inside a worktree; what cargo and go download is kept by the sandbox."""


_NO_PARTS = {*DEPENDENCIES, "tests", "test", "docs", "examples", "vendor", "third_party", "fixtures", "build", "dist"}
"""Directories whose toolchains are not the repository's own."""


_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")


@dataclass(frozen=True)
class Detected:
    """Commands as they would stand in perdure.toml; `kinds` names what was recognised (`uv`, `pip`, `npm`, `go` …)."""

    setup: tuple[str, ...] = ()
    tests: tuple[TestCommand, ...] = ()
    kinds: tuple[str, ...] = ()

    def __add__(self, other: Detected) -> Detected:
        return Detected(self.setup + other.setup, self.tests + other.tests, self.kinds + other.kinds)


def detect(root: Path) -> Detected:
    """Read the files in `root`, all toolchains together. A `test` target of make counts only where nothing else
    was found to test: it usually runs the same tests once more. Where there is nothing to test at the top, the
    directories below it are looked at, one level down. Files that cannot be parsed are taken as absent."""
    found = _detect(root)
    return found if found.tests else found + _parts(root)


def _detect(root: Path) -> Detected:
    found = _python(root) + _node(root) + _go(root) + _cargo(root) + _jvm(root)
    return found if found.tests else found + _make(root)


def _parts(root: Path) -> Detected:
    """Of a monorepo: each part is set up and tested in its own directory."""
    whole = Detected()
    below = (path for path in sorted(root.iterdir()) if path.is_dir() and not path.is_symlink())
    for path in [path for path in below if path.name[0] not in "._" and path.name not in _NO_PARTS][:PARTS_MOST]:
        part = _detect(path)
        if part.tests:
            place = shlex.quote(path.name)
            setup = tuple(f"cd {place} && {command}" for command in part.setup)
            tests = tuple(
                test.model_copy(update={"directory": path.name, "name": f"{path.name}: {test.name}"})
                for test in part.tests
            )
            whole += Detected(setup, tests, part.kinds)
    return whole


def _python(root: Path) -> Detected:
    project = python.inspect(root)
    if project is None:
        return Detected()
    tests = (TestCommand(name=project.runner, command=project.test),) if project.test else ()
    return Detected(project.setup, tests, (project.kind,))


def _node(root: Path) -> Detected:
    package = read_json(root / "package.json")
    if not package:
        return Detected()
    manager, setup = _package_manager(root, package)
    needs = any(
        package.get(group) for group in ("dependencies", "devDependencies", "optionalDependencies", "workspaces")
    )
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    tests: tuple[TestCommand, ...] = ()
    if isinstance(script, str) and script.strip() and "no test specified" not in script:  # what `npm init` writes
        tests = (TestCommand(name=f"{manager} test", command=f"{manager} test"),)
    return Detected((setup,) if needs else (), tests, (manager,))


def _package_manager(root: Path, package: dict[str, Any]) -> tuple[str, str]:
    """Its name, and the installation that changes no lock file."""
    named = str(package.get("packageManager", "")).partition("@")[0]
    if (root / "pnpm-lock.yaml").is_file():
        return "pnpm", "pnpm install --frozen-lockfile"
    if (root / "yarn.lock").is_file():
        return "yarn", "yarn install --frozen-lockfile"
    if (root / "package-lock.json").is_file() or (root / "npm-shrinkwrap.json").is_file():
        return "npm", "npm ci"
    if named == "pnpm":
        return "pnpm", "pnpm install --no-lockfile"
    return "npm", "npm install --no-package-lock"


def _go(root: Path) -> Detected:
    module = read(root / "go.mod")
    if not module:
        return Detected()
    needs = re.search(r"^[ \t]*require\b", module, re.MULTILINE)
    test = TestCommand(name="go test", command="go test ./...")
    return Detected(("go mod download",) if needs else (), (test,), ("go",))


def _cargo(root: Path) -> Detected:
    manifest = read_toml(root / "Cargo.toml")
    if not manifest:
        return Detected()
    needs = any(
        manifest.get(table)
        for table in ("dependencies", "dev-dependencies", "build-dependencies", "target", "workspace")
    )
    fetch = "cargo fetch --locked" if (root / "Cargo.lock").is_file() else "cargo fetch"
    test = TestCommand(name="cargo test", command="cargo test")
    return Detected((fetch,) if needs else (), (test,), ("cargo",))


def _jvm(root: Path) -> Detected:
    """Setup runs the tests once, whether they pass or fail: neither program has another command that fetches all that
    they take."""
    if (root / "pom.xml").is_file():
        maven = "./mvnw" if (root / "mvnw").is_file() else "mvn"
        test = TestCommand(name="mvn test", command=f"{maven} -B -o test")
        return Detected((f"{maven} -B -q -Dmaven.test.failure.ignore test",), (test,), ("maven",))
    if any((root / name).is_file() for name in _GRADLE):
        gradle = f"{'./gradlew' if (root / 'gradlew').is_file() else 'gradle'} --no-daemon"
        test = TestCommand(name="gradle test", command=f"{gradle} --offline test")
        return Detected((f"{gradle} --continue test || {gradle} testClasses",), (test,), ("gradle",))
    return Detected()


def _make(root: Path) -> Detected:
    for name in ("GNUmakefile", "makefile", "Makefile"):  # in the order GNU make looks for them
        if (root / name).is_file():
            if re.search(r"^test\s*:(?!=)", read(root / name), re.MULTILINE):
                return Detected((), (TestCommand(name="make test", command="make test"),), ("make",))
            break
    return Detected()
