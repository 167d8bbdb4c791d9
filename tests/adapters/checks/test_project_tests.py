"""Verdicts of test runs: plain commands, pytest as recorded, and green tests that were tried by experiment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from recorded import COMMAND, FAILED, PASSED, UNLOADED, recorded

from activities.change_experiments import asks_for_removal
from perdure.adapters.checks.baseline import compare_with_base
from perdure.adapters.checks.verdict import find_not_started, verdict_of
from perdure.adapters.repository.detect import detect_commands
from perdure.models.checks.report import (
    CanaryOutcome,
    CommandExperiment,
    CommandResult,
    Experiment,
    Promise,
    TestCase,
    TestReport,
)
from perdure.models.checks.verdict_text import with_experiment
from perdure.models.config.repository import RepositoryConfig, SandboxGrade, TestCommand
from perdure.models.delivery.result import TestsStatus
from perdure.models.delivery.turn import Contract
from perdure.models.errors import Superseded
from perdure.models.issue import ForgeIssue, IssueComment
from tests.sandboxes import PYTEST, Bench, Files


@pytest.mark.parametrize(
    ("command", "code", "cases", "result", "reason", "status", "summary"),
    [
        (COMMAND, 0, PASSED, "passed", "", "green", "2 green"),
        (COMMAND, 1, PASSED + FAILED, "failed", "exit code 1", "red", "1 of 3 fail: test_zero"),
        (COMMAND, 1, UNLOADED + PASSED, "failed", "exit code 1", "red", "1 of 3 fail: tests.test_y"),
        (COMMAND, 5, "", "failed", "no tests were collected", "red", "t0: no tests were collected"),
        (COMMAND, 0, "", "contradicted", "exit code 0, but not one test ran", "red", "t0: exit code 0, but not one "),
        (COMMAND, 0, None, "contradicted", "exit code 0, but no report was written", "red", "t0: exit code 0, but no "),
        (
            f"{COMMAND} || true", 1, PASSED + FAILED,
            "contradicted", "exit code 0, but 1 of 3 reported tests failed", "red", "1 of 3 fail: test_zero",
        ),
        (
            f"{COMMAND} && exit 3", 0, PASSED,
            "contradicted", "exit code 3, although no reported test failed", "red", "t0: exit code 3, although no ",
        ),
    ],
    ids=["green", "red", "unloaded", "none", "empty", "ended early", "believed by the shell", "failed behind it"],
)  # fmt: skip
async def test_a_report_and_an_exit_code_make_a_verdict(
    bench: Bench, files: Files, command: str, code: int, cases: str | None,
    result: str, reason: str, status: str, summary: str,
) -> None:  # fmt: skip
    report = await bench.run(files(recorded(code, cases, says="as people see it\n")), command)
    (one,) = report.commands
    assert (one.verdict, one.reason, one.tail) == (result, reason, "as people see it\n")
    assert len(one.cases) == (cases or "").count("<testcase")
    found = verdict_of(report)
    assert (found.status, found.tree) == (status, "beef")
    assert found.summary.startswith(summary)
    failing = [case for case in one.cases if case.outcome in ("failed", "errored")]
    assert all("no zero" in case.message or "nothing_of_that_name" in case.message for case in failing)
    assert found.failures == tuple(case.name for case in failing) or found.failures == ("t0",)
    assert bench.said[0] == "t0: running"
    assert bench.said[-1].startswith("t0: ")


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


async def test_all_commands_run_and_required_ones_decide(bench: Bench, files: Files) -> None:
    lint = TestCommand(name="lint", command="false", required=False)
    report = await bench.run(files(recorded(0, PASSED)), lint, COMMAND, "true")
    assert [result.verdict for result in report.commands] == ["failed", "passed", "passed"]
    assert verdict_of(report).status == "green"
    assert verdict_of(await bench.run(files({}), lint)).status == "none"


async def test_a_command_that_only_has_an_exit_code_has_no_counts(bench: Bench, files: Files) -> None:
    green, red = (
        verdict_of(await bench.run(files({}), "true")),
        verdict_of(await bench.run(files({}), "true", "exit 7")),
    )
    assert (green.passed, green.failed, green.summary) == (None, None, "t0 green")
    assert (red.status, red.failures, red.summary) == ("red", ("t1",), "t1: exit code 7")


async def test_a_missing_program_is_told_from_a_failing_one(bench: Bench, files: Files) -> None:
    report = await bench.run(files({}), "false", "nosuchtool --run")
    found = find_not_started(report)
    assert found is not None
    assert found.command == "nosuchtool --run"
    error = found.to_error("main", 'perdure.toml:14 [[test]] "unit"')
    assert error.what == "`nosuchtool --run` could not start on main: nosuchtool: command not found"
    assert error.fix.startswith("install nosuchtool")
    assert find_not_started(await bench.run(files({}), "false")) is None


async def test_a_runner_that_is_not_installed_counts_as_not_started(bench: Bench, files: Files) -> None:
    root = files({})
    report = await bench.run(root, f"{sys.executable} -S -m pytest")
    assert [result.verdict for result in report.commands] == ["not_started"]
    assert "No module named pytest" in find_not_started(report).to_error("main", "").what  # type: ignore[union-attr]


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
    root = files({"x.txt": "changed\n", "node_modules/m": "installed", "left-over": ""})
    clean = tmp_path / "clean"
    clean.mkdir()
    (clean / "x.txt").write_text("committed\n")
    look = f"test $PWD = {root} && test ! -e left-over && cat x.txt node_modules/m"
    (result,) = (await bench.run(root, look, source=clean)).commands
    assert (result.verdict, result.tail) == ("passed", "committed\ninstalled")


@pytest.mark.parametrize("package", [True, False])
async def test_detected_unittest_commands_find_the_tests(bench: Bench, files: Files, package: bool) -> None:
    test = (
        "import unittest, x\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(x.A, 1)\n"
    )
    root = files({"x.py": "A = 1\n", "tests/test_x.py": test, **({"tests/__init__.py": ""} if package else {})})
    (found,) = detect_commands(root).tests
    result = await bench.one(root, found)
    assert (result.verdict, "Ran 1 test" in result.tail) == ("passed", True)


async def test_a_fence_that_was_raised_stops_the_next_command(bench: Bench, files: Files) -> None:
    def fence() -> None:
        raise Superseded("a newer attempt owns this worktree")

    root = files({})
    with pytest.raises(Superseded):
        await bench.run(root, "touch never", fence=fence)
    assert not (root / "never").exists()


@pytest.mark.parametrize("command", [f"{COMMAND} -qx", f"{COMMAND} --maxfail=1", f"{PYTEST} -c x.ini"])
async def test_a_suite_that_stops_at_a_known_failure_has_shown_nothing_about_the_rest(
    bench: Bench, files: Files, command: str
) -> None:
    """The last one is the real pytest: that it stops stands in its own settings, and only what it says tells."""
    real = {
        "x.ini": "[pytest]\naddopts = -x\n",
        "test_x.py": "def test_old():\n    assert 0\n\ndef test_b():\n    pass\n",
    }
    base = await bench.run(files({**real, **recorded(1, FAILED)}), command)
    assert [case.outcome for case in base.commands[0].cases] == ["failed"], "it stopped"
    found = verdict_of(compare_with_base(base, base, "main"))
    assert (found.status, found.undecidable) == ("red", True)
    assert found.summary.startswith("t0: exit code 1; main was red before and it did not run to its end")


async def test_what_comes_behind_red_tests_in_one_command_has_not_run_and_is_not_excused(
    bench: Bench, files: Files
) -> None:
    root = files(recorded(1, FAILED))
    for command, partial in ((f"{COMMAND} && true", True), (f"cd . && {COMMAND} 2>&1 | tee log; exit 1", False)):
        base = await bench.run(root, command)
        assert base.commands[0].partial is partial
        assert verdict_of(await bench.run(root, command, baseline=base)).undecidable is partial


async def test_a_command_runs_in_its_directory_and_its_files_are_named_from_the_top(bench: Bench, files: Files) -> None:
    root = files({f"back end/{name}": text for name, text in recorded(1, PASSED + FAILED).items()})
    result = await bench.one(root, TestCommand(command=f"{COMMAND} -q", directory="back end"))
    (case,) = [case for case in result.cases if case.outcome == "failed"]
    assert (case.name, case.file) == ("tests/test_x.py::TestC::test_zero", "back end/tests/test_x.py")
    assert case.command == f"cd 'back end' && {COMMAND} tests/test_x.py::TestC::test_zero"
    absent = await bench.one(root, TestCommand(command="true", directory="front"))
    assert (absent.verdict, absent.reason) == ("not_started", "there is no directory front")
    (root / "up").symlink_to("..")
    assert (await bench.one(root, TestCommand(command="true", directory="up"))).verdict == "not_started"


HERE = (TestCase(name="tests/test_a.py::test_kept", outcome="passed"), TestCase(name="test_off", outcome="skipped"))


def report(more: dict[str, Any] | None = None, **of: Any) -> TestReport:
    one = CommandExperiment(
        name="unit", command="pytest", **{"base_tests": 2, "base_passed": 2, "canaries": CanaryOutcome.CAUGHT, **of}
    )
    found = Experiment(base="b" * 40, change="1" * 40, branch="main", commands=(one,), **(more or {}))
    result = CommandResult(name="unit", command="pytest", verdict="passed", exit_code=0, cases=HERE)
    return with_experiment(TestReport(commit="1" * 40, tree="2" * 40, base="main", commands=(result,)), found)


def test_green_in_all_experiments_is_green_and_says_so() -> None:
    found = verdict_of(report(proving=("tests/test_a.py::test_new",)))
    line = "2/2 of main's own tests pass on the change · 1 new test fails without it · canaries caught"
    assert (found.status, found.tampered, found.fingerprint) == (TestsStatus.GREEN, 0, "")
    assert (found.experiment, found.summary) == (line, f"1 green · {line}")


def test_what_could_not_be_asked_stands_behind_it() -> None:
    found = verdict_of(report(base_tests=None, canaries=CanaryOutcome.NOT_ASKED, unasked=("no names", "no canaries")))
    assert (found.experiment, found.summary) == ("", "1 green · not asked: no names; no canaries")
    assert verdict_of(report({"skipped": "nothing differs"}, base_tests=None)).summary.endswith(
        "not asked: nothing differs"
    )


@pytest.mark.parametrize(
    ("of", "words", "failures", "undo"),
    [
        (
            {"taken": ("tests/test_a.py::test_gone",)},
            "1 test of main fails and is gone: test_gone",
            ("tests/test_a.py::test_gone",),
            "`git show bbbbbbbbbbbb:FILE`",
        ),
        ({"taken": ("test_off", "test_x")}, "2 tests of main fail and are gone or skipped", ("test_off", "test_x"), ""),
        ({"contradicted": ("test_kept",)}, "1 test of main fails where nobody can write", ("test_kept",), "read-only"),
        ({"written": ("tests/data.json",)}, "files of the test side are written", ("tests/data.json",), "Nothing may"),
        ({"missed": ("zzq",)}, "unit: a canary was not reported", ("unit: a canary was not reported",), "Find it"),
    ],
    ids=["gone", "skipped too", "contradicted", "written", "canaries"],
)
def test_tests_that_pass_without_the_product_being_right_are_red_and_the_fix_is_told_what_to_undo(
    of: dict[str, Any], words: str, failures: tuple[str, ...], undo: str
) -> None:
    given = report(**of)
    found = verdict_of(given)
    assert (found.status, found.tampered, found.failures) == (TestsStatus.RED, 1, failures)
    assert found.summary.startswith(f"tampered: {words}")
    assert found.summary.endswith("; 1 green")
    assert undo in given.note


def test_two_verdicts_with_other_canaries_are_the_same_failure() -> None:
    one, two = (verdict_of(report(missed=(name,))) for name in ("zzabc", "zzxyz"))
    assert one.same_as(two)
    assert not one.same_as(verdict_of(report(taken=("test_gone",))))


def test_tests_that_go_with_what_the_request_wants_removed_are_promises_to_be_justified() -> None:
    kept = Promise(name="test_kept")
    found = verdict_of(report({"removes": True}, taken=("test_gone",), promises=(kept,)))
    assert (found.status, found.tampered, found.promises) == (TestsStatus.GREEN, 0, 2)
    assert verdict_of(report({"allowed": True}, taken=("test_gone",), promises=(kept,))).promises == 1


@pytest.mark.parametrize(
    ("words", "asks"),
    [
        ("Remove the old parser", True),
        ("drop support for Python 2", True),
        ("We are deprecating sub", True),
        ("Get rid of sub", True),
        ("Add a drop-down list to the removable parts", False),
        ("Make sub undeletable", False),
    ],
)
def test_a_request_asks_for_a_removal_in_its_words_or_its_issue_s(words: str, asks: bool) -> None:
    config = RepositoryConfig.model_validate({"version": 1})
    ids = {"delivery": "d", "repository": "r", "base": "main", "base_sha": "0" * 40, "branch": "b"}
    said = Contract(request=words, config=config, **ids)
    asked = Contract(request="", config=config, issue=ForgeIssue(number=1, title="x", url="u", text=words), **ids)
    below = ForgeIssue(number=1, title="x", url="u", comments=(IssueComment(author="a", text=words),))
    commented = Contract(request="", config=config, issue=below, **ids)
    assert (asks_for_removal(said), asks_for_removal(asked)) == (asks, asks)
    assert not asks_for_removal(commented)  # by anybody who may comment


TRACES_PARENT = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
if libc.ptrace(16, os.getppid(), 0, 0) == 0:
    os.waitpid(os.getppid(), 0x40000000)
    libc.ptrace(17, os.getppid(), 0, 0)
    sys.exit(3)
"""


@pytest.mark.parametrize("trace", [False, True])
async def test_processes_of_a_test_trace_each_other_where_its_command_says_so(
    bench: Bench, files: Files, trace: bool
) -> None:
    tree = files({"traces.py": TRACES_PARENT})
    command = TestCommand(name="t", command="/usr/bin/python3 traces.py & wait $!", trace=trace)
    assert ((await bench.one(tree, command)).verdict == "failed") is trace
