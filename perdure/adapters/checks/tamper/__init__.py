"""The marks of a change on tests, read and not run: tests that no experiment covers, and hints for a reviewer.

files      the files of two commits, and which of them differ
sources    texts without what stands in comments and strings
names      the tests in one file, by name
inventory  tests of the base that are gone or skipped where no run tells: hits, which make the verdict red
hints      changes to look at, with their lines: never a verdict
"""

from __future__ import annotations

from perdure.adapters.checks.tamper.files import Files
from perdure.adapters.checks.tamper.hints import hints
from perdure.adapters.checks.tamper.inventory import judged, missing_tests

__all__ = ["Files", "hints", "judged", "missing_tests"]
