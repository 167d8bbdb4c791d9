"""Tests that are there and do not run, or may fail."""

from __future__ import annotations

import pytest
from tamper_change import Judge
from tamper_files import PY_TESTS, PYTHON, UNIT, UNIT_TESTS, UNITTEST, edited, py

BODY = '    assert parse("0s") == 0'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def test_zero", "@pytest.mark.skip\ndef test_zero"),
        ("def test_zero", '@pytest.mark.skipif(True, reason="x")\ndef test_zero'),
        ("def test_zero", "@pytest.mark.xfail(strict=False)\ndef test_zero"),
        ("def test_zero", "later = pytest.mark.skip\n\n\n@later\ndef test_zero"),
        (BODY, f'    pytest.skip("later")\n{BODY}'),
        (BODY, f'    if add:\n        pytest.skip("later")\n{BODY}'),
        (BODY, f'    pytest.xfail("later")\n{BODY}'),
        (BODY, f'    pytest.importorskip("nonesuch")\n{BODY}'),
        (BODY, f"    give_up()\n{BODY}\n\n\ndef give_up():\n    pytest.skip()\n"),
        ("import pytest\n", "import pytest\n\npytestmark = pytest.mark.skip\n"),
        ("import pytest\n", 'import pytest\n\npytest.importorskip("nonesuch")\n'),
        ("import pytest\n", 'import pytest\n\nnonesuch = pytest.importorskip("nonesuch")\n'),
        ("import pytest\n", 'import pytest\n\npytest.skip("no", allow_module_level=True)\n'),
        ("def test_zero", "if pytest.__version__ > '99':\n  def test_zero"),
        ("def test_zero", "@pytest.fixture(autouse=True)\ndef no():\n    pytest.skip()\n\n\ndef test_zero"),
    ],
)
def test_a_test_that_is_skipped_now_is_a_hit(hits: Judge, old: str, new: str) -> None:
    text = edited(PY_TESTS, old, new).replace("  def test_zero():\n    assert", "  def test_zero():\n      assert")
    found = hits(PYTHON, {"tests/test_calc.py": text})
    assert any(hit.startswith("skipped: test_zero") for hit in found), found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def test", '    @unittest.skip("later")\n    def test'),
        ("    def test", "    @unittest.expectedFailure\n    def test"),
        ("class", '@unittest.skipIf(1, "later")\nclass'),
        ("    def test", "    def setUp(self):\n        self.skipTest('later')\n\n    def test"),
        ("        self.a", "        raise unittest.SkipTest\n        self.a"),
    ],
)
def test_unittests_own_ways_of_skipping_are_hits(hits: Judge, old: str, new: str) -> None:
    found = hits(UNITTEST, {"tests/test_add.py": edited(UNIT_TESTS, old, new)}, UNIT)
    assert "skipped: test_adds is skipped or expected to fail" in found


def test_all_tests_of_a_file_that_one_line_skips_make_one_hit_that_shows_it(look: Judge) -> None:
    found = look(PYTHON, py("import pytest\n", "import pytest\npytestmark = pytest.mark.skip\n")).hits
    assert [hit.title for hit in found] == [
        "test_zero, test_one, test_table, test_refuses, … are skipped or expected to fail"
    ]
    assert found[0].evidence == "+ pytest.mark.skip"


def test_a_decorator_from_beside_the_tests_that_skips_is_seen(hits: Judge) -> None:
    after = py("import pytest\n", "import pytest\nfrom helpers import later\n")
    after = {key: text.replace("def test_zero", "@later\ndef test_zero") for key, text in after.items()}
    helper = {"tests/helpers.py": "import pytest\n\nlater = pytest.mark.skip(reason='x')\n"}
    assert hits(PYTHON, {**after, **helper}) == ["skipped: test_zero is skipped or expected to fail"]


def test_a_test_that_was_skipped_before_may_stay_so_and_move(hits: Judge) -> None:
    before = {**PYTHON, **py("def test_zero", "@pytest.mark.skip\ndef test_zero")}
    assert hits(before, {"tests/test_calc.py": before["tests/test_calc.py"].replace("test_zero", "test_none")}) == []
