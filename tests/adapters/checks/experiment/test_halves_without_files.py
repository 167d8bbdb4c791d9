"""A suite whose report names no files, as node's, asked in two halves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from experiment_fixtures import Files, Trials
from test_halves import NAMES, pytestmark, runs

from perdure.models.checks.report import CanaryOutcome, CommandResult, TestCase, TestReport
from tests.needs import require

__all__ = ["pytestmark"]

JS = "exports.add = (a, b) => a + b;\n"
TEST = (
    "const test = require('node:test');\nconst assert = require('node:assert');\n"
    "const {{ add }} = require('../calc.js');\n"
    "test('adds {0}', () => assert.equal(add(1, 1), 2));\n"
)
BASE: Files = {"calc.js": JS, "package.json": '{"scripts": {"test": "node --test"}}'} | {
    f"test/{name}.test.js": TEST.format(name) for name in NAMES
}
LAST = NAMES[-1]
APART: Files = BASE | {f"test/{LAST}.test.js": TEST.format(LAST).replace("1, 1), 2", "2, 1), 3")}
"""Of its tests the last one asks for something else."""
MORE: Files = {
    "calc.js": f"{JS}exports.half = (a) => a / 2;\n",
    "test/half.test.js": TEST.format("half").replace("add(1, 1), 2", "require('../calc.js').half(4), 2"),
}
WRONG: Files = {**MORE, "calc.js": JS.replace("a + b", "a === 1 ? a + b : 0")}
BENT: Files = {**MORE, "test/a.test.js": f"{TEST.format('a')}test('more', () => {{}});\n"}


@pytest.mark.parametrize(
    ("change", "there"),
    [
        pytest.param(MORE, ["bc", "bc"], id="new tests"),
        pytest.param(BENT, ["bc"], id="altered tests: they would be in both halves, and nothing says which those are"),
    ],
)
async def test_its_halves_say_together_what_the_whole_says(
    tried: Trials, tmp_path: Path, change: Files, there: Sequence[str]
) -> None:
    require("node", "npm")
    found = await tried(BASE, change, "npm test", known=known(f"adds {name}" for name in NAMES))
    (one,) = found.commands
    assert runs(tmp_path) == there
    assert (one.base_tests, one.base_passed, one.promises, one.canaries) == (4, 4, (), CanaryOutcome.CAUGHT)


async def test_a_test_that_neither_half_has_is_asked_for_as_a_whole(tried: Trials, tmp_path: Path) -> None:
    require("node", "npm")
    found = await tried(BASE, MORE, "npm test", known=known([*(f"adds {name}" for name in NAMES), "adds nothing"]))
    (one,) = found.commands
    assert runs(tmp_path) == ["b", "bc", "bc", "c"]
    assert (one.base_tests, one.base_passed, found.is_tampered) == (4, 4, False)


async def test_a_wrong_product_fails_in_them(tried: Trials, tmp_path: Path) -> None:
    require("node", "npm")
    found = await tried(APART, WRONG, "npm test", known=known(f"adds {name}" for name in NAMES))
    (one,) = found.commands
    assert runs(tmp_path)[:3] == ["b", "bc", "bc"]
    assert (one.base_tests, one.base_passed) == (4, 3)


def known(names: Iterable[str]) -> TestReport:
    """The base's own run: a second for each test."""
    cases = tuple(TestCase(name=name, outcome="passed", duration_s=1.0) for name in names)
    took = sum(case.duration_s for case in cases)
    result = CommandResult(name="t0", command="npm test", verdict="passed", exit_code=0, duration_s=took, cases=cases)
    return TestReport(commit="", tree="", commands=(result,))
