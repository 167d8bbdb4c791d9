"""Command lines are recognised as their runner and asked for a report; fakes do as the real ones."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.runners import make_invocation
from perdure.adapters.checks.runners.base import Invocation, ReportRequest
from perdure.adapters.checks.runners.node import Node
from perdure.adapters.checks.verdict import verdict_of
from perdure.models.checks.report import CommandResult
from perdure.models.config.repository import TestCommand
from tests.needs import require
from tests.sandboxes import Bench, Files

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
        assert '--test-reporter-destination="/results/junit.xml"' in call(command, root).env["NODE_OPTIONS"]
    assert call("npm run lint", root).report is None


@pytest.mark.parametrize(
    ("makefile", "command", "runner"),
    [
        ("PY = python3\ntest: build\n\t@$(PY) -m pytest -q\nbuild:\n\ttrue\n", "make test", "pytest"),
        ("all: lint test\nlint:\n\truff .\ntest:\n\tMODE=1 rspec \\\n\t  spec\n", "FAST=1 make -s && true", "rspec"),
        ("test:\n\tprove -l t\n", "gmake check test", "prove"),
        ("test:\n\tgo test ./...\n", "make test", ""),  # takes arguments only
        ("test:\n\tpytest unit\n\tpytest more\n", "make test", ""),
        ("test:\n\tcd sub && pytest\n", "make test", ""),
        ("test:\n\tpytest\n", "make -C sub test", ""),
        ("test:\n\tpytest\nother:\n\ttrue\n", "make other", ""),
        ("test:\n\tdocker run x pytest\n", "make test", ""),
    ],
)
def test_make_is_looked_through_to_a_runner_that_variables_ask_for_a_report(
    files: Files, makefile: str, command: str, runner: str
) -> None:
    result = call(command, files({"Makefile": makefile}))
    assert (result.runner if result.report else "", result.separator) == (runner, None)
    assert not (result.report and result.report_required)


async def test_a_recipe_that_hides_the_variables_counts_by_its_exit_code(bench: Bench, files: Files) -> None:
    recipe = f"test:\n\t{{}}{sys.executable} -m pytest -q test_a.py\n"
    tree = {"test_a.py": "def test_a(): pass\ndef test_b(): assert 0\n", "Makefile": recipe.format("")}
    named = (await bench.run(files(tree), "make test")).commands[0]
    outcomes = {case.name: case.outcome for case in named.cases}
    assert outcomes == {"test_a.py::test_a": "passed", "test_a.py::test_b": "failed"}
    tree["Makefile"] = recipe.format("env -u PYTEST_ADDOPTS ")
    (hidden,) = (await bench.run(files(tree), "make test")).commands
    assert (hidden.verdict, hidden.cases) == ("failed", ())


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


def test_jest_is_given_a_reporter_of_ours_where_arguments_reach_it(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "jest", "both": "jest && tsc"}}'})
    result = call("npm test", root)
    assert result.script == "npm test -- --ci --reporters=default --reporters=/results/reporter.cjs"
    assert list(result.files) == [Path("/results/reporter.cjs")]
    assert call("npm run both", root).report is None


def test_what_runs_the_scripts_of_several_packages_is_not_taken_for_the_script_here(files: Files) -> None:
    root = files({"package.json": '{"scripts": {"test": "jest"}, "workspaces": ["packages/*"]}'})
    assert call("npm test", root).runner == "jest"
    for command in ("npm test --workspaces", "npm test -ws", "pnpm -r test", "pnpm --filter=a test", "npm test -w a"):
        assert call(command, root) == Invocation(command, env={"PERDURE_REPORT": "/results/junit.xml"})


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


FAKE = """\
#!/usr/bin/env -S python3 -S -E
import json, os, pathlib, sys, tomllib

arguments = sys.argv[1:]
with open("ran.log", "a") as log:
    print(json.dumps([pathlib.Path(sys.argv[0]).name, *arguments]), file=log)
text = " ".join(arguments)
alone = any(mark in text for mark in ("-run ", "-E ", "-Dtest=", "--tests ", "-t "))
if "--tool-config-file" in arguments:
    settings = arguments[arguments.index("--tool-config-file") + 1].removeprefix("perdure:")
    report = tomllib.loads(pathlib.Path(settings).read_text())["profile"]["default"]["junit"]["path"]
elif any(a.startswith("--reporters=/") for a in arguments):
    report = pathlib.Path(next(a for a in arguments if a.startswith("--reporters=/"))[12:]).with_name("junit.xml")
else:
    named = [a.partition("=")[2] for a in arguments if a.startswith(("--junitfile=", "--outputFile.junit="))]
    report = named[0] if named else "WHERE"
path = pathlib.Path(report)
path.parent.mkdir(parents=True, exist_ok=True)
case = '<testcase classname="CLASS" name="%s" time="0.1">%s</testcase>'
failure = "" if alone else '<failure message="not alone"/>'
cases = [case % ("NAME", failure)] + ([] if alone else [case % ("other", "")])
path.write_text("<testsuites><testsuite>" + "".join(cases) + "</testsuite></testsuites>")
sys.exit(0 if alone else 1)
"""

SUREFIRE, GRADLE = "target/surefire-reports/TEST-com.x.CalcTest.xml", "build/test-results/test/TEST-com.x.CalcTest.xml"


def fake(where: str, group: str, name: str) -> str:
    return FAKE.replace("WHERE", where).replace("CLASS", group).replace("NAME", name)


def calls(root: Path) -> list[list[str]]:
    return [json.loads(line) for line in (root / "ran.log").read_text().splitlines()]


@pytest.mark.parametrize(
    ("program", "command", "group", "name", "first", "again", "reproduces"),
    [
        (
            ".venv/bin/gotestsum", "gotestsum -- -race ./...", "example.com/calc", "TestAdd",
            ["gotestsum", "--junitfile=F", "--", "-race", "./..."],
            ["-run", "^TestAdd$"],
            "gotestsum -- -race ./... -run '^TestAdd$'",
        ),
        (
            ".venv/bin/cargo", "cargo nextest run", "calc", "tests::adds",
            ["cargo", "nextest", "run", "--no-fail-fast", "--tool-config-file", "perdure:F"],
            ["--lib", "-E", "test(=tests::adds) | test(=adds)"],
            "cargo nextest run -E 'test(=tests::adds) | test(=adds)'",
        ),
        (
            "mvnw", "./mvnw -q test", "com.x.CalcTest", "adds",
            ["mvnw", "-q", "test", "--fail-at-end"],
            ["-Dsurefire.failIfNoSpecifiedTests=false", "-Dtest=com.x.CalcTest#adds"],
            "./mvnw -q test -Dsurefire.failIfNoSpecifiedTests=false '-Dtest=com.x.CalcTest#adds'",
        ),
        (
            "gradlew", "./gradlew test", "com.x.CalcTest", "adds(int)[1]",
            ["gradlew", "test", "--continue"],
            ["--tests", "com.x.CalcTest.adds"],
            "./gradlew test --tests com.x.CalcTest.adds",
        ),
        (
            "node_modules/.bin/jest", "npx jest src", "src/x.test.js", "adds (1.5)",
            ["jest", "src", "--ci", "--reporters=default", "--reporters=F"],
            ["-t", r"^adds \(1\.5\)$"],
            r"npx jest src -t '^adds \(1\.5\)$'",
        ),
        (
            "node_modules/.bin/vitest", "npx vitest run", "src/x.test.ts", "sums > adds",
            ["vitest", "run", "--reporter=default", "--reporter=junit", "--outputFile.junit=F"],
            ["-t", "(^| )sums adds$"],
            "npx vitest run -t '(^| )sums adds$'",
        ),
    ],
    ids=["gotestsum", "nextest", "maven", "gradle", "jest", "vitest"],
)  # fmt: skip
async def test_a_known_runner_reports_case_by_case_and_is_asked_again_for_one_test_alone(
    bench: Bench, files: Files, program: str, command: str, group: str, name: str,
    first: list[str], again: list[str], reproduces: str,
) -> None:  # fmt: skip
    if command.startswith("npx "):
        require("npm")
    where = {"mvnw": SUREFIRE, "gradlew": GRADLE}.get(program, "")
    root = files({program: fake(where, group, name.replace(">", "&gt;")), "package.json": "{}"})
    report = await bench.run(root, command)
    one, two = calls(root)
    assert [_plain(word) for word in one] == first
    assert [_plain(word) for word in two] == [*first, *again]
    result = report.commands[0]
    assert [(case.outcome, case.flaky) for case in result.cases] == [("passed", True), ("passed", False)]
    assert result.cases[0].name == f"{group}::{name}"
    assert result.cases[0].command == reproduces
    assert result.cases[0].message == "not alone"
    assert verdict_of(report).status == "green"


def _plain(word: str) -> str:
    """Without the directory that is another one each time."""
    head, found, _ = word.partition("/")
    return f"{head}F" if found and head in ("--junitfile=", "perdure:", "--outputFile.junit=", "--reporters=") else word


GO_TESTS = """\
package calc

import (
	"os"
	"testing"
)

func TestAdd(t *testing.T) {
	t.Run("a+b", func(t *testing.T) {
		_, err := os.Stat("ran")
		os.WriteFile("ran", nil, 0o644)
		if err != nil {
			t.Error("not yet")
		}
	})
}

func TestBad(t *testing.T) {
	if Add(1, 2) != 4 {
		t.Fatal("sum of", os.Args[len(os.Args)-1])
	}
}
"""
GO = {
    "go.mod": "module example.com/calc\n\ngo 1.19\n",
    "calc.go": "package calc\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n",
    "calc_test.go": GO_TESTS,
    "none/none.go": "package none\n",
}


@pytest.mark.slow
@pytest.mark.timeout(400)  # Go compiles what it needs anew in each sandbox
async def test_go_tells_of_each_test_whether_gotestsum_is_there_or_not(bench: Bench, files: Files) -> None:
    require("go")
    root = files({**GO, ".venv/bin/gotestsum": "#!/bin/sh\nexit 9\n"})
    command = "go vet . && go test ./... -args end && echo never"
    report = await bench.run(root, command)
    cases = {case.name: (case.outcome, case.flaky) for case in report.commands[0].cases}
    assert cases == {
        "example.com/calc::TestAdd": ("passed", True),
        "example.com/calc::TestAdd/a+b": ("passed", True),
        "example.com/calc::TestBad": ("failed", False),
    }
    assert report.commands[0].cases[0].command == "go vet . && go test -run '^TestBad$' ./... -args end && echo never"
    assert "sum of end" in report.commands[0].tail


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_go_package_that_does_not_build_is_named(bench: Bench, files: Files) -> None:
    require("go")
    root = files({**GO, "broken/broken.go": "package broken\n\nvar X = y\n", "broken/b_test.go": "package broken\n"})
    result = await bench.one(root, "go test ./... -run None")
    assert [(case.name, case.outcome) for case in result.cases] == [("example.com/calc/broken", "errored")]
    assert "undefined: y" in result.tail


@pytest.mark.parametrize("file", ["none/none.go", "none/none_test.go"])
@pytest.mark.slow  # compiles Go's standard library
@pytest.mark.timeout(400)
async def test_go_packages_without_tests_are_nothing_to_complain_of(bench: Bench, files: Files, file: str) -> None:
    require("go")
    result = await bench.one(files({"go.mod": GO["go.mod"], file: GO["none/none.go"]}), "go test ./...")
    assert (result.verdict, result.cases) == ("passed", ())


UNITTEST = """import pathlib, unittest

class Calc(unittest.TestCase):
    def test_depends(self):
        with open("ran.log", "a") as log:
            log.write("1\\n")
        self.assertEqual(pathlib.Path("ran.log").read_text().count("1"), 2)

    def test_bad(self):
        self.fail("always")

    def test_good(self):
        pass
"""


@pytest.mark.parametrize(
    "command", ["-m unittest discover -s tests -t .", "-m unittest tests.test_calc", "-m unittest"]
)
async def test_unittest_tells_of_each_test_and_runs_one_alone(bench: Bench, files: Files, command: str) -> None:
    root = files({"tests/__init__.py": "", "tests/test_calc.py": UNITTEST, "tests/test_more.py": UNITTEST[:24]})
    report = await bench.run(root, f"python3 {command}")
    cases = {case.name.rpartition("::")[2]: (case.outcome, case.flaky) for case in report.commands[0].cases}
    assert cases == {"test_bad": ("failed", False), "test_depends": ("passed", True), "test_good": ("passed", False)}
    assert report.commands[0].cases[0].command == f"python3 {command} -k '*test_calc.Calc.test_bad'"
    assert "FAILED (failures=2)" in report.commands[0].tail
    assert verdict_of(report).summary == "1 of 3 fail: test_bad; 1 flaky: test_depends"


async def _maven(bench: Bench, files: Files, script: str, **more: str) -> CommandResult:
    return await bench.one(files({"mvnw": f"#!/bin/bash\n{script}\n", **more}), "./mvnw test")


async def test_reports_left_in_the_tree_before_the_run_are_not_read(bench: Bench, files: Files) -> None:
    stale = '<testsuite><testcase classname="c" name="old"><failure/></testcase></testsuite>'
    result = await _maven(bench, files, "exit 0", **{SUREFIRE: stale, f"sub/{SUREFIRE}": stale})
    assert (result.verdict, result.cases) == ("passed", ())


async def test_all_modules_reports_are_read_and_a_broken_one_is_a_contradiction(bench: Bench, files: Files) -> None:
    write = 'mkdir -p {0}; echo \'<testsuite><testcase classname="{1}" name="t"/></testsuite>\' > {0}/TEST-{1}.xml\n'
    script = "".join(write.format(f"{m}/target/surefire-reports", m) for m in ("a", "b"))
    result = await _maven(bench, files, script)
    assert [case.name for case in result.cases] == ["a::t", "b::t"]
    broken = await _maven(bench, files, script + "echo '<testsuite' > b/target/surefire-reports/TEST-b.xml")
    assert (broken.verdict, broken.cases) == ("contradicted", ())
    assert "not valid XML" in broken.reason
