"""Verdicts of real test runs: pytest, node and plain commands, in the sandbox."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from project_bench import PYTEST, Bench
from project_files import Files

from perdure.adapters.project.detect import detect
from perdure.adapters.project.verdict import not_started, verdict
from perdure.models.config import SandboxGrade, TestCommand
from perdure.models.errors import Superseded

GREEN = "def test_a():\n    pass\n\ndef test_b():\n    pass\n"


async def test_green_pytest_is_counted_and_leaves_nothing_in_the_tree(bench: Bench, files: Files) -> None:
    root = files({"test_x.py": GREEN})
    report = await bench.run(root, f"PYTHONDONTWRITEBYTECODE=1 {PYTEST}")
    summary = verdict(report)
    assert (summary.status, summary.passed, summary.failed, summary.tree) == ("green", 2, 0, "beef")
    assert summary.summary == "2 green"
    assert bench.said == ["t0: running", "t0: 2 green"]
    assert [path.name for path in root.iterdir()] == ["test_x.py"]


async def test_failing_tests_are_named_with_their_messages(bench: Bench, files: Files) -> None:
    root = files(
        {"tests/test_x.py": GREEN + "\nclass TestC:\n    def test_zero(self):\n        assert 1 == 0, 'no zero'\n"}
    )
    report = await bench.run(root, PYTEST)
    summary = verdict(report)
    assert summary.status == "red"
    assert summary.summary == "1 of 3 fail: test_zero"
    assert summary.failures == ("tests/test_x.py::TestC::test_zero",)
    (case,) = [case for case in report.commands[0].cases if case.outcome == "failed"]
    assert "no zero" in case.message
    assert "1 failed" in report.commands[0].tail


async def test_a_file_that_does_not_load_is_a_failure_beside_the_tests_that_ran(bench: Bench, files: Files) -> None:
    result = await bench.one(files({"test_x.py": GREEN, "test_y.py": "import nothing_of_that_name\n"}), PYTEST)
    assert result.verdict == "failed"
    assert sorted(case.outcome for case in result.cases) == ["errored", "passed", "passed"]


async def test_a_suite_that_uses_the_cache_and_strict_configuration_still_works(bench: Bench, files: Files) -> None:
    root = files(
        {
            "pytest.ini": "[pytest]\naddopts = --strict-config --ff\ncache_dir = .c\n",
            "test_x.py": "def test_a(cache):\n    cache.set('a/b', 1)\n",
        }
    )
    result = await bench.one(root, PYTEST)
    assert (result.verdict, result.reason) == ("passed", "")
    assert not (root / ".c").exists()


async def test_no_tests_is_a_failure_that_says_so(bench: Bench, files: Files) -> None:
    report = await bench.run(files({"README": ""}), PYTEST)
    assert verdict(report).summary == "t0: no tests were collected"
    assert verdict(report).status == "red"


async def test_pytest_that_ends_early_with_success_is_not_believed(bench: Bench, files: Files) -> None:
    result = await bench.one(files({"test_x.py": "import os\n\ndef test_a():\n    os._exit(0)\n"}), PYTEST)
    assert (result.verdict, result.exit_code) == ("contradicted", 0)
    assert result.reason == "exit code 0, but no report was written"


async def test_success_with_failing_cases_is_not_believed(bench: Bench, files: Files) -> None:
    report = await bench.run(files({"test_x.py": "def test_a():\n    assert 0\n"}), f"{PYTEST} || true")
    assert report.commands[0].verdict == "contradicted"
    assert verdict(report).status == "red"
    assert verdict(report).failed == 1


async def test_failure_without_a_failing_case_is_still_a_failure(bench: Bench, files: Files) -> None:
    result = await bench.one(files({"test_x.py": GREEN}), f"{PYTEST} && exit 3")
    assert (result.verdict, result.reason) == ("contradicted", "exit code 3, although no reported test failed")


async def test_a_report_lying_in_the_tree_is_not_read(bench: Bench, files: Files) -> None:
    root = files({"junit.xml": '<testsuite><testcase name="fake"/></testsuite>'})
    command = TestCommand(name="t", command="true", report="junit")
    assert (await bench.one(root, command)).reason == "exit code 0, but no report was written"
    assert (
        await bench.one(root, command.model_copy(update={"command": 'cp junit.xml "$PERDURE_REPORT"'}))
    ).verdict == "passed"
    assert (await bench.one(root, command)).verdict == "contradicted", "nor is the one of an earlier run"


async def test_a_report_cut_short_is_not_a_pass(bench: Bench, files: Files) -> None:
    command = TestCommand(name="t", command='echo "<testsuite><testcase" > "$PERDURE_REPORT"', report="junit")
    result = await bench.one(files({}), command)
    assert result.verdict == "contradicted"
    assert "not valid XML" in result.reason


@pytest.mark.needs("node", "npm")
async def test_node_tests_are_counted_through_npm(bench: Bench, files: Files) -> None:
    root = files(
        {
            "package.json": '{"scripts": {"test": "node --test"}}',
            "x.test.js": "const {test, describe, it} = require('node:test');\n"
            "test('top', () => { throw new Error('boom') });\n"
            "test('later', {todo: true}, () => { throw new Error('x') });\n"
            "describe('d', () => { it('inner', () => {}) });\n",
        }
    )
    report = await bench.run(root, "npm test")
    assert verdict(report).summary == "1 of 2 fail: top"
    assert "boom" in report.commands[0].tail, "people still see the usual output"


async def test_all_commands_run_and_required_ones_decide(bench: Bench, files: Files) -> None:
    lint = TestCommand(name="lint", command="false", required=False)
    report = await bench.run(files({"test_x.py": GREEN}), lint, PYTEST, "true")
    assert [result.verdict for result in report.commands] == ["failed", "passed", "passed"]
    assert verdict(report).status == "green"
    assert verdict(await bench.run(files({}), lint)).status == "none"


async def test_a_command_that_only_has_an_exit_code_has_no_counts(bench: Bench, files: Files) -> None:
    green, red = verdict(await bench.run(files({}), "true")), verdict(await bench.run(files({}), "true", "exit 7"))
    assert (green.passed, green.failed, green.summary) == (None, None, "t0 green")
    assert (red.status, red.failures, red.summary) == ("red", ("t1",), "t1: exit code 7")


async def test_a_missing_program_is_told_from_a_failing_one(bench: Bench, files: Files) -> None:
    report = await bench.run(files({}), "false", "nosuchtool --run")
    found = not_started(report)
    assert found is not None
    assert found.command == "nosuchtool --run"
    error = found.error("main", 'perdure.toml:14 [[test]] "unit"')
    assert error.what == "`nosuchtool --run` could not start on main: nosuchtool: command not found"
    assert error.fix.startswith("install nosuchtool")
    assert not_started(await bench.run(files({}), "false")) is None


async def test_a_runner_that_is_not_installed_counts_as_not_started(bench: Bench, files: Files) -> None:
    root = files({})
    report = await bench.run(
        root, f"{sys.executable} -S -m pytest", f"{sys.executable} -m venv --without-pip v && v/bin/python -m pytest"
    )
    assert [result.verdict for result in report.commands] == ["not_started", "not_started"]
    assert "No module named pytest" in not_started(report).error("main", "").what  # type: ignore[union-attr]


async def test_a_hanging_command_fails_after_its_time(bench: Bench, files: Files) -> None:
    result = await bench.one(files({}), TestCommand(name="slow", command="echo begun; sleep 60", timeout="1s"))
    assert (result.verdict, result.reason, result.tail) == ("timed_out", "not finished after 1s", "begun\n")
    assert result.duration_s < 30


async def test_a_flood_of_output_is_kept_to_its_end(bench: Bench, files: Files) -> None:
    result = await bench.one(files({}), "seq 1 100000; exit 1")
    assert len(result.tail) <= 8000
    assert result.tail.endswith("\n100000\n")


async def test_the_clean_checkout_is_tested_at_the_worktrees_own_path(
    bench: Bench, files: Files, tmp_path: Path
) -> None:
    if bench.sandbox.grade is not SandboxGrade.FULL:
        pytest.skip("only bubblewrap can show one directory at another's path")
    test = "import pathlib, x\n\ndef test_a():\n    assert x.A == 1, pathlib.Path(__file__)\n"
    root = files({"x.py": "A = 2\n", "test_x.py": test, "node_modules/m": "installed", "left-over": ""})
    clean = tmp_path / "clean"
    clean.mkdir()
    (clean / "x.py").write_text("A = 1\n")
    (clean / "test_x.py").write_text(test)
    look = f"test $PWD = {root} && test ! -e left-over && cat node_modules/m"
    report = await bench.run(root, PYTEST, look, source=clean)
    assert [result.verdict for result in report.commands] == ["passed", "passed"]
    assert report.commands[1].tail == "installed"


@pytest.mark.parametrize("package", [True, False])
async def test_detected_unittest_commands_find_the_tests(bench: Bench, files: Files, package: bool) -> None:
    test = (
        "import unittest, x\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(x.A, 1)\n"
    )
    root = files({"x.py": "A = 1\n", "tests/test_x.py": test, **({"tests/__init__.py": ""} if package else {})})
    (found,) = detect(root).tests
    result = await bench.one(root, found)
    assert (result.verdict, "Ran 1 test" in result.tail) == ("passed", True)


async def test_a_fence_that_was_raised_stops_the_next_command(bench: Bench, files: Files) -> None:
    def fence() -> None:
        raise Superseded("a newer attempt owns this worktree")

    root = files({})
    with pytest.raises(Superseded):
        await bench.run(root, "touch never", fence=fence)
    assert not (root / "never").exists()


@pytest.mark.parametrize(
    ("ini", "options"), [("[pytest]\naddopts = -x\n", ""), ("", " -qx"), ("", " --maxfail=1")], ids=["ini", "-x", "max"]
)
async def test_a_suite_that_stops_at_a_known_failure_has_shown_nothing_about_the_rest(
    bench: Bench, files: Files, ini: str, options: str
) -> None:
    old = "def test_old():\n    assert 0\n\ndef test_after():\n    assert %s\n"
    base = await bench.run(files({"pytest.ini": ini, "test_x.py": old % 1}), PYTEST + options)
    found = verdict(await bench.run(files({"test_x.py": old % 0}), PYTEST + options, baseline=base))
    assert (found.status, found.undecidable) == ("red", True)
    assert found.summary.startswith("t0: exit code 1; main was red before and it did not run to its end")


async def test_what_comes_behind_red_tests_in_one_command_has_not_run_and_is_not_excused(
    bench: Bench, files: Files
) -> None:
    root = files({"test_x.py": "def test_old():\n    assert 0\n"})
    for command, partial in ((f"{PYTEST} && true", True), (f"cd . && {PYTEST} 2>&1 | tee log; exit 1", False)):
        base = await bench.run(root, command)
        assert base.commands[0].partial is partial
        assert verdict(await bench.run(root, command, baseline=base)).undecidable is partial


async def test_a_command_runs_in_its_directory_and_its_files_are_named_from_the_top(bench: Bench, files: Files) -> None:
    root = files({"back end/test_x.py": GREEN.replace("pass", "assert 0", 1), "back end/pytest.ini": "[pytest]\n"})
    result = await bench.one(root, TestCommand(command=PYTEST, directory="back end"))
    (case,) = [case for case in result.cases if case.outcome == "failed"]
    assert (case.name, case.file) == ("test_x.py::test_a", "back end/test_x.py")
    assert case.command == f"cd 'back end' && {PYTEST.removesuffix(' -q')} test_x.py::test_a"
    absent = await bench.one(root, TestCommand(command="true", directory="front"))
    assert (absent.verdict, absent.reason) == ("not_started", "there is no directory front")
    (root / "up").symlink_to("..")
    assert (await bench.one(root, TestCommand(command="true", directory="up"))).verdict == "not_started"
