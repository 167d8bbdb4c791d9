"""Tests that are gone, and tests that only moved."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import PY, PY_TESTS, PYTHON, UNIT, UNIT_TESTS, UNITTEST, edited, py

ZERO = 'def test_zero():\n    assert parse("0s") == 0\n'
ONE = 'def test_one():\n    """Says nothing."""\n    value = parse("1s")\n    assert value == 1\n'


def test_a_deleted_test_is_gone_with_its_text_as_evidence(look: Judge) -> None:
    (hit,) = look(PYTHON, py(ZERO, "")).hits
    assert (hit.rule, hit.title, hit.file) == ("gone", "test_zero is gone", PY)
    assert '-     assert parse("0s") == 0' in hit.evidence
    assert "allow_test_changes" in hit.evidence


def test_a_deleted_file_takes_all_its_tests_with_it(hits: Judge) -> None:
    title = f"gone: test_zero, test_one, test_table, test_refuses, … are gone with {PY}"
    assert hits(PYTHON, {PY: None}) == [title]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def test_zero", "def _test_zero"),
        ("def test_zero", "def check_zero"),
        ("class TestAdd:", "class TestAdd:\n    __test__ = False\n"),
        ("class TestAdd:", "class TestAdd:\n    def __init__(self): pass\n"),
        ("class TestAdd:", "class AddTest:"),
        ("\n\ndef test_one", "\n\ndel test_zero\n\n\ndef test_one"),
        ("\n\ndef test_one", "\n\ntest_zero = None\n\n\ndef test_one"),
        ("def test_zero", "@pytest.fixture\ndef test_zero"),
        (ZERO, ZERO + "\n\nzero = test_zero\ndel test_zero\n"),
    ],
)
def test_a_test_that_the_runner_will_not_collect_is_gone(hits: Judge, old: str, new: str) -> None:
    found = hits(PYTHON, py(old, new))
    assert any(hit in ("gone: test_zero is gone", "gone: test_adds is gone") for hit in found), found


def test_a_test_moved_to_where_the_runner_does_not_look_is_gone(hits: Judge) -> None:
    assert hits(PYTHON, {PY: None, "tests/calc_checks.py": PY_TESTS})
    assert hits(PYTHON, {PY: None, "tests/testing_calc.py": PY_TESTS}), "pytest takes test_*.py and *_test.py"
    moved = {"tests/test_add.py": None, "tests/unit/test_add.py": UNIT_TESTS}
    assert hits(UNITTEST, moved, UNIT) == ["gone: test_adds is gone with tests/test_add.py"], "no __init__.py"
    assert hits(UNITTEST, {**moved, "tests/unit/__init__.py": ""}, UNIT) == []


def test_a_class_that_is_no_test_case_any_more_loses_its_tests(hits: Judge) -> None:
    plain = edited(UNIT_TESTS, "(unittest.TestCase)", "")
    assert hits(UNITTEST, {"tests/test_add.py": plain}, UNIT) == ["gone: test_adds is gone"]


@pytest.mark.parametrize("old", [', ("2h", 7200)', '("1h", 3600), '])
def test_fewer_parameters_are_fewer_tests(hits: Judge, old: str) -> None:
    assert hits(PYTHON, py(old, "")) == ["gone: 1 of 3 cases of test_table are gone"]


@pytest.mark.parametrize(
    "text",
    [
        edited(PY_TESTS, "def test_zero():", "def test_zero(:"),
        b"\0\1",
        b"\xff\xfe",
        "-> ../secret",
        "x = 1\n" * 200_000,
    ],
    ids=["syntax", "binary", "not UTF-8", "link", "huge"],
)
def test_a_test_file_that_cannot_be_read_any_more_is_a_hit(hits: Judge, text: str | bytes) -> None:
    (found,) = hits(PYTHON, {PY: text})
    assert found.startswith(f"gone: {PY} cannot be read any more, and with it test_zero, test_one")


def test_what_could_not_be_read_before_is_nobodys_fault(hits: Judge) -> None:
    assert hits({**PYTHON, PY: "def broken(:\n"}, {PY: "def broken(::\n"}) == []
    assert hits({**PYTHON, "tests/data.bin": b"\0"}, {"tests/data.bin": b"\0\0"}) == []


@pytest.mark.parametrize(
    "after",
    [
        py("test_zero", "test_nothing_is_zero"),
        {PY: None, "tests/unit/test_durations.py": PY_TESTS},
        {PY: edited(PY_TESTS, ZERO, ""), "tests/test_zero.py": f"from calc import parse\n\n\n{ZERO}"},
        {
            PY: edited(PY_TESTS, ZERO, ""),
            "tests/test_zero.py": f"import calc\n\n\n{ZERO.replace('parse', 'calc.parse')}",
        },
        py(ZERO, "def check(text, want):\n    assert parse(text) == want\n\n\ndef test_zero():\n    check('0s', 0)\n"),
        py(ZERO, "def check(it, want):\n    assert it == want\n\n\ndef test_zero():\n    check(parse('0s'), want=0)\n"),
        py(
            f"{ZERO}\n\n{ONE}",
            '@pytest.mark.parametrize("text, n", [("0s", 0), ("1s", 1)])\ndef test_small(text, n):\n'
            "    assert parse(text) == n\n",
        ),
        py(
            ', ("2h", 7200)])\ndef test_table(text, seconds):\n    assert parse(text) == seconds\n',
            "])\ndef test_table(text, seconds):\n    assert parse(text) == seconds\n\n\n"
            'def test_two_hours():\n    assert parse("2h") == 7200\n',
        ),
        py(f"{ZERO}\n\n{ONE}", 'def test_both():\n    assert parse("0s") == 0\n    assert parse("1s") == 1\n'),
        py("class TestAdd:\n    def test_adds(self):\n        assert", "def test_adds():\n    assert"),
        py(ZERO, ZERO + "\n\ndef test_more():\n    assert parse('3s') == 3\n"),
        py(ZERO, ZERO + "\n\n@pytest.mark.skip\ndef test_later():\n    assert parse('3s') == 3\n"),
        py("def test_zero():\n", "@pytest.mark.slow\ndef test_zero():\n    # nothing at all\n"),
        py(ZERO, 'def test_zero(tmp_path):\n    assert parse("0s") == 0, "zero"\n    assert tmp_path\n'),
    ],
    ids=[
        *("renamed", "file moved", "moved alone", "moved and imported otherwise", "helper", "helper by name"),
        *("parametrised from several", "a case on its own", "merged", "out of its class", "new test"),
        *("new and skipped", "a mark and a comment", "more asserted"),
    ],
)
def test_a_legitimate_refactor_passes(hits: Judge, after: dict[str, str | None]) -> None:
    assert hits(PYTHON, after) == []


def test_one_test_split_into_two_that_assert_the_same_together_passes(hits: Judge) -> None:
    whole = 'def test_both():\n    x = parse("0s")\n    assert x == 0\n    assert parse("1s") == 1\n'
    halves = 'def test_a():\n    assert parse("0s") == 0\n\n\ndef test_b():\n    assert parse("1s") == 1\n'
    head = "from calc import parse\n\n\n"
    assert hits({PY: head + whole}, {PY: head + halves}) == []
    assert hits({PY: head + whole}, {PY: head + halves.split("\n\n\n")[0]}) == ["gone: test_both is gone"]


def test_one_twin_does_not_stand_in_for_two_tests(hits: Judge) -> None:
    head, body = "from calc import parse\n\n\n", "():\n    assert parse('0s') == 0\n\n\n"
    two = f"{head}def test_a{body}def test_b{body}"
    assert hits({PY: two}, {PY: f"{head}def test_c{body}"}) == ["gone: test_b is gone"]
    assert hits({PY: two}, {PY: f"{head}def test_a{body}"}) == ["gone: test_b is gone"], "a twin that was there before"


def test_a_test_file_in_a_language_nobody_here_reads_must_stay(hits: Judge) -> None:
    before = {"spec/calc_spec.rb": "describe Calc do\nend\n"}
    assert hits(before, {"spec/calc_spec.rb": None}, "rspec") == ["gone: spec/calc_spec.rb is gone"]
    assert hits(before, {"spec/calc_spec.rb": None, "spec/sum_spec.rb": before["spec/calc_spec.rb"]}, "rspec") == []
