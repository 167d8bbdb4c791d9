"""Which command lines are recognised as which runner, and what is asked of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from perdure.adapters.checks.runners import make_invocation
from perdure.adapters.checks.runners.base import Invocation, ReportRequest
from perdure.adapters.checks.runners.node import Node
from perdure.models.config.repository import TestCommand
from tests.project_files import Files

RESULTS = Path("/results")


def call(command: str, tree: Path = Path("/nonexistent"), *, report: str | None = None, **env: str) -> Invocation:
    test = TestCommand.model_validate({"name": "unit", "command": command, "report": report})
    return make_invocation(test, RESULTS, tree, tree, env)


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "uv run pytest -q",
        "uv run --extra test --frozen pytest -q",
        "python -m pytest",
        ".venv/bin/python -X dev -m pytest tests",
        "cd sub && PYTHONPATH=src python3.11 -m pytest -q",
        "poetry run coverage run --source x -m pytest && coverage report",
        "pytest -q 2>&1 | tee log",
        "env A=1 pytest -k 'a && b'",
    ],
)
def test_pytest_is_recognised_and_asked_by_variable_only(command: str) -> None:
    result = call(command)
    assert result.script == command
    assert result.report == RESULTS / "junit.xml"
    assert "--junit-xml=/results/junit.xml" in shlex.split(result.env["PYTEST_ADDOPTS"])


@pytest.mark.parametrize(
    "command",
    [
        "echo pytest",
        "tox -e pytest",
        "pytest a && pytest b",
        "pytest --junitxml=own.xml",
        "python tool.py -m pytest",
        "bash -c 'pytest -q'",
        "if true; then pytest; fi",
        "make test",
        "pytest 'unclosed",
        "grep -- --test node",
    ],
)
def test_what_is_not_clearly_one_runner_keeps_to_its_exit_code(command: str) -> None:
    result = call(command)
    assert (result.script, result.report) == (command, None)


def test_report_exit_switches_everything_off() -> None:
    assert call("pytest", report="exit") == Invocation("pytest")


def test_any_command_may_write_the_report_it_owes_by_itself() -> None:
    result = call("make test", report="junit")
    assert result.report == Path(result.env["PERDURE_REPORT"])


def test_the_callers_own_options_stay() -> None:
    assert call("pytest", PYTEST_ADDOPTS="-x").env["PYTEST_ADDOPTS"].startswith("-x --junit-xml=")


def test_node_is_recognised_through_package_scripts(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "tsc && node --test test/", "unit": "node --test"}}'})
    for command in ("npm test", "npm run unit", "npm --silent test", "pnpm test", "yarn run unit", "node --test"):
        assert "--test-reporter-destination=/results/junit.xml" in call(command, root).env["NODE_OPTIONS"]
    assert call("npm run lint", root).report is None


def test_node_is_asked_also_where_the_shell_s_grammar_is_beyond_a_word_splitter() -> None:
    request = ReportRequest("npm test 'unclosed", " --", RESULTS / "junit.xml", Path("/none"), Path("/none"), {})
    invocation = Node().with_report(request)
    assert invocation is not None
    assert invocation.separator is None


def test_vitest_gets_arguments_only_where_they_reach_it(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "vitest run", "both": "vitest run && tsc"}}'})
    options = "--reporter=default --reporter=junit --outputFile.junit=/results/junit.xml"
    assert call("npx vitest run src", root).script == f"npx vitest run src {options}"
    assert call("npm test", root).script == f"npm test -- {options}"
    assert call("pnpm test", root).script == f"pnpm test {options}"
    for command in ("npm run both", "npx vitest run && echo done", "npx vitest run > log", "npx vitest run # fast"):
        assert call(command, root) == Invocation(command, "vitest", {"PERDURE_REPORT": "/results/junit.xml"}, None)


def test_jest_is_asked_only_where_its_reporter_is_installed(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "jest"}}'})
    assert call("npm test", root).report is None
    files({"node_modules/jest-junit/package.json": "{}"})
    result = call("npm test", root)
    assert result.script == "npm test -- --ci --reporters=default --reporters=jest-junit"
    assert result.env["JEST_JUNIT_OUTPUT_FILE"] == str(result.report)


def test_a_runner_that_yields_counts_only_where_no_other_is_on_the_line(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "node --test"}}'})
    named = {command: call(command, root).runner for command in (
        "python -m unittest discover", "cargo test", "python -m unittest && pytest -q", "cargo test && npm test",
        "python -m unittest && cargo test",
    )}  # fmt: skip
    assert list(named.values()) == ["unittest", "cargo", "pytest", "node", ""]


def test_unittest_and_go_are_given_reports_of_ours() -> None:
    assert call("uv run python -W error -m unittest -q").script == (
        "uv run python -W error /results/unittest_report.py /results/junit.xml -q"
    )
    assert call("CGO_ENABLED=0 go  test ./... && true").script == (
        "CGO_ENABLED=0 > /results/junit.jsonl go test -json ./... && true"
    )
    for command in ("go test -c .", "go test ./... > log", "go test -json ./..."):
        assert (call(command).script, call(command).report) == (command, None)


def test_a_unittest_that_stops_at_its_first_failure_is_partial() -> None:
    found = {command: call(command).partial for command in (
        "python -m unittest -f", "python -m unittest -vf discover", "python -m unittest -v",
        "python -m unittest && true",
    )}  # fmt: skip
    assert list(found.values()) == [True, True, False, True]
