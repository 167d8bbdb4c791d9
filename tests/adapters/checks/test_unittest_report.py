"""The report that stands in for unittest's own, which it has not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from perdure.adapters.checks.junit import read_junit
from perdure.adapters.checks.runners import python as runner
from tests.project_files import Files

REPORTER = Path(runner.__file__).with_name("reporting_unittest.py")
SUITE = """\
import unittest


class Calc(unittest.TestCase):
    def test_passes(self):
        pass

    def test_fails(self):
        self.assertEqual(1, 2, "<no & sum>")

    def test_breaks(self):
        raise KeyError("\\x00")

    def test_parts(self):
        for number in (1, 2):
            with self.subTest(number=number):
                self.assertEqual(number, 1)

    @unittest.skip("later")
    def test_skipped(self):
        pass

    @unittest.expectedFailure
    def test_expected(self):
        self.fail()

    @unittest.expectedFailure
    def test_unexpected(self):
        pass


class Never(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no room")

    def test_it(self):
        pass
"""


def run(root: Path, *arguments: str) -> tuple[int, Path]:
    report = root / "reports" / "report.xml"
    report.parent.mkdir()
    ours = shutil.copy(REPORTER, report.with_name("ours.py"))  # where no `unittest.py` lies beside it
    words = [sys.executable, str(ours), str(report), *arguments]
    done = subprocess.run(words, cwd=root, capture_output=True, timeout=60, check=False)
    return done.returncode, report


def test_each_test_is_told_as_unittest_sees_it(files: Files) -> None:
    root = files({"tests/test_calc.py": SUITE, "tests/test_gone.py": "import nothing_of_that_name\n"})
    code, report = run(root, "discover", "-s", "tests")
    cases = {case.name.removeprefix("tests/test_calc.py::"): case for case in read_junit(report, root)}
    assert code == 1
    assert {name: case.outcome for name, case in cases.items()} == {
        "Calc::test_passes": "passed",
        "Calc::test_fails": "failed",
        "Calc::test_breaks": "errored",
        "Calc::test_parts": "failed",
        "Calc::test_skipped": "skipped",
        "Calc::test_expected": "skipped",
        "Calc::test_unexpected": "failed",
        "setUpClass (test_calc.Never)": "errored",
        "_FailedTest::test_gone": "errored",
    }
    assert "1 != 2 : <no & sum>" in cases["Calc::test_fails"].message


def test_it_is_called_as_unittest_is_and_ends_as_it_does(files: Files) -> None:
    root = files(
        {"test_a.py": "import unittest, top\n\nclass A(unittest.TestCase):\n    def test_a(self):\n        top.x\n"}
    )
    (root / "top.py").write_text("x = 1\n")
    code, report = run(root, "-v", "test_a.A.test_a")
    assert (code, [case.name for case in read_junit(report, root)]) == (0, ["test_a.py::A::test_a"])
