"""What holds for the repository as a whole: its lock, its dependencies, its arrows, what its files may name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import pytest
from grimp import build_graph
from importlinter.application.use_cases import lint_imports
from importlinter.configuration import configure
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUNTIME: list[str] = PYPROJECT["project"]["dependencies"]
DEV: list[str] = PYPROJECT["dependency-groups"]["dev"]

# Written apart, so that this file does not name them either.
FOREIGN = re.compile(
    r"py"
    r"pi\.org|python"
    r"hosted\.org|registry\.npm"
    r"js|deb\.deb"
    r"ian\.org|proxy\.gol"
    r"ang\.org|static\.crates"
    r"|(?<![\w./~$}-])/(?:wor"
    r"k/(?:main|shared)|opt/(?:whee"
    r"ls|py"
    r"pi))\b"
)


def locked(name: str) -> dict[str, tuple[str, str, int]]:
    """Package → (version, marker, number of hashes) of a lock file."""
    pins = {}
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text().strip()):
        head, *hashes = [part.strip() for part in entry.replace("\\\n", "\n").splitlines()]
        pin, _, marker = head.partition(" ; ")
        package, _, version = pin.partition("==")
        assert version, f"not pinned: {head}"
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", line) for line in hashes), head
        pins[canonicalize_name(package)] = (version, marker, len(hashes))
    return pins


@pytest.mark.parametrize(
    ("lock", "wanted"), [("requirements.lock", RUNTIME + DEV), ("requirements-run.lock", RUNTIME)], ids=["dev", "run"]
)
def test_the_lock_pins_every_direct_dependency_as_pyproject_asks(lock: str, wanted: list[str]) -> None:
    pins = locked(lock)
    for text in wanted:
        requirement = Requirement(text)
        assert canonicalize_name(requirement.name) in pins, f"{requirement.name}: run make lock"
        version, marker, hashes = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text} against {version}: run make lock"
        assert marker == str(requirement.marker or "").replace('"', "'")
        assert hashes


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-run.lock"])
def test_every_locked_package_has_hashes_and_every_marker_can_be_read(lock: str) -> None:
    for package, (_, marker, hashes) in locked(lock).items():
        assert hashes, package
        if marker:
            Marker(marker)


def test_the_two_locks_agree_and_the_running_one_holds_no_tools() -> None:
    everything, running = locked("requirements.lock"), locked("requirements-run.lock")
    assert {name: everything[name][0] for name in running} == {name: pin[0] for name, pin in running.items()}
    assert not {"pytest", "mypy", "ruff", "hatchling"} & running.keys()


def test_what_is_installed_is_what_the_lock_says() -> None:
    """The closure of our dependencies, as the packages themselves declare it, is locked: nothing is missing from it."""
    pins = locked("requirements.lock")
    todo, seen = [Requirement(text) for text in RUNTIME + DEV], set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(name)
        assert name in pins, f"{name} is needed, but not locked: run make lock"
        try:
            assert version(name) == pins[name][0], f"{name}: remove .venv/.ready and run make again"
        except PackageNotFoundError:
            pytest.fail(f"{name} is locked, but not installed: remove .venv/.ready and run make again")
        todo += [Requirement(text) for text in requires(name) or ()]


def test_every_direct_dependency_carries_its_reason() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for requirement in RUNTIME + DEV:
        (line,) = [line for line in lines if line.strip().startswith(f'"{requirement}"')]
        assert re.search(r'",\s+# \S.{8,}', line), f"why {requirement}?"


def test_no_file_names_a_package_host_or_a_path_of_the_machine_it_was_written_on() -> None:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    names = [name for name in os.fsdecode(listed).split("\0") if name and (ROOT / name).is_file()]
    assert "pyproject.toml" in names
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in names
        for number, line in enumerate((ROOT / name).read_text(errors="replace").splitlines(), 1)
        if FOREIGN.search(line)
    ]
    assert not found, "\n".join(found)


def test_the_workflows_load_no_model_client_no_git_and_no_subprocess_of_their_own() -> None:
    imports = importers("import asyncio, workflows")
    assert "workflows.delivery" in imports
    assert not {"anthropic", "git", "aiohttp", "perdure.adapters"} & imports.keys()
    # asyncio itself imports subprocess; that ours do not, even second, is the arrows' business (pyproject.toml).
    assert imports["subprocess"].startswith("asyncio"), imports["subprocess"]


def test_what_the_import_check_looks_for_would_be_seen() -> None:
    imports = importers("import asyncio, perdure.models, git")
    assert "git" in imports


def importers(code: str) -> dict[str, str]:
    """Module → the module whose import first brought it in, '' for `code` itself."""
    command = [sys.executable, "-X", "importtime", "-c", code]
    log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stderr
    rows = [
        (len(indented) - len(indented.lstrip()), indented.strip())
        for indented in (line.rpartition("|")[2] for line in log.splitlines() if line.startswith("import time:"))
    ]
    parents: dict[str, str] = {}
    above: dict[int, str] = {}
    for depth, module in reversed(rows):  # a module is reported after everything it imported
        above[depth] = module
        parents[module] = above.get(depth - 2, "")
    return parents


def test_every_arrow_of_the_architecture_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)  # the linter finds its configuration there
    configure()
    assert lint_imports(config_filename="pyproject.toml", cache_dir=None), capsys.readouterr().out


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = build_graph("perdure", "workflows", "activities", cache_dir=None)
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imported) > 300
    list(TopologicalSorter(imported).static_order())  # raises CycleError, which names the modules of a circle
