"""Canaries in Python beside all that honest tests do with their classes, and functions that took another's place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.adapters.checks.runners.base import Runner
from perdure.adapters.checks.runners.pytest import Pytest
from perdure.adapters.checks.runners.python import Unittest

HELPERS = """\
import functools

def common(self):
    self.x = 1

def decorated(real):
    @functools.wraps(real)
    def inner(self):
        return real(self)
    return inner

class Asserting:
    def assertFoo(self, x):
        self.assertTrue(x)
"""
HONEST = """\
import dataclasses
import unittest
from unittest import mock

from helpers import Asserting, common, decorated

@dataclasses.dataclass
class Thing:
    a: int = 1

class Base(unittest.TestCase):
    setUp = common

    def assertOwn(self, x):
        self.assertTrue(x)

class First(Asserting, Base):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.late = lambda self: 1

    @decorated
    def tearDown(self):
        self.longMessage = True

    def test_one(self):
        self.assertFoo(True)
        self.assertOwn(Thing() == Thing())
        with mock.patch.object(First, "assertOwn"), mock.patch("helpers.common"):
            self.assertOwn(False)

    @mock.patch("os.getcwd")
    def test_two(self, getcwd):
        self.assertEqual(self.x, 1)

class Late(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.y = 1

    async def test_it(self):
        self.assertEqual(self.y, 1)
"""


@pytest.mark.parametrize(
    ("runner", "command", "said"),
    [(Pytest(), "-m pytest -q --tb=line -p no:cacheprovider", "12 failed"), (Unittest(), "-m unittest", "failures=12")],
)
def test_all_are_red_beside_what_honest_tests_do_with_their_classes(
    tmp_path: Path, runner: Runner, command: str, said: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/__init__.py").touch()
    (tmp_path / "helpers.py").write_text(HELPERS)
    canaries = runner.make_canaries({f"tests/test_{name}.py": HONEST for name in "ab"}, "tok")
    for path, text in canaries.files.items():
        (tmp_path / path).write_text(text)
    ran = subprocess.run(
        [sys.executable, *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert said in ran.stdout + ran.stderr
