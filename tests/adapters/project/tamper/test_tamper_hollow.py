"""Tests that run, and check nothing."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import PY, PY_TESTS, PYTHON, UNIT, UNIT_TESTS, UNITTEST, edited, py

BODY = '    assert parse("0s") == 0'


@pytest.mark.parametrize(
    "body",
    [
        "    pass",
        '    parse("0s")',
        "    assert True",
        "    assert 1 == 1",
        '    assert parse("0s") == parse("0s")',
        '    assert parse("0s") == 0 or True',
        '    assert (parse("0s") == 0, "zero")',
        "    value = 0\n    assert value == 0",
        '    try:\n        assert parse("0s") == 0\n    except Exception:\n        pass',
        '    try:\n        assert parse("0s") == 0\n    except:\n        print("no")',
        '    try:\n        assert parse("0s") == 0\n    finally:\n        return',
        '    import contextlib\n    with contextlib.suppress(AssertionError):\n        assert parse("0s") == 0',
        '    with pytest.raises(AssertionError):\n        assert parse("0s") == 0',
        f"    return\n{BODY}",
        f"    if True:\n        return\n{BODY}",
        f"    if add:\n        return\n{BODY}",
        '    if False:\n        assert parse("0s") == 0',
        '    if add(0, 0):\n        assert parse("0s") == 0',
        '    for _ in []:\n        assert parse("0s") == 0',
        '    def inner():\n        assert parse("0s") == 0',
        '    return lambda: parse("0s") == 0',
        f"    yield\n{BODY}",
        f"    raise SystemExit(0)\n{BODY}",
        '    result = parse("0s") == 0\n    assert isinstance(1, int)',
    ],
)
def test_a_test_without_an_assertion_that_can_fail_is_hollow(hits: Judge, body: str) -> None:
    found = hits(PYTHON, py(BODY, body))
    assert [hit for hit in found if hit.startswith("hollow: test_zero ")], found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.assertEqual(add(2, 3), 5)", "self.assertTrue(True)"),
        ("self.assertEqual(add(2, 3), 5)", "self.assertEqual(5, 5)"),
        ("self.assertEqual(add(2, 3), 5)", "self.assertEqual(add(2, 3), add(2, 3))"),
        ("self.assertEqual(add(2, 3), 5)", "add(2, 3)"),
        ("    def test", "    async def test"),
        ("    def test", "    def assertEqual(self, *given):\n        pass\n\n    def test"),
        ("    def test", "    def run(self, result=None):\n        pass\n\n    def test"),
        ("import unittest\n", "import unittest\n\nunittest.TestCase.assertEqual = print\n"),
    ],
)
def test_unittests_own_ways_of_checking_nothing_are_hits(hits: Judge, old: str, new: str) -> None:
    assert hits(UNITTEST, {"tests/test_add.py": edited(UNIT_TESTS, old, new)}, UNIT)


def test_a_later_definition_by_the_same_name_is_the_one_that_counts(hits: Judge) -> None:
    after = {PY: PY_TESTS + "\n\ndef test_zero():\n    pass\n"}
    assert hits(PYTHON, after) == ["hollow: test_zero checks nothing any more"]


def test_a_helper_that_asserts_nothing_any_more_empties_the_tests_that_use_it(hits: Judge) -> None:
    helper = "from calc import parse\n\n\ndef check(text, want):\n    assert parse(text) == want\n"
    tests = "from helpers import check\n\n\ndef test_zero():\n    check('0s', 0)\n"
    before = {PY: tests, "tests/helpers.py": helper}
    assert hits(before, {"tests/helpers.py": edited(helper, "assert ", "")}) == [
        "hollow: test_zero checks nothing any more"
    ]
    assert hits(before, {"tests/helpers.py": edited(helper, "check(text", "check(text, ")}) == []


def test_a_decorator_that_swallows_what_a_test_raises_empties_it(hits: Judge) -> None:
    swallow = (
        "def calm(function):\n    def inner():\n        try:\n            function()\n"
        "        except AssertionError:\n            pass\n    return inner\n\n\n"
    )
    assert hits(PYTHON, py("def test_zero", f"{swallow}@calm\ndef test_zero")) == [
        "hollow: test_zero checks nothing any more"
    ]
    honest = edited(swallow, "            pass", "            raise")
    assert hits(PYTHON, py("def test_zero", f"{honest}@calm\ndef test_zero")) == []
    ignore = "def calm(function):\n    def inner():\n        pass\n    return inner\n\n\n"
    assert hits(PYTHON, py("def test_zero", f"{ignore}@calm\ndef test_zero"))


def test_a_test_that_never_asserted_is_hollow_only_when_it_does_nothing_any_more(hits: Judge) -> None:
    before = {PY: "from calc import parse\n\n\ndef test_runs():\n    parse('1s')\n"}
    assert hits(before, {PY: edited(before[PY], "parse('1s')\n", "parse('2s')\n")}) == []
    assert hits(before, {PY: edited(before[PY], "    parse('1s')\n", "    pass\n")}) == [
        "hollow: test_runs does nothing any more"
    ]


def test_changed_assertions_of_a_test_that_stays_are_shown_and_no_hit(look: Judge) -> None:
    found = look(PYTHON, py('parse("0s") == 0', 'parse("0s") == 1'))
    assert found.hits == ()
    (changed,) = found.changed_tests
    assert (changed.name, changed.file, changed.line) == ("test_zero", PY, 6)
    assert (changed.before, changed.after) == ("parse('0s') == 0", "parse('0s') == 1")


def test_changed_input_and_changed_fixtures_of_a_test_file_are_shown(look: Judge) -> None:
    assert [c.name for c in look(PYTHON, py('value = parse("1s")', "value = 1 + 0 * add(1, 1)")).changed_tests]
    fixture = "@pytest.fixture\ndef given():\n    return 1\n\n\ndef test_zero"
    before = {**PYTHON, **py("def test_zero", fixture)}
    found = look(before, {PY: edited(before[PY], "return 1\n", "return 2\n")})
    assert ([c.name for c in found.changed_tests], found.hits) == (["given"], ())


def test_assertions_that_only_grew_are_not_shown(look: Judge) -> None:
    assert look(PYTHON, py(BODY, f"{BODY}\n    assert parse('9s') == 9")).changed_tests == ()
