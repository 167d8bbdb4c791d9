"""The test side is read-only while a verdict is made: what honest suites do there, and what is said of the others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.verdict import find_refused_writes
from perdure.models.checks.report import CommandResult, TestCase
from perdure.models.config.repository import SandboxGrade
from tests.needs import require
from tests.sandboxes import Bench, Files

PYTEST = f"{sys.executable} -m pytest -q"
HONEST = """\
import pathlib
import pytest

@pytest.fixture
def here(tmp_path):
    return tmp_path

def test_writes_elsewhere(here, cache):
    (here / "x").write_text("x")
    cache.set("a/b", 1)
    (pathlib.Path(__file__).parents[1] / "top.txt").write_text("the top is the product's")
"""


@pytest.fixture(autouse=True)
def _can_hold(bench: Bench) -> None:
    if bench.sandbox.grade is not SandboxGrade.FULL:
        pytest.skip("only bubblewrap can hold paths")


@pytest.mark.parametrize(
    "command", [PYTEST, f"cd tests && {PYTEST}", "python3 -m unittest discover -s tests", f"{PYTEST} --junitxml=x.xml"]
)
async def test_a_suite_that_writes_nothing_but_caches_does_not_notice(bench: Bench, files: Files, command: str) -> None:
    case = "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
    root = files({"tests/__init__.py": "", "tests/test_h.py": HONEST if "pytest" in command else case})
    result = await bench.one(root, command, held=("tests",))
    assert (result.verdict, result.reason) == ("passed", "")
    assert not (root / "tests/__pycache__").exists()


async def test_a_suite_of_node_that_writes_nothing_does_not_notice(bench: Bench, files: Files) -> None:
    require("node")
    test = "require('node:test')('a', () => {});\n"
    result = await bench.one(files({"test/a.test.js": test}), "node --test", held=("test",))
    assert result.verdict == "passed"


PYTHON = "def test_it():\n    open('tests/output.txt', 'w')\n"
NODE = "require('node:test')('a', () => require('node:fs').mkdirSync(__dirname + '/out'));\n"


@pytest.mark.parametrize(
    ("file", "text", "command", "path"),
    [
        ("tests/test_it.py", PYTHON, PYTEST, "tests/output.txt"),
        pytest.param("test/a.test.js", NODE, "node --test", "test/out", marks=pytest.mark.needs("node")),
        ("tests/x.txt", "", "touch tests/made", "tests/made"),
        ("tests/x.txt", "", "cd tests && echo > x.txt", "tests/x.txt"),
        ("tests/x.txt", "", "rm -r tests", "tests/x.txt"),
    ],
)
async def test_what_is_refused_is_named_with_what_allows_it(
    bench: Bench, files: Files, file: str, text: str, command: str, path: str
) -> None:
    result = await bench.one(files({file: text}), command, held=(file.partition("/")[0],))
    assert result.verdict == "failed"
    if "cd" not in command:  # bash names the path as it was typed
        assert result.reason.endswith(f'; the test side is read-only: {path}; [[test]] writes = ["{path}"]')


def test_only_what_the_kernel_said_about_the_test_side_counts() -> None:
    seen = Path("/checkout/repo")
    tail = "OSError: [Errno 30] Read-only file system: '/usr/x'\n/checkout/repo/tests/a.py: assert 0\n"
    case = TestCase(name="t", outcome="failed", message="open ../tests/b.txt: read-only file system")
    result = CommandResult(name="t", command="t", directory="sub", verdict="failed", tail=tail, cases=(case,))
    assert find_refused_writes(result, ("tests",), seen) == ("tests/b.txt",)
    assert find_refused_writes(result.model_copy(update={"cases": ()}), ("tests",), seen) == ()
