"""Both versions of a test that fails: the test alone, not the beginning of its file."""

from __future__ import annotations

import pytest

from perdure.adapters.checks.experiment.reduced_tests import versions_of_test

PYTHON = """\
import pytest

class Other:
    def test_add(self):
        assert 1

class Calc:
    @pytest.mark.parametrize(
        "a", [1]
    )
    @slow
    def test_add(
        self, a
    ):
        assert add(a) == 3

        assert add(a)

    def test_added(self):
        pass
"""
NODE = """\
describe("calc", () => {
  test("adds two", () => {
    equal(add(1, 2), 3);
  });
  test("adds", () => {});
});
"""
GO = "package a\n\nfunc TestAdd(t *testing.T) {\n\tif add(1) != 3 {\n\t}\n}\n\nfunc TestSub(t *testing.T) {}\n"


@pytest.mark.parametrize(
    ("text", "name", "begins", "ends"),
    [
        (PYTHON, "tests/test_calc.py::Calc::test_add[1]", "    @slow", "        assert add(a)"),
        (PYTHON, "tests/test_calc.py::Other::test_add", "    def test_add(self):", "        assert 1"),
        (NODE, "calc > adds two", '  test("adds two"', "  });"),
        (NODE, "adds", '  test("adds", () => {});', '  test("adds", () => {});'),
        (GO, "TestAdd/negative", "func TestAdd(", "}"),
    ],
)
def test_a_test_is_found_by_its_name_with_its_whole_block(text: str, name: str, begins: str, ends: str) -> None:
    before, after = versions_of_test(name, text, text.replace("3", "4"))
    lines = before.splitlines()
    assert lines[0].startswith(begins)
    assert lines[-1] == ends
    assert after == before.replace("3", "4")


def test_where_one_version_does_not_show_it_both_files_are_shown_and_all_is_cut() -> None:
    assert versions_of_test("t.py::test_new", PYTHON, "def test_new(): ...\n") == (PYTHON, "def test_new(): ...\n")
    long = "def test_a():\n" + "    x = 1\n" * 10_000
    assert max(map(len, versions_of_test("t.py::test_a", long, long))) <= 4000
