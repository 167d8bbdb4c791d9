"""A run of tests that a signal from outside has ended: done again, counted, and neither a failure nor a flake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from perdure.adapters.checks.verdict import result_line, verdict_of
from perdure.models.checks.report import CommandResult, TestReport
from perdure.models.config.repository import TestCommand
from tests.killed_commands import first_process, killed_once, shell
from tests.sandboxes import PYTEST, Bench, Files

SLOW = "echo x >> ran.log; sleep 3; exit {}"
"""Long enough to be found in the process table; killed, it does not take its time."""


def runs(root: Path) -> int:
    return len((root / "ran.log").read_text().split())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pick", [first_process, shell])
async def test_a_run_that_is_killed_from_outside_is_done_again_and_is_no_flake(
    bench: Bench, files: Files, pick: Callable[[psutil.Process], psutil.Process | None]
) -> None:
    root = files({})
    async with killed_once(("sleep", "3"), pick):
        report = await bench.run(root, SLOW.format(0))
    (result,) = report.commands
    assert (result.verdict, result.flaky, result.killed_runs, runs(root)) == ("passed", False, 1, 2)
    found = verdict_of(report)
    assert (found.status, found.flaky, found.killed_runs) == ("green", 0, 1)
    assert found.summary == "t0 green, 1 run killed and done again"
    assert result_line(result) == "green, 1 run killed and done again"


@pytest.mark.timeout(60)
async def test_a_run_that_is_killed_and_fails_when_it_is_done_again_is_red(bench: Bench, files: Files) -> None:
    root = files({})
    async with killed_once(("sleep", "3"), first_process):
        report = await bench.run(root, SLOW.format(3))
    found = verdict_of(report)
    assert (found.status, found.killed_runs) == ("red", 1)
    assert found.summary == "t0: exit code 3; 1 run killed and done again"


@pytest.mark.parametrize("number", ["KILL", "TERM"])
async def test_a_command_that_kills_itself_each_time_is_red_after_its_second_run(
    bench: Bench, files: Files, number: str
) -> None:
    root = files({})
    report = await bench.run(root, f"echo x >> ran.log; kill -{number} $$")
    (result,) = report.commands
    assert (result.verdict, result.killed_runs, runs(root)) == ("failed", 1, 2)
    assert verdict_of(report).status == "red"


async def test_a_command_that_kills_itself_has_one_more_run_on_a_clean_tree(bench: Bench, files: Files) -> None:
    """What the killed one left does not tell the next one to pass."""
    root = files({})
    script = "echo x >> ran.log; test -e seen && exit 0; touch seen; kill -9 $$"
    report = await bench.run(root, script, renew=lambda: (root / "seen").unlink(missing_ok=True))
    assert (verdict_of(report).status, runs(root)) == ("red", 2)


async def test_a_crash_of_its_own_is_a_failure_and_may_be_a_flake(bench: Bench, files: Files) -> None:
    """SIGSEGV comes from what a process does itself."""
    root = files({})
    report = await bench.run(root, "echo x >> ran.log; test -e seen && exit 0; touch seen; kill -SEGV $$")
    (result,) = report.commands
    assert (result.verdict, result.flaky, result.killed_runs, runs(root)) == ("passed", True, 0, 2)


TWO = """\
import os, time
def note():
    with open("ran.log", "a") as log:
        log.write("x ")
def test_a():
    note()
    assert os.path.exists("seen") or open("seen", "w").close()
def test_b():
    pass
"""


@pytest.mark.timeout(60)
async def test_a_killed_run_of_one_test_alone_is_done_again(bench: Bench, files: Files) -> None:
    root = files({"test_two.py": TWO})
    async with killed_once(("sleep", "3"), first_process):
        report = await bench.run(
            root, TestCommand(name="t", command=f"test ! -e seen || sleep 3; {PYTEST} test_two.py")
        )
    (result,) = report.commands
    assert (result.verdict, result.killed_runs) == ("passed", 1)
    assert [case.name for case in result.cases if case.flaky] == ["test_two.py::test_a"]


def test_a_report_of_before_has_no_killed_runs() -> None:
    report = TestReport(commit="c", tree="t", commands=(CommandResult(name="t", command="true", verdict="passed"),))
    assert verdict_of(TestReport.model_validate_json(report.model_dump_json(exclude_defaults=True))).killed_runs == 0
