"""Small repositories that tests of the gate begin with."""

from __future__ import annotations

PY = "tests/test_calc.py"

PY_TESTS = '''\
import pytest

from calc import add, parse


def test_zero():
    assert parse("0s") == 0


def test_one():
    """Says nothing."""
    value = parse("1s")
    assert value == 1


@pytest.mark.parametrize("text, seconds", [("1m", 60), ("1h", 3600), ("2h", 7200)])
def test_table(text, seconds):
    assert parse(text) == seconds


def test_refuses():
    with pytest.raises(ValueError):
        parse("x")


class TestAdd:
    def test_adds(self):
        assert add(1, 2) == 3
'''

CALC = '''\
"""A small calculator."""


def add(a, b):
    return a + b


def parse(text):
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]
'''

CONFTEST = """\
import pytest


@pytest.fixture
def five():
    return 5
"""

PYTHON = {"calc.py": CALC, PY: PY_TESTS, "tests/conftest.py": CONFTEST}

UNIT = "python3 -m unittest -q"
UNIT_TESTS = """\
import unittest

from calc import add


class AddTest(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(add(2, 3), 5)
"""
UNITTEST = {"calc.py": CALC, "tests/__init__.py": "", "tests/test_add.py": UNIT_TESTS}

JS = """\
import { test, describe, it } from 'node:test';
import assert from 'node:assert/strict';
import { add, parse } from './calc.js';

test('adds', () => {
  assert.equal(add(1, 2), 3);
});

describe('parse', () => {
  it('takes zero', async () => {
    const found = await parse(`${"0"}s`);
    assert.strictEqual(found, 0); // not "zero"
  });
  it('refuses', () => assert.throws(() => parse(/"x"/), /bad "'`/));
});
"""
NODE = {"calc.test.js": JS, "package.json": '{"type": "module", "scripts": {"test": "node --test"}}'}


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def py(old: str, new: str) -> dict[str, str]:
    """The Python tests with something replaced."""
    return {PY: edited(PY_TESTS, old, new)}
