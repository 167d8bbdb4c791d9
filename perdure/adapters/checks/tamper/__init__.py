"""Marks of a change on tests, found by reading and not by running: tests that no experiment covers, and hints for a
reviewer.

differing_files  the files that differ between two commits
sources          texts without what stands in comments and strings
source_tests     the tests in one file, by name
missing_tests    tests of the base that are gone or skipped where no run tells: hits, which make the verdict red
hints            changes to look at, with their lines: never a verdict
"""

from __future__ import annotations

from perdure.adapters.checks.tamper.differing_files import DifferingFiles
from perdure.adapters.checks.tamper.hints import find_hints
from perdure.adapters.checks.tamper.missing_tests import find_missing_tests, with_missing_tests

__all__ = ["DifferingFiles", "find_hints", "find_missing_tests", "with_missing_tests"]
