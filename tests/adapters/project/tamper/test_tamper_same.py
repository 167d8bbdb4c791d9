"""Tests are not read where they surely say the same on both commits; whatever they use makes a difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from tamper_change import PYTEST, Change, Judge
from tamper_files import edited

from perdure.adapters.git.repository import Repository
from perdure.adapters.project.tamper import Files
from perdure.adapters.project.tamper.languages import Languages

MARKS = "import pytest\n\nnever = pytest.mark.usefixtures('x')\n"
BASE = """\
class Checked:
    def right(self, value):
        assert value
"""
HELP = """\
from deep import deeper


def check(value):
    deeper(value)


def unused():
    return 1
"""
DEEP = """\
def deeper(value):
    assert value > 0
"""
TESTS = """\
import pytest

from base import Checked
from help import check, unused
from marks import never

ROWS = [1, 2, 3]
EXPECTED = 5


def test_helped():
    check(unused())


def test_plain():
    assert abs(-5) == EXPECTED


@pytest.mark.parametrize("row", ROWS)
def test_rows(row):
    assert abs(row) > 0


@never
def test_marked():
    assert abs(-1) == 1


class TestClass(Checked):
    def test_inherits(self):
        self.right(abs(-1))

    def test_other(self):
        assert abs(-1)
"""
TREE = {"tests/test_a.py": TESTS, "tests/help.py": HELP, "tests/deep.py": DEEP, "tests/base.py": BASE,
        "tests/marks.py": MARKS}  # fmt: skip
ALL = {"test_helped", "test_plain", "test_rows", "test_marked", "TestClass::test_inherits", "TestClass::test_other"}


@pytest.mark.parametrize(
    ("path", "old", "new", "differ"),
    [
        ("deep.py", "value > 0", "True", {"test_helped"}),
        ("help.py", "    deeper(value)", "    pass", {"test_helped"}),
        ("help.py", "return 1", "return 2", set()),
        ("help.py", "def check", "\n# said\ndef check", set()),
        ("base.py", "assert value", "return", {"TestClass::test_inherits"}),
        ("marks.py", "usefixtures('x')", "skip", {"test_marked"}),
        ("test_a.py", "EXPECTED = 5", "EXPECTED = abs(-5)", {"test_plain"}),
        ("test_a.py", "[1, 2, 3]", "[1]", {"test_rows"}),
        ("test_a.py", "from help import check, unused", "from help import unused\nfrom deep import check",
         {"test_helped"}),
        ("test_a.py", "class TestClass(Checked):", "class TestClass(Checked):\n    pytestmark = pytest.mark.skip",
         {"TestClass::test_inherits", "TestClass::test_other"}),
        ("test_a.py", "class TestClass(Checked):", "class TestClass(Checked):\n    def setup_method(self):\n"
         "        pytest.skip('x')\n", {"TestClass::test_inherits", "TestClass::test_other"}),
        ("test_a.py", "@never", "@pytest.mark.skip\n@never", {"test_marked"}),
        ("test_a.py", "ROWS =", "pytestmark = pytest.mark.skip\nROWS =", ALL),
        ("test_a.py", "ROWS =", "if True:\n    pytest.skip(allow_module_level=True)\nROWS =", ALL),
        ("test_a.py", "ROWS =", "quiet = pytest.importorskip('none')\nROWS =", ALL),
        ("test_a.py", "ROWS =", "@pytest.fixture(autouse=True)\ndef off():\n    pytest.skip()\n\nROWS =", ALL),
    ],
)  # fmt: skip
def test_what_a_test_uses_decides_whether_it_is_read(
    repository: Path, path: str, old: str, new: str, differ: set[str]
) -> None:
    path = f"tests/{path}"
    change = Change(repository, TREE, {path: edited(TREE[path], old, new)})
    before, after = Files.pair(Repository(repository), change.base, change.head)
    same, fresh = Languages(after, PYTEST).same(Languages(before, PYTEST), "tests/test_a.py")
    assert (ALL - same, fresh) == (differ, frozenset())


def test_a_helper_made_hollow_is_seen_from_tests_that_did_not_change(hits: Judge) -> None:
    found = hits(TREE, {"tests/deep.py": edited(DEEP, "assert value > 0", "pass")})
    assert found == ["hollow: test_helped checks nothing any more"]


def test_recursive_helpers_come_to_an_end_and_count(hits: Judge) -> None:
    again = "def even(n):\n    odd(n - 1)\n\n\ndef odd(n):\n    even(n - 1)\n    assert n\n"
    tree = {"tests/again.py": again, "tests/test_b.py": "from again import even\n\n\ndef test_even():\n    even(4)\n"}
    assert hits(tree, {"tests/again.py": edited(again, "    assert n\n", "")}) == [
        "hollow: test_even checks nothing any more"
    ]


def test_a_new_test_is_read_when_one_is_missing(hits: Judge) -> None:
    two = TREE["tests/test_a.py"].replace("def test_plain", "def test_called_otherwise")
    assert hits(TREE, {"tests/test_a.py": two}) == []
    assert hits(TREE, {"tests/test_a.py": two.replace("assert abs(-5) == EXPECTED", "print(5)")}) == [
        "gone: test_plain is gone"
    ]
