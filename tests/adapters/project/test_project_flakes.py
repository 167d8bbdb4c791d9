"""Failures that do not happen again, on real runners: tried once more, alone, on a clean tree, and within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_bench import PYTEST, Bench
from project_files import Files

from perdure.adapters.project.verdict import verdict
from perdure.models.config import TestCommand
from perdure.models.policy import RERUN_TESTS_MOST
from perdure.models.report import CommandResult

ORDER = """\
import pathlib

SEEN = []


def note(name):
    SEEN.append(name)
    with open("ran.log", "a") as log:
        log.write(name + "\\n")


def test_first():
    note("first")


class TestMore:
    def test_depends(self):
        note("depends")
        assert SEEN == ["depends"], "something ran before"


def test_wrong():
    note("wrong")
    assert 1 == 2
"""


def ran(root: Path) -> list[str]:
    return (root / "ran.log").read_text().split()


def of(result: CommandResult) -> dict[str, tuple[str, bool]]:
    return {case.name.rsplit("::", 1)[-1]: (case.outcome, case.flaky) for case in result.cases}


async def test_only_the_failed_tests_run_again_each_alone_and_those_that_pass_are_flaky(
    bench: Bench, files: Files
) -> None:
    root = files({"tests/test_x.py": ORDER})
    report = await bench.run(root, f"{PYTEST} tests -p no:randomly")
    assert ran(root) == ["first", "depends", "wrong", "depends", "wrong"]
    assert of(report.commands[0]) == {
        "test_wrong": ("failed", False), "test_depends": ("passed", True), "test_first": ("passed", False),
    }  # fmt: skip
    found = verdict(report)
    assert (found.status, found.failed, found.flaky) == ("red", 1, 1)
    assert found.summary == "1 of 3 fail: test_wrong; 1 flaky: test_depends"
    flaky = next(case for case in report.commands[0].cases if case.flaky)
    assert "something ran before" in flaky.message
    assert "t0: again, alone: tests/test_x.py::TestMore::test_depends" in bench.said


async def test_when_all_that_failed_was_flaky_the_command_is_green(bench: Bench, files: Files) -> None:
    root = files({"test_x.py": ORDER.replace("1 == 2", "True")})
    report = await bench.run(root, PYTEST)
    assert (report.commands[0].verdict, report.commands[0].since) == ("passed", None)
    assert verdict(report).summary == "3 green, 1 flaky: test_depends"
    assert bench.said[-1] == "t0: 3 green, 1 flaky"


async def test_what_failed_on_the_base_is_not_run_again(bench: Bench, files: Files) -> None:
    root = files({"test_x.py": ORDER.replace("SEEN == ", "False and ")})
    base = await bench.run(root, PYTEST)
    (root / "ran.log").unlink()
    report = await bench.run(root, PYTEST, baseline=base)
    assert ran(root) == ["first", "depends", "wrong"]
    assert verdict(report).summary == "1 green, 2 failed before on main too: test_depends, test_wrong"


async def test_names_with_parameters_select_just_that_case(bench: Bench, files: Files) -> None:
    text = "import pytest\n\n@pytest.mark.parametrize('x', ['a b', 'c[d]', 'é'])\ndef test_p(x):\n"
    text += "    open('ran.log', 'a').write(x.replace(' ', '_') + '\\n')\n    assert x != 'c[d]'\n"
    root = files({"test_x.py": text})
    await bench.run(root, PYTEST)
    assert ran(root) == ["a_b", "c[d]", "é", "c[d]"]


async def test_more_new_failures_than_chance_makes_are_not_tried_again(bench: Bench, files: Files) -> None:
    def suite(failing: int) -> dict[str, str]:
        test = "import pytest\n\n@pytest.mark.parametrize('x', range(%d))\ndef test_p(x):\n"
        return {"test_x.py": test % failing + "    open('ran.log', 'a').write('x\\n')\n    assert 0\n"}

    root = files(suite(RERUN_TESTS_MOST + 1))
    report = await bench.run(root, PYTEST)
    assert len(ran(root)) == RERUN_TESTS_MOST + 1
    assert verdict(report).failed == RERUN_TESTS_MOST + 1


async def test_a_runner_that_cannot_select_runs_as_a_whole_once(bench: Bench, files: Files) -> None:
    root = files({"test_x.py": ORDER})
    report = await bench.run(root, f"{PYTEST} -p no:cacheprovider")
    assert ran(root) == ["first", "depends", "wrong"] * 2
    assert verdict(report).failed == 2


async def test_a_command_with_an_exit_code_alone_is_tried_once_more(bench: Bench, files: Files) -> None:
    root = files({})
    report = await bench.run(root, "echo x >> ran.log; test $(wc -l < ran.log) = 2", "echo y >> ran.log; exit 7")
    assert ran(root) == ["x", "x", "y", "y"]
    assert [(result.verdict, result.flaky) for result in report.commands] == [("passed", True), ("failed", False)]
    assert report.commands[0].reason == "passed when run again: exit code 1"
    assert verdict(report).summary == "t1: exit code 7; 1 flaky: t0"


async def test_a_file_that_could_not_be_loaded_at_first_makes_the_whole_command_flaky(
    bench: Bench, files: Files
) -> None:
    text = "import pathlib\n\nseen = pathlib.Path('seen')\nif not seen.exists():\n    seen.touch()\n    raise OSError\n"
    report = await bench.run(files({"test_x.py": text + "\ndef test_a():\n    pass\n"}), PYTEST)
    assert verdict(report).summary == "1 green, 1 flaky: t0"


async def test_each_try_begins_on_a_clean_tree(bench: Bench, files: Files) -> None:
    root = files({})
    clean: list[int] = []

    def renew() -> None:
        clean.append(1)
        (root / "left").unlink()

    report = await bench.run(root, "test -e left && exit 0; touch left; exit 1", renew=renew)
    assert clean == [1]
    assert verdict(report).status == "red"


async def test_a_command_that_hung_or_could_not_start_is_not_tried_again(bench: Bench, files: Files) -> None:
    root = files({})
    slow = TestCommand(name="slow", command="echo x >> ran.log; sleep 60", timeout="1s")
    report = await bench.run(root, slow, "echo y >> ran.log; nosuchtool")
    assert ran(root) == ["x", "y"]
    assert [result.verdict for result in report.commands] == ["timed_out", "not_started"]


async def test_trying_again_takes_no_longer_than_the_command_may(bench: Bench, files: Files) -> None:
    text = "import os, time, pytest\n\n@pytest.mark.parametrize('x', range(9))\ndef test_p(x):\n"
    text += "    open('ran.log', 'a').write('x\\n')\n"
    text += "    time.sleep(60 if '--last-failed' in os.environ['PYTEST_ADDOPTS'] else 0)\n    assert 0\n"
    root = files({"test_x.py": text})
    report = await bench.run(root, TestCommand(name="t", command=PYTEST, timeout="25s"))
    assert len(ran(root)) == 10
    assert sum("again" in line for line in bench.said) == 1
    assert verdict(report).failed == 9


@pytest.mark.needs("node", "npm")
async def test_node_tests_are_tried_again_by_name_through_npm(bench: Bench, files: Files) -> None:
    tests = """\
const {test, describe, it} = require('node:test');
const fs = require('node:fs');
let first = true;
const note = (name) => fs.appendFileSync('ran.log', name + '\\n');
test('sets (it) up', () => { note('up'); first = false; });
test('works alone: "yes"', () => { note('alone'); if (!first) throw new Error('not alone'); });
describe('d', () => { it('inner is wrong', () => { note('inner'); throw new Error('boom'); }); });
"""
    root = files({"package.json": '{"scripts": {"test": "node --test"}}', "x.test.js": tests})
    report = await bench.run(root, "npm test")
    assert [case.name for case in report.commands[0].cases if case.flaky] == ["works alone: &quot;yes&quot;"]
    assert verdict(report).summary.startswith("1 of 3 fail: inner is wrong; 1 flaky")
    assert ran(root)[:4] == ["up", "alone", "inner", "alone"]
    assert ran(root).count("up") == 1


@pytest.mark.parametrize(
    ("command", "runner", "name"),
    [
        (PYTEST, "test_x.py", "test_x.py::TestMore::test_depends"),
        pytest.param("npm test", "x.test.js", "works alone", marks=pytest.mark.needs("node", "npm")),
    ],
    ids=["pytest", "node"],
)
async def test_the_command_that_reproduces_a_failure_runs_it_alone(
    bench: Bench, files: Files, command: str, runner: str, name: str
) -> None:
    tests = {
        "test_x.py": ORDER,
        "x.test.js": "const {test} = require('node:test');\nconst fs = require('node:fs');\n"
        "test('other', () => fs.appendFileSync('ran.log', 'other\\n'));\n"
        "test('works alone', () => { fs.appendFileSync('ran.log', 'depends\\n'); throw new Error('x') });\n",
    }
    root = files({runner: tests[runner], "package.json": '{"scripts": {"test": "node --test"}}'})
    report = await bench.run(root, command)
    (case,) = [case for case in report.commands[0].cases if case.name == name]
    (root / "ran.log").unlink()
    await bench.run(root, TestCommand(name="again", command=case.command, report="exit"))
    assert set(ran(root)) == {"depends"}
