"""A repository's files name its toolchain; AGENTS.md is found beside them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.adapters.repository.config import NOTE_BYTES, load_repository_config, read_notes, render_config
from perdure.adapters.repository.detect import detect_commands
from perdure.adapters.repository.detect.commands import DetectedCommands
from perdure.models.config.repository import TestCommand
from tests.sandboxes import Files

UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        pass\n"
PYTEST = "def test_a():\n    pass\n"


def commands(found: DetectedCommands) -> list[str]:
    return [test.command for test in found.tests]


def test_a_locked_uv_project_syncs_with_the_group_that_brings_pytest(files: Files) -> None:
    root = files(
        {
            "pyproject.toml": '[project]\nname = "x"\n'
            '[project.optional-dependencies]\ncheck = ["pytest>=8"]\ndocs = ["mkdocs"]\n'
            '[dependency-groups]\ndev = ["ruff"]\nqa = ["pytest-cov"]\n',
            "uv.lock": 'version = 1\n\n[[package]]\nname = "pytest"\nversion = "8"\n',
            "tests/test_x.py": PYTEST,
        }
    )
    found = detect_commands(root)
    assert found.setup == ("uv sync --frozen --extra check --group qa",)
    assert commands(found) == ["uv run pytest -q"]


def test_pytest_is_installed_where_tests_need_it_and_nothing_brings_it(files: Files) -> None:
    root = files(
        {
            "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n',
            "tests/test_x.py": PYTEST,
        }
    )
    found = detect_commands(root)
    assert found.setup[0] == "python3 -m venv .venv"
    assert found.setup[1].endswith("install --disable-pip-version-check -e . pytest")
    assert commands(found) == [".venv/bin/python -m pytest -q"]


def test_extras_of_setup_py_are_not_taken_for_installed(files: Files) -> None:
    root = files({"setup.py": "setup(extras_require={'test': ['pytest']})", "tests/test_x.py": UNITTEST})
    assert detect_commands(root).setup[1].endswith("-e . pytest")


def test_declared_test_requirements_are_installed_and_pytest_is_not_repeated(files: Files) -> None:
    root = files(
        {
            "pyproject.toml": '[project]\nname = "x"\ndependencies = ["httpx"]\n'
            '[project.optional-dependencies]\ntest = ["pytest"]\n'
            '[dependency-groups]\ntest = [{include-group = "base"}, "freezegun>=1"]\nbase = ["attrs"]\n',
            "requirements.txt": "httpx\n",
            "tests/test_x.py": PYTEST,
        }
    )
    assert detect_commands(root).setup[1].endswith("-e '.[test]' -r requirements.txt attrs 'freezegun>=1'")


def test_a_plain_project_with_unittest_needs_no_setup(files: Files) -> None:
    root = files({"x.py": "", "tests/__init__.py": "", "tests/test_x.py": UNITTEST})
    found = detect_commands(root)
    assert found.setup == ()
    assert commands(found) == ["python3 -m unittest discover -s tests -t ."]


@pytest.mark.parametrize("package", ["calc", "src/calc"])
def test_tests_inside_a_package_are_those_of_the_project(files: Files, package: str) -> None:
    tests = {f"{package}/__init__.py": "", f"{package}/tests/test_x.py": PYTEST, f"{package}/tests/__init__.py": ""}
    found = detect_commands(files({"setup.py": "", **tests}))
    assert [(test.command, test.directory) for test in found.tests] == [(".venv/bin/python -m pytest -q", "")]
    assert found.setup == (
        "python3 -m venv .venv",
        ".venv/bin/python -m pip install --disable-pip-version-check -e . pytest",
    )


def test_a_plain_project_with_pytest_style_tests_gets_pytest(files: Files) -> None:
    found = detect_commands(files({"x.py": "", "tests/test_x.py": PYTEST}))
    assert found.setup[1].endswith("check pytest")


@pytest.mark.parametrize(
    ("lock", "setup", "test"),
    [
        ("package-lock.json", "npm ci", "npm test"),
        ("pnpm-lock.yaml", "pnpm install --frozen-lockfile", "pnpm test"),
        ("yarn.lock", "yarn install --frozen-lockfile", "yarn test"),
        ("none", "npm install --no-package-lock", "npm test"),
    ],
)
def test_node_projects_are_installed_from_their_lock(files: Files, lock: str, setup: str, test: str) -> None:
    root = files({"package.json": '{"scripts": {"test": "vitest"}, "devDependencies": {"vitest": "3"}}', lock: ""})
    found = detect_commands(root)
    assert (found.setup, commands(found)) == ((setup,), [test])


def test_a_node_project_without_dependencies_needs_no_setup_and_a_placeholder_is_no_test(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'})
    assert detect_commands(root) == DetectedCommands(kinds=("npm",))


def test_go_and_cargo_download_what_they_require(files: Files) -> None:
    root = files(
        {
            "go.mod": "module x\n\nrequire a v1\n",
            "Cargo.toml": "[package]\nname='x'\n[dependencies]\na='1'\n",
            "Cargo.lock": "",
        }
    )
    found = detect_commands(root)
    assert found.setup == ("go mod download", "cargo fetch --locked")
    assert commands(found) == ["go test ./...", "cargo test"]


CLEAN_MAVEN = " && find . -name pom.xml -execdir rm -rf target ';'"
CLEAN_GRADLE = " && find . -name 'build.gradle*' -execdir rm -rf build ';' && rm -rf .gradle"


@pytest.mark.parametrize(
    ("there", "setup", "test"),
    [
        (["pom.xml"], "mvn -B -q -Dmaven.test.failure.ignore test" + CLEAN_MAVEN, "mvn -B -o test"),
        (["pom.xml", "mvnw"], "./mvnw -B -q -Dmaven.test.failure.ignore test" + CLEAN_MAVEN, "./mvnw -B -o test"),
        (
            ["build.gradle.kts"],
            "gradle --no-daemon --continue test || gradle --no-daemon testClasses" + CLEAN_GRADLE,
            "gradle --no-daemon --offline test",
        ),
        (
            ["settings.gradle", "gradlew"],
            "./gradlew --no-daemon --continue test || ./gradlew --no-daemon testClasses" + CLEAN_GRADLE,
            "./gradlew --no-daemon --offline test",
        ),
    ],
)
def test_maven_and_gradle_run_the_tests_once_in_setup_and_then_offline(
    files: Files, there: list[str], setup: str, test: str
) -> None:
    found = detect_commands(files(dict.fromkeys(there, "")))
    assert (found.setup, commands(found)) == ((setup,), [test])


def test_without_dependencies_go_and_cargo_just_test(files: Files) -> None:
    found = detect_commands(files({"go.mod": "module x\n", "Cargo.toml": "[package]\nname='x'\n"}))
    assert (found.setup, commands(found)) == ((), ["go test ./...", "cargo test"])


def test_make_test_counts_only_where_nothing_else_tests(files: Files) -> None:
    root = files({"Makefile": "test := 1\n\ntest: build\n\ttrue\n"})
    assert commands(detect_commands(root)) == ["make test"]
    files({"tests/test_x.py": UNITTEST})
    assert commands(detect_commands(root)) == ["python3 -m unittest discover -s tests"]
    assert detect_commands(files({"Makefile": "test := 1\n"})).kinds == ("python",)


def test_files_that_cannot_be_read_are_taken_as_absent(files: Files) -> None:
    root = files({"pyproject.toml": "[[[", "package.json": "{", "Cargo.toml": "\x00"})
    os.mkfifo(root / "Makefile")
    assert detect_commands(root).tests == ()


@pytest.mark.parametrize(
    "found",
    [
        DetectedCommands(),
        DetectedCommands(
            ("python3 -m venv .venv", "pip install 'a>=1' \"b\""), (TestCommand(name='ü"\\', command="x\ty\x7f"),)
        ),
        DetectedCommands(("npm ci",), (TestCommand(name="a", command="b"), TestCommand(name="c", command="d"))),
    ],
)
def test_what_init_writes_loads_again(found: DetectedCommands) -> None:
    config = load_repository_config(render_config(found), "perdure.toml")
    assert config.setup.commands == found.setup
    assert (config.test or ()) == found.tests


def test_what_init_writes_for_this_repository_loads_again() -> None:
    found = detect_commands(Path(__file__).parents[3])
    assert load_repository_config(render_config(found), "perdure.toml").test == found.tests


def test_parts_of_a_monorepo_are_set_up_and_tested_in_their_own_directories(files: Files) -> None:
    root = files(
        {
            "back end/pyproject.toml": '[project]\nname = "x"\ndependencies = ["attrs"]\n',
            "back end/tests/test_x.py": UNITTEST,
            "web/package.json": '{"scripts": {"test": "node --test"}, "dependencies": {"a": "1"}}',
            "examples/demo/Makefile": "test:\n\ttrue\n",
            "docs/Makefile": "test:\n\ttrue\n",
            "package.json": '{"private": true}',
        }
    )
    found = detect_commands(root)
    assert [(test.directory, test.name, test.command) for test in found.tests] == [
        ("back end", "back end: unittest", ".venv/bin/python -m unittest discover -s tests"),
        ("web", "web: npm test", "npm test"),
    ]
    assert found.setup[0] == "cd 'back end' && python3 -m venv .venv"
    assert found.setup[-1] == "cd web && npm install --no-package-lock"
    assert load_repository_config(render_config(found), "perdure.toml").test == found.tests
    (root / "Makefile").write_text("test:\n\ttrue\n")
    assert commands(detect_commands(root)) == ["make test"]


def test_notes_come_in_the_configured_order_and_missing_ones_are_left_out(files: Files) -> None:
    root = files({"AGENTS.md": "use tabs", "docs/STYLE.md": "no tabs", "EMPTY.md": " \n"})
    notes = read_notes(root, ["docs/STYLE.md", "CLAUDE.md", "EMPTY.md", "AGENTS.md"])
    assert [(note.path, note.text) for note in notes] == [("docs/STYLE.md", "no tabs"), ("AGENTS.md", "use tabs")]


def test_a_long_note_is_cut_visibly_within_a_character(files: Files) -> None:
    (note,) = read_notes(files({"AGENTS.md": "x" + "ü" * NOTE_BYTES}), ["AGENTS.md"])
    assert note.text.endswith("ü\n… cut at 32 KiB\n")
    assert len(note.text.encode()) < NOTE_BYTES + 50


def test_a_second_name_for_the_same_file_is_read_once(files: Files) -> None:
    root = files({"AGENTS.md": "text"})
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    assert [note.path for note in read_notes(root, ["AGENTS.md", "CLAUDE.md"])] == ["AGENTS.md"]


def test_nothing_outside_the_tree_is_read(files: Files, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("secret")
    root = files({".git/description": "secret"})
    (root / "AGENTS.md").symlink_to("../secret.md")
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    names = ["AGENTS.md", "../secret.md", str(tmp_path / "secret.md"), ".git/description", "loop", "pipe", "."]
    assert read_notes(root, names) == ()
