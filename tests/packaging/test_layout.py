"""The repository keeps its rules: lock, dependencies, arrows, CI, who writes state, what the client loads."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # has no types of its own
from grimp import build_graph
from importlinter.application.use_cases import lint_imports
from importlinter.configuration import configure
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pydantic import BaseModel

from perdure import client
from perdure.models.backlog.state import BacklogState, ItemState
from perdure.models.delivery.state import DeliveryState

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
    packages = {module for module in graph.modules if graph.find_children(module)}
    imported = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert len(imported) > 300
    for module, targets in imported.items():  # to import a module is to import the packages that it stands in, first
        above = {".".join(target.split(".")[:depth]) for target in targets for depth in range(1, target.count(".") + 1)}
        targets |= {package for package in above & packages if not module.startswith(f"{package}.")} - {module}
    list(TopologicalSorter(imported).static_order())  # raises CycleError, which names the modules of a circle


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in yaml.safe_load(workflow.read_text())["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit_and_says_its_version(workflow: Path) -> None:
    lines = [line.strip() for line in workflow.read_text().splitlines() if re.search(r"\buses:", line)]
    assert len(lines) == sum("uses" in step for step in steps(workflow))
    for line in lines:
        assert re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_and_keeps_no_token_in_the_checkout(workflow: Path) -> None:
    assert yaml.safe_load(workflow.read_text())["permissions"] == {"contents": "read"}
    checkouts = [step for step in steps(workflow) if "actions/checkout@" in step.get("uses", "")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_the_nightly_job_runs_what_a_push_does_not() -> None:
    ran = " ; ".join(step.get("run", "") for step in steps(ROOT / ".github" / "workflows" / "night.yml"))
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make ([\w-]+)", ran):
        assert re.search(rf"(?m)^{target}:", makefile), f"there is no make {target}"
    assert {"attack", "chaos", "test-slow"} <= set(re.findall(r"make ([\w-]+)", ran))


STATES = (DeliveryState, BacklogState, ItemState)


def pieces() -> dict[str, list[type[BaseModel]]]:
    """By the name that a state gives it, the classes of that piece: those whose docstring says who writes it."""
    found: dict[str, list[type[BaseModel]]] = {}
    for state in STATES:
        for name, field in state.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel) and "ritten by" in (kind.__doc__ or ""):
                found.setdefault(name, []).append(kind)
    return found


def test_a_piece_is_written_by_whom_its_docstring_names() -> None:
    known, strangers = pieces(), list[str]()
    assert len(known) > 15
    for path in sorted((ROOT / "workflows").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)):
                continue
            owner = node.value.attr if isinstance(node.value, ast.Attribute) else ""
            kinds = [kind for kind in known.get(owner, []) if node.attr in kind.model_fields]
            if kinds and not any(f"workflows/{path.name}" in (kind.__doc__ or "") for kind in kinds):
                strangers.append(f"{path.name}:{node.lineno} writes {owner}.{node.attr}")
    assert strangers == []


def test_the_named_files_are_there() -> None:
    for kind in (kind for kinds in pieces().values() for kind in kinds):
        for name in re.findall(r"\b((?:workflows|perdure)/[\w/]+\.py)", kind.__doc__ or ""):
            assert (ROOT / name).exists(), f"{kind.__name__}: {name}"


HEAVY = {
    "activities", "aiohttp", "anthropic", "detect_secrets", "git", "github", "jinja2", "junitparser", "markdown_it",
    "openapi_schema_validator", "perdure.adapters", "perdure.cli", "perdure.local", "perdure.rehearsal", "platformdirs",
    "playwright", "rich", "typer", "workflows", "yaml",
}  # fmt: skip


@pytest.mark.parametrize("module", ["perdure.client.namespace", "perdure.plugin"])
def test_importing_it_loads_nothing_that_only_the_engine_needs(module: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines() if line.startswith("import time:")}
    assert module in loaded
    assert sorted(HEAVY & loaded) == []
    assert len(loaded) > 100, "the list was not read"


NOT_FOR_CLIENTS = {"anthropic", "perdure.local.replay", "perdure.plugin", "temporalio.plugin", "temporalio.worker"}
NOT_FOR_LISTS = {
    "perdure.cli.look.watch", "perdure.cli.session", "perdure.client.backlog", "perdure.client.delivery.handle",
    "perdure.client.history.fold", "perdure.models.config.repository", "perdure.models.delivery.state",
}  # fmt: skip


@pytest.mark.parametrize(
    ("module", "unneeded"),
    [
        ("perdure.cli.look.listing", NOT_FOR_CLIENTS | NOT_FOR_LISTS),
        ("perdure.cli.look.delivery_commands", NOT_FOR_CLIENTS | {"perdure.cli.look.watch"}),
        ("perdure.cli.request.submit", NOT_FOR_CLIENTS),
    ],
)
def test_a_command_loads_nothing_that_only_other_commands_or_workers_need(module: str, unneeded: set[str]) -> None:
    script = f"import sys, {module}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert sorted(unneeded.intersection(ran.stdout.split())) == []


def test_every_name_of_the_client_is_there_when_it_is_asked_for() -> None:
    assert {name: getattr(client, name).__name__ for name in client.__all__} == {name: name for name in client.__all__}
    with pytest.raises(ImportError, match="cannot import name 'Nobody'"):
        exec("from perdure.client import Nobody")


def test_importing_the_client_builds_no_validator_and_a_worker_builds_all_of_them() -> None:
    script = """
import perdure.client.namespace
from perdure.models.base import LazyModel, build_models
from perdure.models.delivery.request import DeliveryRequest
from perdure.models.delivery.state import DeliveryState

def unbuilt(model):
    return (not model.__pydantic_complete__) + sum(unbuilt(kind) for kind in model.__subclasses__())

def built(model):
    here = {model.__name__} if model.__pydantic_complete__ else set()
    return here.union(*map(built, model.__subclasses__()))

assert not DeliveryRequest.__pydantic_complete__ and not DeliveryState.__pydantic_complete__
assert built(LazyModel) <= {"StepSettings", "Limits"}, built(LazyModel)
print(unbuilt(LazyModel))
build_models()
print(unbuilt(LazyModel))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    after_import, after_building = map(int, ran.stdout.split())
    assert after_import > 100
    assert after_building == 0
