"""Honest changes of repositories that others wrote (real.toml): none is called tampered, the right tests are named."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from experiment_fixtures import Files, Trials

from perdure.models.checks.report import CanaryOutcome
from tests.guide import installed
from tests.needs import require


@dataclass(frozen=True)
class Repository:
    """A repository that others wrote.

    command  what runs its tests
    fetch    puts its files into a directory; raises CalledProcessError where no registry answers
    added    files of its own beginning that the registry leaves out
    packages of npm, installed as setup would
    """

    command: str
    fetch: Callable[[Path], None]
    added: dict[str, str]
    packages: tuple[str, ...] = ()


_BUILDS_NOTHING = """\
import pathlib
def prepare_metadata_for_build_wheel(into, settings=None):
    made = pathlib.Path(into, "tabulate-0.9.0.dist-info")
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\\nName: tabulate\\nVersion: 0.9.0\\n")
    return made.name
"""
"""pip asks a source's build system for its name; its own would be fetched and installed for that, five seconds."""


def _run(directory: Path, *words: str, **env: str) -> str:
    done = subprocess.run(
        words, cwd=directory, env={**os.environ, **env}, capture_output=True, text=True, timeout=240, check=True
    )
    return done.stdout


def _unpacked(directory: Path, pattern: str) -> None:
    (archive,) = directory.glob(pattern)
    _run(directory, "tar", "xzf", archive.name, "--strip-components=1")
    archive.unlink()


def _tabulate(directory: Path) -> None:
    given = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "--dest", ".", "tabulate==0.9.0"]
    with tempfile.TemporaryDirectory() as beside:
        Path(beside, "setuptools").mkdir()
        Path(beside, "setuptools", "__init__.py").touch()
        Path(beside, "setuptools", "build_meta.py").write_text(_BUILDS_NOTHING)
        _run(directory, sys.executable, "-m", "pip", "download", "--quiet", *given, PYTHONPATH=beside)
    _unpacked(directory, "tabulate-*.tar.gz")


def _process_warning(directory: Path) -> None:
    require("npm", "node")
    _run(directory, "npm", "pack", "--silent", "process-warning@5.1.1")
    _unpacked(directory, "process-warning-*.tgz")


def _humanize(directory: Path) -> None:
    require("go")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("only Debian's packages carry this one")
    _run(directory, "apt-get", "download", "golang-github-dustin-go-humanize-dev")
    (package,) = directory.glob("*.deb")
    if not _run(directory, "dpkg-deb", "--field", package.name, "Version").startswith("1.0.0"):
        pytest.skip("Debian has another version of it here")
    _run(directory, "dpkg-deb", "--extract", package.name, "debian")
    package.unlink()
    shutil.copytree(
        directory / "debian/usr/share/gocode/src/github.com/dustin/go-humanize", directory, dirs_exist_ok=True
    )
    shutil.rmtree(directory / "debian")


SNAPSHOT = """\
// Jest Snapshot v1, https://goo.gl/fbAQLP

exports[`tells what is to be said 1`] = `"DeprecationWarning CODE: Hello world"`;
"""
SNAPSHOT_TEST = """\
'use strict'

const { createDeprecation } = require('..')

test('tells what is to be said', () => {
  const warning = createDeprecation({ code: 'code', message: 'Hello %s' })
  expect(`${warning.name} ${warning.code}: ${warning.format('world')}`).toMatchSnapshot()
})
"""
NODE_SCRIPTS = {"package.json": '{"name": "process-warning", "main": "index.js", "scripts": {"test": "node --test"}}\n'}
JEST_SCRIPTS = {
    "package.json": '{"name": "process-warning", "main": "index.js", "scripts": {"test": "jest"}}\n',
    "jest.config.js": "module.exports = { testMatch: ['**/test/{jest,told}.test.js'] }\n",
    "test/told.test.js": SNAPSHOT_TEST,
    "test/__snapshots__/told.test.js.snap": SNAPSHOT,
}
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider test"

REPOSITORIES = {
    "tabulate": Repository(PYTEST, _tabulate, {}),
    "process-warning": Repository("npm test", _process_warning, NODE_SCRIPTS),
    "process-warning, jest": Repository("npx jest", _process_warning, JEST_SCRIPTS, ("jest@29",)),
    "go-humanize": Repository(
        "go test ./...", _humanize, {"go.mod": "module github.com/dustin/go-humanize\n\ngo 1.16\n"}
    ),
}


def fetched(name: str, shared: Path) -> dict[str, str]:
    """Path → text of its files, fetched once for all processes of a run; the test is left out where it cannot be."""
    place = shared / name.partition(",")[0]
    with (shared / f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            coming = shared / f"{place.name}.coming"
            shutil.rmtree(coming, ignore_errors=True)
            coming.mkdir()
            try:
                REPOSITORIES[name].fetch(coming)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                pytest.skip(f"no registry hands out {place.name}: {str(error.stderr)[-200:]}")
            coming.rename(place)
    files = {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}
    return {path: text.decode() for path, text in files.items()} | REPOSITORIES[name].added


TABLE = tomllib.loads((Path(__file__).parent / "real.toml").read_text())["change"]


def edited(before: dict[str, str], change: dict[str, Any]) -> Files:
    """The files of a change: moved ones, what is cut from one text up to another, what is replaced, new ones."""
    after: dict[str, str | None] = {}

    def now(path: str) -> str:
        text = after.get(path, before.get(path))
        assert text is not None, f"{path} is not in it"
        return text

    for old, new in change.get("moved", {}).items():
        after[new], after[old] = now(old), None
    for path, cuts in change.get("cuts", {}).items():
        for first, behind in cuts:
            head, found, tail = now(path).partition(first)
            assert found, f"{path} does not hold {first!r}"
            after[path] = head + behind + tail.partition(behind)[2] if behind else head
    for path, edits in change.get("edits", {}).items():
        for old, new in edits:
            assert old in now(path), f"{path} does not hold {old!r}"
            after[path] = now(path).replace(old, new)
    return {**after, **dict.fromkeys(change.get("gone", ()), None), **change.get("files", {})}


def marks(change: dict[str, Any]) -> list[pytest.MarkDecorator]:
    return [pytest.mark.story if change.get("quick") else pytest.mark.slow]


@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "change", [pytest.param(one, id=f"{one['of']}: {one['name']}", marks=marks(one)) for one in TABLE]
)
async def test_an_honest_change_of_a_real_repository(
    tried: Trials, change: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.getbasetemp()
    before = fetched(change["of"], base if base.name.startswith("pytest-") else base.parent)
    repository = REPOSITORIES[change["of"]]
    if repository.packages:
        installed(tried.worktree, *repository.packages)
    found = await tried(before, edited(before, change), repository.command)
    found = found.model_copy(update={"removes": "emove" in change["request"]})
    (one,) = found.commands
    told = found.model_dump_json(indent=1)
    assert not found.is_tampered, told
    assert sorted(promise.name.rpartition("::")[2] for promise in found.changed_promises) == sorted(
        change["promises"]
    ), told
    assert one.canaries is CanaryOutcome.CAUGHT, told
    assert bool(one.proving or one.unbuilt) == change["proves"], told
