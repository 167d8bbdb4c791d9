"""Runs the tests: `python3 -m tests [MODULE …]`. With PERDURE_REPORT set, a JUnit report is written there."""

import os
import sys
import time
import unittest
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent


class Timed(unittest.TextTestResult):
    """Remembers every test that ran, and for how long."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.ran = {}

    def startTest(self, test):
        self.began = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        self.ran[test.id()] = time.monotonic() - self.began
        super().stopTest(test)


def write_report(result, path):
    """One <testcase> a test; what went wrong outside of any test, such as in setUpClass, is one too."""
    problems = {}
    for kind, found in (("skipped", result.skipped), ("failure", result.failures), ("error", result.errors)):
        for test, text in found:
            problems[getattr(test, "test_case", test).id()] = (kind, text)
    suite = ElementTree.Element("testsuite", name="tests")
    for name in {**result.ran, **problems}:
        group, _, test = name.rpartition(".")
        case = ElementTree.SubElement(
            suite, "testcase", classname=group, name=test, time=f"{result.ran.get(name, 0):.4f}"
        )
        if name in problems:
            kind, text = problems[name]
            ElementTree.SubElement(case, kind, message=text.strip().splitlines()[-1]).text = text
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def main(modules):
    loader = unittest.defaultTestLoader
    if modules:
        suite = loader.loadTestsFromNames([f"tests.{name}" for name in modules])
    else:
        suite = loader.discover(str(HERE), top_level_dir=str(HERE.parent))
    result = unittest.TextTestRunner(resultclass=Timed).run(suite)
    if report := os.environ.get("PERDURE_REPORT"):
        write_report(result, report)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
