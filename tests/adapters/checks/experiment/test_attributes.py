"""Attributes of git decide which bytes a test has: those of its own commit, whatever a change says."""

from __future__ import annotations

import sys

import pytest
from experiment_fixtures import Trials

from perdure.adapters.checks.experiment.commit_pair import CommitPair
from perdure.models.config.repository import TestCommand

PYTEST = f"{sys.executable} -m pytest -q"
RIGHT, WRONG = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n"
SUM = "from calc import add\n\n\ndef testadd():\n    assert add(1, 2) in (1 + 2,)\n"
LENGTH = """\
import pathlib
from calc import add

def testadd():
    size = len(pathlib.Path(__file__).with_name("x.txt").read_bytes())
    assert add(size, 2) == (7 if size == 5 else size - 2)
"""


@pytest.mark.parametrize(
    ("files", "attributes"),
    [
        ({"tests/test_calc.py": SUM}, {".gitattributes": "tests/*.py working-tree-encoding=UTF-7\n"}),
        ({"tests/test_calc.py": SUM}, {"tests/.gitattributes": "*.py working-tree-encoding=UTF-7\n"}),
        ({"test_calc.py": SUM}, {".gitattributes": "[attr]odd working-tree-encoding=UTF-7\ntest_* odd\n"}),
        ({"tests/test_calc.py": LENGTH, "tests/x.txt": "1\n2\n\n"}, {".gitattributes": "*.txt eol=crlf\n"}),
        ({"tests/test_calc.py": LENGTH, "tests/x.txt": "$Id$\n"}, {".gitattributes": "x.txt ident\n"}),
    ],
    ids=["encoding", "in a directory", "by a macro", "ends of lines", "ident"],
)
async def test_a_change_of_attributes_bends_no_test_of_the_base(
    tried: Trials, files: dict[str, str], attributes: dict[str, str]
) -> None:
    before = {"calc.py": RIGHT, "conftest.py": "", **files}
    assert await tried.is_green({**before, "calc.py": WRONG, **attributes}, PYTEST), "it does not even fool its own run"
    found = await tried(before, {"calc.py": WRONG, **attributes}, PYTEST)
    assert "testadd" in str([found.commands[0].promises, found.commands[0].taken]), found.model_dump_json(indent=1)


SHIPPED = """\
import pathlib

def size():
    return len(pathlib.Path(__file__).with_name("a.bat").read_bytes())
"""
SIZE = "from calc import size\n\n\ndef test_size():\n    assert size() in (6, 10)\n"


async def test_attributes_for_the_product_hold_for_it_and_stay_without_a_word(tried: Trials) -> None:
    before = {"calc.py": SHIPPED, "a.bat": "a\nb\n\n\n", "tests/test_calc.py": SIZE, "tests/x.txt": "1\n"}
    after = {
        ".gitattributes": "* text=auto\n*.bat eol=crlf\n*.py eol=lf\n",
        "tests/test_crlf.py": SIZE.replace("in (6, 10)", "== 10"),
    }
    found = await tried(before, after, PYTEST)
    assert not found.is_tampered, found.model_dump_json(indent=1)
    assert (found.changed_promises, found.touched) == ((), ("tests/test_crlf.py",))
    assert "test_size" in str(found.commands[0].proving)


async def test_tests_whose_bytes_change_are_touched_and_an_honest_change_of_them_is_right(tried: Trials) -> None:
    before = {"calc.py": RIGHT, "tests/test_calc.py": SUM, "tests/x.txt": "1\n", ".gitattributes": "*.txt eol=lf\n"}
    found = await tried(before, {".gitattributes": "* text=auto eol=crlf\n"}, PYTEST)
    assert found.touched == ("tests/test_calc.py", "tests/x.txt")
    assert not found.is_tampered
    assert (found.changed_promises, found.commands[0].missed) == ((), ())


@pytest.mark.parametrize(
    "text", ["* eol=\n", "* working-tree-encoding=nonsense ident\n", "[attr]a b\n" * 3_000, "\0\n"]
)
def test_attributes_that_make_no_sense_change_nothing(tried: Trials, text: str) -> None:
    base = tried.commit({"calc.py": RIGHT, "tests/test_calc.py": SUM})
    change = tried.commit({"calc.py": RIGHT, "tests/test_calc.py": SUM, ".gitattributes": text})
    pair = CommitPair.from_commits(tried.repository, base, change, [TestCommand(name="t", command="pytest")], ())
    assert pair.touched == ()
    assert pair.base_tests_on_change().overlay == {}
