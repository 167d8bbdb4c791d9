"""The rest of the base's test files without what the change has deleted."""

from __future__ import annotations

import pytest

from perdure.adapters.checks.experiment.reduced_tests import defined_names, remove_definitions

PY = """\
import json
from calc import (
    add,
    double,
)
from other import *


@mark
def test_double():
    assert double(2) == 4


class TestAdd:
    def test_adds(self):
        assert add(1, 2) == 3

    def test_doubles(self):
        assert double(1) == 2
"""
GO = """\
package calc

import (
	"strings"
	"testing"
)

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 { // "}"
		t.Error("sum")
	}
}

func BenchmarkDouble(b *testing.B) {
	Double(strings.Count("a", "b"))
}
"""
JS = """\
import { test } from 'node:test';
import { add, double } from './calc.js';

test('adds', () => assert.equal(add(1, 2), 3));
test('doubles', () => {
  assert.equal(double(2), 4);
});
"""


def test_definitions_and_what_only_they_import_are_cut_from_python() -> None:
    assert defined_names("test_a.py", PY) == {"test_double", "TestAdd", "TestAdd.test_adds", "TestAdd.test_doubles"}
    left = remove_definitions("test_a.py", PY, {"TestAdd", "TestAdd.test_adds"})
    assert "double(" not in left
    assert "from calc import add\n" in left
    assert "from other import *" in left
    assert "assert add(1, 2) == 3" in left
    compile(left, "left", "exec")
    assert remove_definitions("test_a.py", "def broken(:\n", set()) == "def broken(:\n"


@pytest.mark.parametrize(
    ("path", "text", "kept", "gone", "stays"),
    [
        ("calc_test.go", GO, {"TestAdd"}, ("Double", "strings"), ('"testing"', 't.Error("sum")')),
        ("calc.test.js", JS, {"adds"}, ("double",), ("import { add } from './calc.js'", "add(1, 2)")),
    ],
)
def test_functions_and_calls_are_cut_from_go_and_javascript(
    path: str, text: str, kept: set[str], gone: tuple[str, ...], stays: tuple[str, ...]
) -> None:
    left = remove_definitions(path, text, kept)
    assert [word for word in gone if word in left] == []
    assert [word for word in stays if word not in left] == []
    assert remove_definitions(path, text, defined_names(path, text)) == text
