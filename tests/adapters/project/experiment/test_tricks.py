"""Tests made to pass though the product is wrong (tricks.toml), and honest changes (honest.toml): all of them run."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from experiment_bench import Trials

from perdure.models.config import SandboxGrade
from perdure.models.experiment import Experiment

HERE = Path(__file__).parent
PYTEST = f"{sys.executable} -m pytest -q"
UNITTEST = f"{sys.executable} -m unittest discover -s tests -t ."

CALC = "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return 2 * a\n"
WRONG = CALC.replace("a + b", "a - b")
PLAIN = """\
from calc import add, double


def test_add():
    assert add(1, 2) == 3


def test_double():
    assert double(2) == 4
"""
CLASSES = """\
import unittest

from calc import add, double


class Calc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_double(self):
        self.assertEqual(double(2), 4)
"""
TABLE = """\
import json
import pathlib

from calc import add


def test_add():
    for a, b, c in json.loads(pathlib.Path(__file__).with_name("table.json").read_text()):
        assert add(a, b) == c
"""
TEST = "tests/test_calc.py"
BEGINS = {
    "pytest": (PYTEST, {"calc.py": CALC, TEST: PLAIN, "conftest.py": "\n", "tests/conftest.py": "\n"}),
    "unittest": (UNITTEST, {"calc.py": CALC, TEST: CLASSES, "tests/__init__.py": ""}),
    "table": (PYTEST, {"calc.py": CALC, TEST: TABLE, "tests/table.json": "[[1, 2, 3]]\n"}),
}


def table(name: str) -> list[Any]:
    """One parameter each of a file beside this one."""
    ((_, found),) = tomllib.loads((HERE / name).read_text()).items()
    return [pytest.param(one, id=one["name"], marks=[pytest.mark.slow] * one.get("slow", False)) for one in found]


def caught(found: Experiment) -> set[str]:
    """The experiments that say something; never the change's own tests, which are green."""
    one = found.commands[0]
    named = [*(promise.name for promise in one.promises), *one.taken]
    said = {"B"} if any("test_add" in name for name in named) else set()
    said |= {"C"} if one.missed else set()
    return said | ({"A"} if one.contradicted or one.written else set())


@pytest.mark.parametrize("trick", table("tricks.toml"))
async def test_a_trick_is_caught_by_the_experiment_that_the_table_says(tried: Trials, trick: dict[str, Any]) -> None:
    command, before = BEGINS[trick["with"]]
    found = await tried(before, {"calc.py": WRONG, **trick["files"]}, command)
    assert trick["by"] in caught(found), found.model_dump_json(indent=1)
    assert not found.commands[0].written or tried.sandbox.grade is not SandboxGrade.FULL  # it could not be written to


@pytest.mark.slow
@pytest.mark.parametrize("change", table("honest.toml"))
async def test_an_honest_change_is_not_called_tampered(tried: Trials, change: dict[str, Any]) -> None:
    command, before = BEGINS["pytest"]
    found = await tried(before, change["files"], command)
    assert not found.tampered, found.model_dump_json(indent=1)
    assert len(found.commands[0].promises) == change["promises"]


@pytest.mark.slow
async def test_a_deleted_feature_with_its_tests_needs_the_permission(tried: Trials) -> None:
    command, before = BEGINS["pytest"]
    less = PLAIN.partition("\n\n\ndef test_double")[0].replace(", double", "") + "\n"
    after = {"calc.py": CALC.partition("\n\n\ndef double")[0] + "\n", TEST: less}
    assert (await tried(before, after, command)).tampered
    assert not (await tried(before, after, command, allowed=True)).tampered
